"""A shadow host beside a `World`, whose host is the real scheduler, on the same embedded server."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping
from typing import Any

from berth_host.app import Host, HostOptions
from berth_host.config.configuration import LoadedConfiguration
from berth_host.cycle.chooser import Chooser, SmallestName
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.shadow.host import ShadowHost
from berth_host.shadow.record import ShadowOutcome, ShadowRecord
from berth_sim.cluster.admitting import server_of_a_question
from berth_sim.cluster.cluster import MemoryCluster
from berth_sim.run.settle import NEVER_FLUSHED_S, settle
from support.hosts import World
from support.waiting import PATIENCE_S

READS = frozenset(
    {"start", "watch", "stop", "cut", "get", "list", "kept_event_count", "undelivered_count"}
    | {"answers_at_once", "server", "clock"}
)


class WriteLog(MemoryCluster):
    """A cluster port that notes its writes. `writes`: the names of the calls."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.writes: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name not in READS and name != "writes" and name != "is_cut":
            self.writes.append(name)
        return super().__getattribute__(name)


class Beside:
    """A shadow on the server of `world`. Use as an async context manager, in the block of the world.

    `plugins`: the classes of the shadow, by name. `configuration`: None: that of the world's host.
    """

    def __init__(
        self,
        world: World,
        configuration: LoadedConfiguration | None = None,
        plugins: Mapping[str, type] | None = None,
        *,
        chooser: Chooser | None = None,
        assumed_s: float = 30.0,
    ) -> None:
        self.world = world
        self.port = WriteLog(world.clock, world.server)
        self.metrics = SchedulerMetrics()
        self.record = ShadowRecord(world.clock, self.metrics.shadow, assumed_s)
        self.host: Host = ShadowHost(
            configuration or world.host.configuration,
            self.port,
            self.record,
            HostOptions(
                clock=world.clock,
                chooser=chooser or SmallestName(),
                plugins=plugins if plugins is not None else world.host.options.plugins,
                max_in_pool_s=NEVER_FLUSHED_S,
                metrics=self.metrics,
                admission=server_of_a_question,
            ),
        )

    async def __aenter__(self) -> Beside:
        await self.host.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.host.stop()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Run the loop until `holds`; fails after a minute, and after an error of the host."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self.host.check()
                await asyncio.sleep(0)

    async def counted(self, outcome: ShadowOutcome, count: int = 1) -> None:
        """Wait until so many decisions have the outcome."""
        await self.until(lambda: self.record.count(outcome) >= count)

    async def settle(self) -> None:
        """Run the shadow until nothing moves."""
        await settle(self.host)

    def differences(self) -> list[dict[str, Any]]:
        """Return the lines of the table, latest first."""
        return list(self.record.as_json()["differences"])


def stored(world: World) -> list[Any]:
    """Return a copy of the server's content."""
    return [copy.deepcopy(item.parsed) for item in world.server.store.everything()]
