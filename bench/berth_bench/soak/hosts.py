"""`Hosts`: the host of a soak, killed and started again, and its measurements.

Run by `world`. The host's configuration names the four plugins; some of them put their sockets into a folder.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from berth_bench.soak import measures
from berth_bench.soak.clusters import SCHEDULER_NAME
from berth_bench.soak.growth import Heap
from berth_bench.soak.plugin_process import PluginProcess
from berth_bench.soak.plugins import SoakFit, SoakGate, SoakKeeper, SoakRank
from berth_bench.soak.swaps import LOST_BY, Failures
from berth_bench.versus.contenders import UNLIMITED
from berth_bench.versus.processes import memory_mb
from berth_bench.versus.scheduler_process import (
    SchedulerError,
    SchedulerProcess,
    SchedulerSetup,
)

LOOKS_S: Final = 5.0
POINTS: Final = {
    SoakFit: ("filter",),
    SoakRank: ("score",),
    SoakKeeper: ("reserve", "preBind"),
    SoakGate: ("permit",),
}
IN_FOLDER: Final = (SoakFit, SoakGate)
"""These plugins use the socket folder, where an upgrade has no gap; the others have endpoints."""
_REQUIRED: Final = (SoakFit, SoakKeeper)


class Hosts:
    """The current host and its successors."""

    def __init__(self, folder: Path, kubeconfig: Path, plugins: Sequence[PluginProcess]) -> None:
        self._setup = SchedulerSetup(
            program="berth",
            kubeconfig=kubeconfig,
            folder=folder,
            configuration=yaml.safe_dump(_configuration(), sort_keys=False),
            client_connection=UNLIMITED,
            more_documents=yaml.safe_dump(_berth_configuration(plugins), sort_keys=False),
            # The embedded cluster has no users, so nothing can check who may read.
            flags=("--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics,/debug/pprof/heap",),
        )
        self._process = SchedulerProcess(self._setup)
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Start a host, and wait until it is ready. Raises SchedulerError."""
        self._process = SchedulerProcess(self._setup)
        await self._process.start()
        await self._process.ready()

    async def restart(self) -> None:
        """Kill the host, and start another one. The new host is ready when this method returns, also after a
        cancellation. Raises SchedulerError as `check` and `start` do.
        """
        self.check()
        async with self._changing:
            renewing = asyncio.create_task(self._renew())
            try:
                await asyncio.shield(renewing)
            finally:
                await renewing

    def check(self) -> None:
        """Raise SchedulerError if the host has ended by itself."""
        if not self._changing.locked() and (code := self._process.ended_with) is not None:
            raise SchedulerError(f"the host ended by itself with {code}:\n{self._process.last_lines()}")

    async def _renew(self) -> None:
        await self._process.kill()
        await self.start()

    async def stop(self) -> None:
        """Stop the host with SIGTERM."""
        async with self._changing:
            await self._process.stop()

    def memory_mb(self) -> float:
        """Return the current resident memory in MB; 0 without a host."""
        try:
            return memory_mb(self._process.pid, "VmRSS")
        except (OSError, LookupError):
            return 0.0

    async def heap(self) -> Heap | None:
        """Return a sample of the host's objects and memory; None if the host does not answer."""
        found = await measures.heap(self._process.port)
        kept = await measures.fill(self._process.port)
        mb = self.memory_mb()
        if found is None or not kept or not mb:
            return None
        figures, types = found
        return Heap(asyncio.get_running_loop().time(), figures, kept, types, mb)

    async def at_rest(
        self, rest_s: float, since: measures.Reading | None = None, looks_s: float = 0.0
    ) -> measures.Reading:
        """Wait `rest_s`, then return typical figures over LOOKS_S seconds. With `since`, repeat for up to
        `looks_s` seconds until no figure exceeds those of `since`. Raises SchedulerError if the host does not
        answer.
        """
        await asyncio.sleep(rest_s)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + looks_s
        while True:
            readings = await self._look()
            seen = measures.typical(readings) if readings else None
            if loop.time() >= until_s or (seen and since and seen.is_within(since)):
                break
        if seen is None:
            raise SchedulerError(f"the host does not answer at /metrics:\n{self._process.last_lines()}")
        return seen

    async def _look(self) -> list[measures.Reading]:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LOOKS_S
        readings: list[measures.Reading] = []
        while loop.time() < until_s:
            with contextlib.suppress(aiohttp.ClientError, OSError):  # TimeoutError is an OSError
                readings.append(await measures.read(self._process.port, self._process.pid))
            await asyncio.sleep(0.5)
        return readings

    async def failures_of(self, plugin: str) -> Failures | None:
        """Return the failures of a plugin; see `swaps`."""
        process = self._process
        try:
            return Failures(process.pid, await measures.failures(process.port, plugin, LOST_BY))
        except (aiohttp.ClientError, OSError):
            return None


def _configuration() -> dict[str, Any]:
    points: dict[str, Any] = {}
    for plugin, named in POINTS.items():
        for point in named:
            points.setdefault(point, {"enabled": []})["enabled"].append({"name": plugin.__name__})
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": SCHEDULER_NAME, "plugins": points}],
    }


def _berth_configuration(plugins: Sequence[PluginProcess]) -> dict[str, Any]:
    required = {plugin.__name__ for plugin in _REQUIRED}
    listed = [
        {
            "name": one.name,
            **({"endpoint": one.endpoint} if one.sockets is None else {}),
            "required": one.name in required,
        }
        for one in plugins
    ]
    document = {"apiVersion": "config.berth.io/v1alpha1", "kind": "BerthConfiguration", "plugins": listed}
    folder = next((one.sockets for one in plugins if one.sockets is not None), None)
    return document if folder is None else {**document, "socketFolder": str(folder.absolute())}
