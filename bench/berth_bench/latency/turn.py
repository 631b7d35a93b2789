"""One slice: a scheduler, pods that come and go at a steady rate, and what the audit log says of them.

Pods are created by the clock, whether earlier ones have their node or not. When more than `alive` exist, the
oldest is deleted for each new one, so that the cluster stays as full as it is.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from berth_bench.latency.audit import AuditLog
from berth_bench.latency.figures import Slice, noted
from berth_bench.versus.api import ApiClient
from berth_bench.versus.contenders import UNLIMITED, Contender
from berth_bench.versus.objects import Json
from berth_bench.versus.real_servers import ADMIN, SCHEDULER, RealServers, program
from berth_bench.versus.scheduler_process import SchedulerError, SchedulerProcess, SchedulerSetup
from berth_bench.versus.workloads import Versus

WARM_S: Final = 10.0
"""Seconds of load before those that are measured."""
DRAIN_S: Final = 10.0
"""Seconds that the last pods of a slice have to be bound."""
_LOOK_S: Final = 1.0
_AT_ONCE: Final = 48
_OPEN_METRICS: Final = "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of every slice. `rate`: pods per second. `alive`: pods that exist at a time."""

    seconds: float
    rate: float
    alive: int
    warm_s: float = WARM_S


class Track:
    """One API server with its audit log, for slices one after the other. Close it after use."""

    def __init__(self, servers: RealServers, folder: Path) -> None:
        self._servers = servers
        self._folder = folder
        self._api = ApiClient(servers.url, servers.tokens[ADMIN])
        self._kubeconfig = servers.kubeconfig(SCHEDULER)
        self._serial = 0

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def slice(self, contender: Contender, workload: Versus, load: Load) -> Slice:
        """Run one scheduler under the load, and return what was measured.

        Raises SchedulerError and ApiError.
        """
        self._serial += 1
        marks = self._folder / f"watched-{self._serial}"
        marks.touch()
        async with self._started(contender, marks) as process:
            await process.ready()
            log = AuditLog(self._servers.audit_log)
            alive: deque[str] = deque()
            try:
                pods = iter(workload.manifests(f"steady-{self._serial}", 2**62))
                await self._create(pods, alive, load, load.warm_s, process)
                log.read()
                began_s, cpu_s = time.time(), process.cpu_s()
                await self._create(pods, alive, load, load.seconds, process)
                ended_s, cpu_s = time.time(), process.cpu_s() - cpu_s
                times = [one for one in log.read() if one.created_s >= began_s]
                ends_s = time.monotonic() + DRAIN_S
                while log.unbound and time.monotonic() < ends_s:
                    await asyncio.sleep(_LOOK_S / 10)
                    times += log.read()
                go_count, go_pause_s = (0, 0.0) if contender.is_berth else await self._go_pauses(process)
                memory_mb = process.memory_mb()
            finally:
                await self._api.delete_all("Pod")
                await self._api.delete_all("Event")
        lines = [orjson.loads(line) for line in marks.read_bytes().splitlines()]
        pauses, collections = noted([line for line in lines if line["ended_s"] <= ended_s], since_s=began_s)
        return Slice(
            contender=contender.name,
            seconds=ended_s - began_s,
            times_ms=tuple(one.took_ms for one in times),
            unbound=len(log.unbound),
            cpu_s=cpu_s,
            memory_mb=memory_mb,
            pauses=pauses,
            collections=collections,
            go_collections=go_count,
            go_pause_ms=1000 * go_pause_s,
        )

    async def _create(
        self, pods: Iterator[Json], alive: deque[str], load: Load, seconds: float, process: SchedulerProcess
    ) -> None:
        """Create pods at the rate for so many seconds. Raises ApiError, and SchedulerError if the scheduler
        ended.
        """
        places = asyncio.Semaphore(_AT_ONCE)
        began_s, count = time.monotonic(), 0
        made: list[asyncio.Task[None]] = []
        try:
            while (due_s := count / load.rate) < seconds:
                await asyncio.sleep(max(0.0, began_s + due_s - time.monotonic()))
                await places.acquire()
                made = [task for task in made if not task.done() or task.result()]
                made.append(asyncio.create_task(self._replace(next(pods), alive, load.alive, places)))
                count += 1
                if process.ended_with is not None:
                    text = f"the scheduler ended with {process.ended_with}:\n{process.last_lines()}"
                    raise SchedulerError(text)
            await asyncio.gather(*made)
        finally:
            for task in made:
                task.cancel()

    async def _replace(self, pod: Json, alive: deque[str], most: int, places: asyncio.Semaphore) -> None:
        """Create a pod; delete the oldest if there are too many."""
        try:
            await self._api.create(pod)
            alive.append(pod["metadata"]["name"])
            if len(alive) > most:
                await self._api.delete("Pod", alive.popleft(), grace_period_s=0)
        finally:
            places.release()

    @asynccontextmanager
    async def _started(self, contender: Contender, marks: Path) -> AsyncIterator[SchedulerProcess]:
        setup = SchedulerSetup(
            program="berth" if contender.is_berth else str(program("kube-scheduler")),
            kubeconfig=self._kubeconfig,
            folder=self._folder,
            configuration=contender.configuration(),
            client_connection=UNLIMITED,
            flags=contender.flags if contender.is_berth else (*contender.flags, _OPEN_METRICS),
            python=contender.python,
            module=("-m", "berth_bench.latency.watched", str(marks)),
        )
        process = SchedulerProcess(setup)
        await process.start()
        try:
            yield process
        finally:
            await process.stop()

    @staticmethod
    async def _go_pauses(process: SchedulerProcess) -> tuple[int, float]:
        """Return the number of collections of a Go process so far, and the seconds of its longest stop."""
        url = f"https://127.0.0.1:{process.port}/metrics"
        connector = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as answer:
            return go_pauses(await answer.text())


def go_pauses(metrics: str) -> tuple[int, float]:
    """Return the number of collections and the seconds of the longest stop, of a Go process's metrics."""
    values: dict[str, Any] = {}
    for line in metrics.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("go_gc_duration_seconds"):
            values[name] = float(value)
    count = int(values.get("go_gc_duration_seconds_count", 0))
    return count, values.get('go_gc_duration_seconds{quantile="1"}', 0.0)
