"""berth and kube-scheduler in turns on one API server: how many pods a second, at what cost, and how soon.

Called by `tests/cluster/beside_kube_scheduler.py`. Both get the same nodes, the same pods, and no limit of
their own on requests. Pods that wait from the beginning are counted from the first that is bound to the last.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from support.bindings import create_all, node, pod
from support.observed.api import ApiClient
from support.scheduler_process import SchedulerProcess, SchedulerSetup

Json = dict[str, Any]
UNLIMITED: Final = {"qps": "100000", "burst": "100000"}
ZONES: Final = 10
_PATIENCE_S: Final = 600.0
_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """One run over pods that waited. `cpu_ms_per_pod`: of the scheduler, between the first and the last bind;
    `memory_mb`: the most it had; `startup_s`: from its start to the first bind.
    """

    scheduler: str
    nodes: int
    pods: int
    pods_per_s: float
    cpu_ms_per_pod: float
    memory_mb: float
    startup_s: float
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Pods made one by one on an idle cluster: ms from the request that makes one until its node is seen."""

    scheduler: str
    nodes: int
    pods: int
    p50_ms: float
    p99_ms: float
    worst_ms: float
    cpu_ms_per_pod: float
    load: float


class Yard:
    """One API server, some nodes, one scheduler at a time. `folder`: for the schedulers' files."""

    def __init__(self, api: ApiClient, kubeconfig: Path, folder: Path) -> None:
        self._api = api
        self._kubeconfig = kubeconfig
        self._folder = folder
        self._serial = 0

    async def have_nodes(self, count: int) -> None:
        """Exactly so many plain nodes, in ten zones."""
        await self._api.delete_all("Node")
        zone = "topology.kubernetes.io/zone"
        nodes = (
            node(f"node-{number}", cpu="32", **{zone: f"zone-{number % ZONES}"}) for number in range(count)
        )
        await create_all(self._api, nodes, _AT_ONCE)

    async def throughput(self, program: str, nodes: int, count: int) -> Throughput:
        """Bind so many pods that wait when the scheduler starts."""
        await self._api.delete_all("Event")
        await create_all(self._api, self._pods(count), _AT_ONCE)
        began_s = time.monotonic()
        async with self._bound() as bound, self._scheduler(program) as process:
            await bound.get()
            first_s, first_cpu_s = time.monotonic(), process.cpu_s()
            async with asyncio.timeout(_PATIENCE_S):
                for _ in range(count - 1):
                    await bound.get()
            took_s, cpu_s = time.monotonic() - first_s, process.cpu_s() - first_cpu_s
            memory_mb = process.memory_mb()
        await self._api.delete_all("Pod")
        return Throughput(
            scheduler=_name(program),
            nodes=nodes,
            pods=count,
            pods_per_s=round((count - 1) / took_s, 1),
            cpu_ms_per_pod=round(1000 * cpu_s / (count - 1), 3),
            memory_mb=round(memory_mb, 1),
            startup_s=round(first_s - began_s, 2),
            load=round(os.getloadavg()[0], 1),
        )

    async def latency(self, program: str, nodes: int, count: int) -> Latency:
        """Make pods one by one, each when the one before is bound."""
        times_ms: list[float] = []
        async with self._bound() as bound, self._scheduler(program) as process:
            await process.ready()
            await asyncio.sleep(1.0)  # let it come to rest
            cpu_s = process.cpu_s()
            for content in self._pods(count):
                began_s = time.monotonic()
                made = asyncio.create_task(self._api.create(content))
                async with asyncio.timeout(_PATIENCE_S):
                    seen_s = await bound.get()
                times_ms.append(1000 * (seen_s - began_s))
                await made
                await asyncio.sleep(0.005)
            cpu_s = process.cpu_s() - cpu_s
        await self._api.delete_all("Pod")
        cuts = statistics.quantiles(times_ms, n=100, method="inclusive")
        return Latency(
            scheduler=_name(program),
            nodes=nodes,
            pods=count,
            p50_ms=round(cuts[49], 2),
            p99_ms=round(cuts[98], 2),
            worst_ms=round(max(times_ms), 2),
            cpu_ms_per_pod=round(1000 * cpu_s / count, 2),
            load=round(os.getloadavg()[0], 1),
        )

    def _pods(self, count: int) -> Sequence[Json]:
        self._serial += 1
        return [pod(f"pod-{self._serial}-{number}", "100m") for number in range(count)]

    @asynccontextmanager
    async def _scheduler(self, program: str) -> AsyncIterator[SchedulerProcess]:
        setup = SchedulerSetup(
            program=program, kubeconfig=self._kubeconfig, folder=self._folder, client_connection=UNLIMITED
        )
        process = SchedulerProcess(setup, _name(program))
        await process.start()
        try:
            yield process
        finally:
            await process.stop()

    @asynccontextmanager
    async def _bound(self) -> AsyncIterator[asyncio.Queue[float]]:
        """The moments at which pods were seen on nodes; one change for each pod, so that looking is cheap."""
        _, version = await self._api.all_of("Lease")  # whatever is quick to list
        seen: asyncio.Queue[float] = asyncio.Queue()

        async def follow() -> None:
            async for line in self._api.watch_lines("Pod", version, "spec.nodeName!="):
                if orjson.loads(line)["type"] == "ADDED":
                    seen.put_nowait(time.monotonic())

        task = asyncio.create_task(follow())
        try:
            yield seen
        finally:
            task.cancel()
            await asyncio.wait({task})


def middle(results: Sequence[Throughput | Latency]) -> list[Json]:
    """The median of each figure, one line for each scheduler and number of nodes."""
    groups: dict[tuple[str, str, int], list[Json]] = {}
    for result in results:
        key = (type(result).__name__, result.scheduler, result.nodes)
        groups.setdefault(key, []).append(asdict(result))
    return [{"kind": kind, **_median(rows)} for (kind, _, _), rows in groups.items()]


def _median(rows: Sequence[Json]) -> Json:
    return {
        key: value if isinstance(value, str) else round(statistics.median(row[key] for row in rows), 3)
        for key, value in rows[0].items()
    }


def _name(program: str) -> str:
    return Path(program).name
