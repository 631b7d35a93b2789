"""A standby host that takes over first knows what the leader before wrote last; then it schedules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
from berth_bench.life.faulty_cluster import Faults
from berth_host.app import host as host_module
from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.status import SUCCESS, Status
from structlog.testing import capture_logs
from support.hosts import World, node, pod

AT_ONCE = Faults(turns=0, reorder=False)


class Notes:
    """A plugin that notes what it is asked, in order."""

    asked: ClassVar[list[str]] = []

    def reconcile(self, live: Any) -> None:
        self.asked.append("reconcile")

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.asked.append(f"reserve {pod.name}")
        return SUCCESS


@asynccontextmanager
async def behind() -> AsyncIterator[World]:
    """Yield a standby whose watch stands still since before the leader bound `web` to the only place."""
    Notes.asked.clear()
    world = World([node("n0", pods="1"), pod("web"), pod("next")], [Notes], faults=AT_ONCE)
    assert world.faulty is not None
    await world.host.connect(stands_by=True)
    world.faulty.stand_still()
    world.server.bind(ObjectRef(namespace="default", name="web"), "n0")
    try:
        yield world
    finally:
        world.faulty.behave()
        await world.host.stop()


async def test_standby_whose_watch_is_behind_waits_for_it_before_it_reconciles_and_schedules() -> None:
    async with behind() as world:
        asked_before = list(Notes.asked)
        leading = asyncio.create_task(world.host.lead(stood_by=True))
        await asyncio.sleep(0.05)
        assert (leading.done(), world.host.is_leading, Notes.asked) == (False, False, asked_before)
        assert world.faulty is not None
        world.faulty.revive()
        await leading
        # Known before the first cycle, and so before the list of live reservations was sent.
        assert world.host.objects.pod("default/web").node_name == "n0"  # type: ignore[union-attr]
        await world.settle()
        assert world.node_of("next") == ""
        assert not [call for call in Notes.asked if call.startswith("reserve")]


async def test_standby_that_stays_behind_says_so_and_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "CATCH_UP_S", 0.05)
    async with behind() as world:
        with capture_logs() as logs:
            await world.host.lead(stood_by=True)
        (said,) = (line for line in logs if line["event"] == "cluster.behind")
        assert (said["log_level"], said["resources"]) == ("warning", ["Pod"])
        assert world.host.is_leading


async def test_standby_that_is_not_behind_leads_at_once() -> None:
    async with behind() as world:
        assert world.faulty is not None
        world.faulty.revive()
        with capture_logs() as logs:
            await world.host.lead(stood_by=True)
        assert [line["event"] for line in logs if line["event"].startswith("cluster.")] == [
            "cluster.caught_up"
        ]
        await world.settle()
        assert world.node_of("next") == ""
