"""The life of a host as leader: connect, lead, drain, stop, abandon; then another host on the cluster."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest
from berth_bench.life.faulty_cluster import Fault, Faults
from berth_host.app import host as host_module
from berth_host.attach import host_attachments as attachments_module
from berth_host.errors.cluster import UnavailableError
from berth_host.errors.state import InvariantError
from berth_sdk.extension_points import Plugin
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.results import PermitResult
from berth_sdk.status import Status
from support.hosts import World, enabling, node, pod
from support.waiting import PATIENCE_S, until

AT_ONCE = Faults(turns=0, reorder=False)
WEB = ObjectRef(namespace="default", name="web")
ATTACHING = enabling(
    ["Away"],
    "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
    "plugins:\n- {name: Away, endpoint: 'unix:///nowhere/away.sock', points: {filter: {}}}\n",
)
"""A plugin in another process, which is not there."""


async def until_idle(world: World) -> None:
    while world.host.queue.has_ready or world.host.scheduler.in_cycle is not None:
        await asyncio.sleep(0)


class Holds(Plugin):
    """Pods called `held...` wait on Permit; counts Unreserve and PostBind."""

    unreserved: ClassVar[list[str]] = []
    told: ClassVar[list[str]] = []
    slow: ClassVar[asyncio.Event | None] = None

    def reserve(self, state: object, pod: Pod, node_name: str) -> Status:
        return Status.success()

    def unreserve(self, state: object, pod: Pod, node_name: str) -> None:
        self.unreserved.append(pod.name)

    def permit(self, state: object, pod: Pod, node_name: str) -> PermitResult | Status:
        return PermitResult.wait(600.0) if pod.name.startswith("held") else Status.success()

    async def post_bind(self, state: object, pod: Pod, node_name: str) -> None:
        if self.slow is not None:
            await self.slow.wait()
        self.told.append(pod.name)


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    Holds.unreserved.clear()
    Holds.told.clear()
    Holds.slow = None


# --- connect, then lead --------------------------------------------------------------------------------


async def test_connected_host_follows_the_cluster_and_schedules_nothing_until_it_leads() -> None:
    world = World([node("n0"), pod("web")])
    await world.host.connect()
    try:
        world.server.create(node("n1"))
        while world.host.cluster.undelivered_count:
            await asyncio.sleep(0)
        assert world.host.cache.node_count == 2
        assert not world.host.is_leading
        assert world.node_of("web") == ""
        before = world.host.snapshot.epoch
        await world.host.lead()
        await world.settle()
        assert world.node_of("web") == "n0"
        assert world.host.snapshot.epoch != before
    finally:
        await world.host.stop()


# --- drain ---------------------------------------------------------------------------------------------


async def test_drain_lets_bindings_end_sends_waiting_pods_back_and_pops_no_more() -> None:
    world = World([node("n0"), pod("web"), pod("held")], [Holds], faults=AT_ONCE)
    assert world.faulty is not None
    gate = world.faulty.gate("bind")
    async with world:
        await gate.arrived.wait()
        await world.until_waiting(1)
        draining = asyncio.ensure_future(world.host.drain(PATIENCE_S))
        await asyncio.sleep(0)
        world.server.create(pod("late"))
        # Unreserve runs in a thread.
        await until(lambda: (Holds.unreserved, world.host.cache.pod_count) == (["held"], 1))
        for _ in range(100):
            await asyncio.sleep(0)
        assert (draining.done(), world.host.cache.pod_count) == (False, 1)
        gate.open.set()
        assert await draining
        assert (world.node_of("web"), world.node_of("late")) == ("n0", "")
        assert Holds.told == ["web"]


@pytest.mark.slow
async def test_drain_is_bounded_and_reports_an_open_binding() -> None:
    world = World([node("n0"), pod("web")], faults=AT_ONCE)
    assert world.faulty is not None
    gate = world.faulty.gate("bind")
    async with world:
        await gate.arrived.wait()
        assert not await asyncio.wait_for(world.host.drain(0.1), PATIENCE_S)


async def test_pod_that_comes_to_permit_while_the_host_drains_does_not_wait() -> None:
    world = World([node("n0"), pod("held")], [Holds], faults=AT_ONCE)
    assert world.faulty is not None
    async with world:
        while not len(world.host.binding):
            await asyncio.sleep(0)
        assert await world.host.drain(PATIENCE_S)
        assert world.host.cache.pod_count == 0
        assert Holds.unreserved == ["held"]


# --- stop ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True], ids=["before it is done", "after it is done"])
async def test_stop_does_not_undo_a_binding_before_it_has_looked(after: bool) -> None:
    world = World([node("n0"), pod("web")], [Holds], faults=AT_ONCE)
    assert world.faulty is not None
    gate = world.faulty.gate("bind", after=after)
    async with world:
        await gate.arrived.wait()
        stopping = asyncio.ensure_future(world.host.stop())
        for _ in range(100):
            await asyncio.sleep(0)
        gate.open.set()
        await stopping
        assert world.node_of("web") == "n0"
        assert (Holds.unreserved, Holds.told) == ([], ["web"])


async def test_stop_leaves_a_binding_that_stays_unknown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "STOP_S", 0.05)
    world = World([node("n0"), pod("web")], [Holds], faults=AT_ONCE)
    assert world.faulty is not None
    with world.faulty.always("bind", Fault.TIME_OUT_AFTER), world.faulty.always("get", Fault.TIME_OUT_BEFORE):
        await world.host.start()
        while not world.faulty.done:
            await asyncio.sleep(0)
        await asyncio.wait_for(world.host.stop(), PATIENCE_S)
    assert Holds.unreserved == []
    assert len(world.host.binding) == 0
    assert world.node_of("web") == "n0"


async def test_stop_is_bounded_while_evictions_and_status_writes_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_module, "STOP_S", 0.05)
    low = pod("low", cpu="1", nodeName="n0")
    world = World(
        [node("n0", cpu="1"), low, pod("high", cpu="1", priority=9), pod("big", cpu="9")], faults=AT_ONCE
    )
    assert world.faulty is not None
    first = world.faulty.gate("patch")
    await world.host.start()
    await first.arrived.wait()
    world.faulty.gate("patch")
    await until_idle(world)
    assert world.host.status.pending_count
    await asyncio.wait_for(world.host.stop(), PATIENCE_S)
    assert len(world.host.evictions) == 0


async def test_post_bind_is_called_for_a_pod_that_is_deleted_during_its_binding() -> None:
    Holds.slow = asyncio.Event()
    async with World([node("n0"), pod("web")], [Holds]) as world:
        while world.host.binding.bound_count == 0:
            await asyncio.sleep(0)
        world.server.delete("pods", WEB)
        for _ in range(100):
            await asyncio.sleep(0)
        Holds.slow.set()
        await world.settle()
        assert (Holds.told, Holds.unreserved) == (["web"], [])
        assert world.host.cache.pod_count == 0


# --- abandon -------------------------------------------------------------------------------------------


async def test_row_12_host_that_lost_the_lead_posts_nothing_afterwards() -> None:
    objects = [node("n0", cpu="2"), *(pod(f"p{i}", cpu="1") for i in range(5)), pod("held")]
    world = World(objects, [Holds], faults=Faults(turns=5))
    assert world.faulty is not None
    await world.host.start()
    while not world.faulty.calls:
        await asyncio.sleep(0)
    abandoning = asyncio.ensure_future(world.host.abandon())
    await asyncio.sleep(0)
    version, events = world.server.store.next_version(), world.server.events.total_count
    await asyncio.wait_for(abandoning, PATIENCE_S)
    for _ in range(200):
        await asyncio.sleep(0)
    assert world.server.store.next_version() == version + 1
    assert world.server.events.total_count == events
    with pytest.raises(UnavailableError):
        await world.host.cluster.bind(WEB, "n0")


# --- the next one --------------------------------------------------------------------------------------


@pytest.mark.sampled(every=4)
@pytest.mark.slow
@pytest.mark.parametrize("turns", range(0, 60, 4))
async def test_row_11_host_killed_at_any_moment_leaves_nothing_that_the_next_one_stumbles_over(
    turns: int,
) -> None:
    objects = [node("n0", cpu="2"), node("n1", cpu="2"), *(pod(f"p{i}", cpu="1") for i in range(5))]
    first = World(objects, faults=Faults(turns=4), seed=turns)
    assert first.faulty is not None
    await first.host.start()
    for _ in range(turns):
        await asyncio.sleep(0)
    # -9: nothing is sent any more, and nothing is tidied up.
    first.faulty.cut()
    first.cluster.is_cut = False
    await first.faulty.stop()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)

    second = World()
    second.cluster.server = second.server = first.server
    async with second:
        await second.settle()
        nodes = [second.node_of(f"p{i}") for i in range(5)]
        assert sorted(nodes) == ["", "n0", "n0", "n1", "n1"]
        assert second.host.cache.assumed_count == 0
        assert second.everything_is_accounted_for()


# --- what breaks the host ------------------------------------------------------------------------------


async def test_cancelled_loop_ends_the_host() -> None:
    """It would go on to look well, and schedule nothing."""
    async with World([node("n0")]) as world:
        await world.settle()
        loop = world.host.loop_task
        assert loop is not None
        loop.cancel()
        async with asyncio.timeout(PATIENCE_S):
            error = await world.host.wait_failed()
        assert "was cancelled, and not by the host" in str(error)


async def test_invariant_that_breaks_while_copies_are_refreshed_ends_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attachments_module, "REFRESH_S", 0.01)
    world = World([node("n0")], configuration=ATTACHING)
    async with world:

        def update(cache: object) -> None:
            raise InvariantError("the snapshot is broken")

        monkeypatch.setattr(world.host.snapshot, "update", update)
        async with asyncio.timeout(PATIENCE_S):
            error = await world.host.wait_failed()
        assert str(error) == "the snapshot is broken"
        monkeypatch.undo()
