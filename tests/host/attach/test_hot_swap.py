"""Two instances of one plugin, whose cycles overlap: each cycle stays with its own instance."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_host.attach import attachment, probing, retrying
from berth_host.attach.configured_places import Place
from berth_host.attach.interfaces import LiveCycle
from berth_host.attach.retrying import attach_backoff
from berth_host.attach.state import State
from berth_host.attempt.cycle import Cycle, CycleEnd
from berth_host.config.berth.points import POINT_RULES
from berth_host.model.backoff import Backoff
from berth_host.rpc.breaker import IN_A_ROW
from berth_host.rpc.call_rules import PointPolicy
from berth_host.rpc.failure_record import VIOLATIONS
from berth_sdk.plugin.v1 import identity_pb2, state_pb2
from berth_sdk.results import QueuedPod
from berth_sdk.testing.builders import make_pod
from support.attached import AttachedHost, HalfTheBound, attached_host, wanted
from support.scripted_plugin import ScriptedPlugin, descriptor, refuse
from support.waiting import PATIENCE_S, until

ALL = ("FILTER", "RESERVE", "PERMIT", "PRE_BIND", "POST_BIND")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "PROBE_PERIOD_S", 0.05)
    monkeypatch.setattr(probing, "TICK_S", 0.05)


def versions(old: tuple[str, ...] = ALL, new: tuple[str, ...] = ALL) -> tuple[ScriptedPlugin, ScriptedPlugin]:
    """Two versions of Demo, with the points that each declares; neither is started yet."""
    first, second = (ScriptedPlugin(descriptor("Demo", *points)) for points in (old, new))
    first.instance_id, second.instance_id = "old", "new"
    second.started_at_s = first.started_at_s + 10
    return first, second


@dataclass
class Folder:
    """A host that waits for Demo in a folder, which is scanned at once."""

    host: AttachedHost
    path: Path
    stack: AsyncExitStack

    async def add(self, plugin: ScriptedPlugin) -> None:
        """Start an instance; return when it is active or on standby."""
        await self.stack.enter_async_context(plugin.serving(self.path / f"{plugin.instance_id}.sock"))
        await until(lambda: plugin.instance_id in [offer.instance_id for offer in self.attached.offers])

    @property
    def attached(self) -> Any:
        return self.host.attachments.plugins["Demo"]

    @property
    def asked(self) -> str:
        return "" if self.attached.active is None else self.attached.active.instance_id

    async def began(self) -> Cycle:
        """Return a cycle that has called Filter of the active instance."""
        cycle = self.host.cycle()
        await self.host.client.filter(cycle, self.host.nodes)
        return cycle


@asynccontextmanager
async def folder(tmp_path: Path, *names: str, **options: Any) -> AsyncIterator[Folder]:
    path = tmp_path / "sockets"
    path.mkdir()
    plugins = tuple(wanted(name) for name in names or ("Demo",))
    place = Place(endpoint=f"unix://{path}", is_open=True, plugins=plugins)
    async with AsyncExitStack() as stack, attached_host(place, patience_s=0.0, **options) as host:
        yield Folder(host, path, stack)


def calls(plugin: ScriptedPlugin) -> list[str]:
    """Return the calls about cycles that a plugin got."""
    of_cycles = ("Filter", "Reserve", "Permit", "PreBind", "PostBind", "Unreserve", "EndCycles")
    return [rpc for rpc, _ in plugin.asked if rpc in of_cycles]


def ended(plugin: ScriptedPlugin) -> set[str]:
    """Return the cycles whose end the plugin was told."""
    return {end.cycle_id for request in plugin.requests("EndCycles") for end in request.ended}


async def test_cycle_goes_on_at_the_points_of_its_own_instance_where_the_newer_one_lacks_them(
    tmp_path: Path,
) -> None:
    old, new = versions(new=("FILTER",))
    async with folder(tmp_path) as found:
        await found.add(old)
        cycle = await found.began()
        client = found.host.client
        assert (await client.reserve(cycle, "n0")).is_success
        await found.add(new)
        assert found.asked == "new"
        assert (await client.permit(cycle, "n0")).status.is_success
        assert (await client.pre_bind(cycle, "n0")).status.is_success
        await client.unreserve(cycle, "n0", "the binding failed")
        await until(lambda: calls(old) == ["Filter", "Reserve", "Permit", "PreBind", "Unreserve"])
        assert calls(new) == []
        assert found.attached.outbox.pending_unreserves == 0


async def test_cycle_is_not_asked_at_points_that_only_the_newer_instance_has(tmp_path: Path) -> None:
    old, new = versions(old=("FILTER",))
    async with folder(tmp_path) as found:
        await found.add(old)
        cycle = await found.began()
        await found.add(new)
        client = found.host.client
        assert (await client.reserve(cycle, "n0")).is_success
        assert (await client.permit(cycle, "n0")).status.is_success
        assert calls(old) == ["Filter"]
        assert client.stats.violations == 0
        later = await found.began()
        assert (await client.reserve(later, "n0")).is_success
        assert calls(new) == ["Filter", "Reserve"]


async def test_unreserve_and_post_bind_go_to_both_instances(tmp_path: Path) -> None:
    """The active instance was told of the reservations by Reconcile, and the older one made them."""
    old, new = versions()
    async with folder(tmp_path) as found:
        await found.add(old)
        undone, bound = await found.began(), await found.began()
        client = found.host.client
        for cycle in (undone, bound):
            assert (await client.reserve(cycle, "n0")).is_success
        await found.add(new)
        await client.unreserve(undone, "n0", "the binding failed")
        client.end_cycle(undone, CycleEnd.ABORTED)
        await client.post_bind(bound, "n0")
        client.end_cycle(bound, CycleEnd.BOUND)
        both = {undone.cycle_id, bound.cycle_id}
        await until(lambda: ended(old) == ended(new) == both)
        for plugin in (old, new):
            (unreserve,), (post_bind,) = plugin.requests("Unreserve"), plugin.requests("PostBind")
            assert [item.cycle_id for item in unreserve.items] == [undone.cycle_id]
            assert [item.cycle_id for item in post_bind.items] == [bound.cycle_id]
        assert not [rpc for rpc in calls(new) if rpc not in ("Unreserve", "PostBind", "EndCycles")]


async def test_an_instance_that_is_not_ready_may_still_undo_its_cycles(tmp_path: Path) -> None:
    old, _ = versions()
    async with folder(tmp_path) as found:
        await found.add(old)
        cycle = await found.began()
        client = found.host.client
        assert (await client.reserve(cycle, "n0")).is_success
        old.on("Probe", lambda _: identity_pb2.ProbeResponse(ready=False, instance_id="old"))
        await until(lambda: not client.available)
        await client.unreserve(cycle, "n0", "the binding failed")
        await until(lambda: len(old.requests("Unreserve")) == 1)


async def test_the_operators_deadline_holds_for_what_is_told_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An Unreserve that takes longer than the default deadline would never succeed."""
    old, _ = versions()
    points = {"unreserve": PointPolicy(deadline_s=0.05)}
    by_default = replace(POINT_RULES["unreserve"], deadline_ms=10**9)
    monkeypatch.setitem(POINT_RULES, "unreserve", by_default)
    async with folder(tmp_path, points=points) as found:
        found.attached.wanted = replace(found.attached.wanted, points=points)
        await found.add(old)
        cycle = await found.began()
        await found.host.client.reserve(cycle, "n0")
        cut = asyncio.Event()

        async def hold(_request: Any) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cut.set()

        old.once("Unreserve", hold)
        await found.host.client.unreserve(cycle, "n0", "the binding failed")
        async with asyncio.timeout(PATIENCE_S):
            await cut.wait()


async def test_reconcile_does_not_overtake_a_running_reserve(tmp_path: Path) -> None:
    """The list would lack the reservation, and the instance would release what it has just reserved."""
    old, new = versions()
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def reserve(request: Any) -> Any:
        arrived.set()
        await go_on.wait()
        return new.unscripted("Reserve")(request)

    async with folder(tmp_path) as found:
        async with old.serving(found.path / "old.sock"):
            await until(lambda: found.asked == "old")
            await found.add(new)
            assert found.asked == "new"
            cycle = await found.began()
            new.once("Reserve", reserve)
            reserving = asyncio.create_task(found.host.client.reserve(cycle, "n0"))
            await arrived.wait()
            new.asked.clear()
        # The end of the other instance is what makes the host ask what this one knows.
        await until(lambda: [offer.instance_id for offer in found.attached.offers] == ["new"])
        late = await found.began()
        assert not new.requests("Reconcile")
        waiting = asyncio.create_task(found.host.client.reserve(late, "n1"))
        go_on.set()
        assert (await reserving).is_success
        assert (await waiting).is_success
        await until(lambda: bool(new.requests("Reconcile")))
        assert [rpc for rpc, _ in new.asked if rpc in ("Reconcile", "Reserve")] == ["Reconcile", "Reserve"]


async def test_instance_attached_while_another_one_ended_is_reconciled_again(tmp_path: Path) -> None:
    """Its first Reconcile came while the cycles belonged to the other instance."""
    old, _ = versions()
    new = ScriptedPlugin(descriptor("Demo", *ALL), descriptor("Other", *ALL))
    new.instance_id = "new"
    async with folder(tmp_path, "Demo", "Other") as found:
        async with old.serving(found.path / "old.sock"):
            await until(lambda: found.asked == "old")

            async def reconcile(request: Any) -> None:
                if request.plugin == "Other":
                    await old.stop()
                    await until(lambda: found.asked == "")

            new.on("Reconcile", reconcile)
            await found.add(new)
        assert found.asked == "new"
        await until(lambda: len(new.requests("Reconcile")) == 3)
        assert [one.plugin for one in new.requests("Reconcile")] == ["Demo", "Other", "Demo"]


async def test_an_answer_outside_of_cycles_is_the_fault_of_the_instance_that_gave_it(tmp_path: Path) -> None:
    old, new = versions(old=("PRE_ENQUEUE",), new=("PRE_ENQUEUE",))
    go_on = asyncio.Event()

    async def of_no_pods(_request: Any) -> None:
        await go_on.wait()

    old.on("PreEnqueue", of_no_pods)
    pods = [QueuedPod(pod=make_pod("a"))]
    async with folder(tmp_path) as found:
        await found.add(old)
        asking = [asyncio.create_task(found.host.client.pre_enqueue(pods)) for _ in range(VIOLATIONS)]
        await until(lambda: len(old.requests("PreEnqueue")) == VIOLATIONS)
        await found.add(new)
        go_on.set()
        await asyncio.gather(*asking)
        states = {condition.instance_id: condition.state for condition in found.host.attachments.conditions()}
        assert (states, found.asked) == ({"old": State.QUARANTINED, "new": State.ACTIVE}, "new")


def states_of(found: Folder) -> dict[str, State]:
    return {
        Path(one.place.removeprefix("unix://")).stem: one.state for one in found.host.attachments.conditions()
    }


async def test_older_instance_is_drained_once_the_newer_one_was_well_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = versions()
    async with folder(tmp_path) as found:
        await found.add(old)
        await found.add(new)
        await until(lambda: len(old.requests("Probe")) > 3)  # a minute is not over
        assert states_of(found) == {"old": State.STANDBY, "new": State.ACTIVE}
        monkeypatch.setattr(attachment, "HEALTHY_S", 0.0)
        await until(lambda: states_of(found) == {"old": State.DRAINED, "new": State.ACTIVE})
        (drain,) = old.requests("Drain")
        assert (drain.final, "newer instance" in drain.reason) == (False, True)
        probes = len(old.requests("Probe"))
        assert (await found.began()).part("Demo").instance.descriptor.name == "Demo"
        assert calls(new) == ["Filter"]
        assert len(old.requests("Probe")) == probes


async def test_drained_instance_is_attached_again_when_the_newer_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachment, "HEALTHY_S", 0.0)
    monkeypatch.setattr(retrying, "BACKOFF_LOOK_S", 0.02)
    monkeypatch.setattr(attachment, "BACKOFF_LOOK_S", 0.02)
    old, new = versions()
    async with folder(tmp_path) as found:
        await found.add(old)
        await found.add(new)
        await until(lambda: states_of(found)["old"] is State.DRAINED)
        await new.stop()
        await until(lambda: found.asked == "old")
        await found.began()
        assert calls(old) == ["Filter"]


async def test_older_instance_is_not_drained_while_a_cycle_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachment, "HEALTHY_S", 0.0)
    old, new = versions()
    async with folder(tmp_path) as found:
        await found.add(old)
        cycle = await found.began()
        assert (await found.host.client.reserve(cycle, "n0")).is_success
        found.host.live_cycles["Demo"] = [LiveCycle(cycle)]
        await found.add(new)
        probes = len(old.requests("Probe"))
        await until(lambda: len(old.requests("Probe")) > probes + 3)
        assert states_of(found)["old"] is State.STANDBY
        found.host.live_cycles.clear()
        await until(lambda: states_of(found)["old"] is State.DRAINED)


async def test_new_instance_gets_no_reservation_whose_post_bind_the_older_one_received(
    tmp_path: Path,
) -> None:
    old, new = versions()
    async with folder(tmp_path) as found:
        await found.add(old)
        bound, reserved = await found.began(), await found.began()
        for cycle in (bound, reserved):
            assert (await found.host.client.reserve(cycle, "n0")).is_success
        # The attempt of the bound pod has not ended yet.
        found.host.live_cycles["Demo"] = [LiveCycle(bound), LiveCycle(reserved)]
        await found.host.client.post_bind(bound, "n0")
        await until(lambda: found.attached.outbox.was_post_bound(bound.cycle_id))
        await found.add(new)
        (request,) = new.requests("Reconcile")
        assert [item.cycle_id for item in request.live] == [reserved.cycle_id]
        found.host.live_cycles.clear()


async def test_stop_while_an_instance_is_drained_for_a_newer_one_ends_with_the_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachment, "HEALTHY_S", 0.0)
    old, new = versions()
    held, go_on = asyncio.Event(), asyncio.Event()

    async def hold(request: Any) -> Any:
        held.set()
        await go_on.wait()
        return old.unscripted("Drain")(request)

    old.on("Drain", hold)
    async with folder(tmp_path) as found:
        await found.add(old)
        await found.add(new)
        async with asyncio.timeout(PATIENCE_S):
            await held.wait()
        (one,) = [one for one in found.host.attachments.places if one.place.endpoint.endswith("old.sock")]
        stopping = asyncio.create_task(one.stop())
        await asyncio.sleep(0)
        go_on.set()
        # The newer instance is well, so that the older one would rest until `stop` gives up.
        async with asyncio.timeout(attachment.DRAIN_GRACE_S):
            await stopping
        assert one.state is State.CLOSED


async def test_pods_beside_a_trial_call_go_to_the_instance_that_is_well(tmp_path: Path) -> None:
    """One cycle at a time tries the newer instance; no other one gets the failure policy."""
    old, new = versions()
    async with folder(tmp_path) as found:
        await found.add(old)
        await found.add(new)
        client = found.host.client
        new.on("PreBind", refuse(grpc.StatusCode.INTERNAL))
        for _ in range(IN_A_ROW):
            cycle = await found.began()
            assert not (await client.pre_bind(cycle, "n0")).status.is_success
        assert found.asked == "old"
        held, go_on = asyncio.Event(), asyncio.Event()

        async def hold(request: Any) -> Any:
            held.set()
            await go_on.wait()
            return new.unscripted("PreBind")(request)

        new.on("PreBind", hold)
        await until(lambda: found.attached.trial is not None)
        trial = await found.began()
        trying = asyncio.create_task(client.pre_bind(trial, "n0"))
        await held.wait()
        for _ in range(3):
            beside = await found.began()
            assert (await client.pre_bind(beside, "n0")).status.is_success
            client.end_cycle(beside, CycleEnd.BOUND)
        assert found.asked == "old"
        go_on.set()
        assert (await trying).status.is_success
        client.end_cycle(trial, CycleEnd.BOUND)
        assert found.asked == "new"
        assert client.stats.of("PreBind").failures == {"raised": IN_A_ROW}


async def test_trial_goes_to_the_next_cycle_when_a_cycle_ends_before_the_point(tmp_path: Path) -> None:
    old, new = versions()
    async with folder(tmp_path) as found:
        await found.add(old)
        await found.add(new)
        client = found.host.client
        new.on("PreBind", refuse(grpc.StatusCode.INTERNAL))
        for _ in range(IN_A_ROW):
            await client.pre_bind(await found.began(), "n0")
        await until(lambda: found.attached.trial is not None)
        new.on("PreBind", new.unscripted("PreBind"))
        first = await found.began()
        await found.began()
        assert len(new.requests("Filter")) - len(old.requests("Filter")) == IN_A_ROW
        client.end_cycle(first, CycleEnd.UNSCHEDULABLE)
        third = await found.began()
        assert (await client.pre_bind(third, "n0")).status.is_success
        assert found.asked == "new"


async def test_no_instance_takes_the_place_of_another_when_the_host_stops(tmp_path: Path) -> None:
    old, new = versions()
    async with folder(tmp_path) as found:
        await found.add(old)
        await found.add(new)
        await until(lambda: found.asked == "new")
        witness = found.host.witness
        witness.swaps.clear()
        await found.host.attachments.stop()
        assert witness.swaps == []
        assert [len(plugin.requests("Drain")) for plugin in (old, new)] == [1, 1]
        assert [len(plugin.requests("Reconcile")) for plugin in (old, new)] == [1, 1]


async def test_newest_of_three_is_asked_in_whatever_order_they_come(tmp_path: Path) -> None:
    old, new = versions()
    newest = ScriptedPlugin(descriptor("Demo", *ALL))
    newest.instance_id, newest.started_at_s = "newest", new.started_at_s + 10
    async with folder(tmp_path) as found:
        for plugin in (newest, old, new):
            await found.add(plugin)
            assert found.asked == "newest"
        await newest.stop()
        await until(lambda: found.asked == "new")
        states = {condition.instance_id: condition.state for condition in found.host.attachments.conditions()}
        assert states["old"] is State.STANDBY
        await new.stop()
        await until(lambda: found.asked == "old")
        assert [(swap.instance_id, swap.falls_back) for swap in found.host.witness.swaps] == [
            ("new", True),
            ("old", True),
        ]


async def test_cycles_of_an_instance_that_ended_are_the_next_ones_if_it_knows_them(tmp_path: Path) -> None:
    old, new = versions()
    async with folder(tmp_path) as found:
        await found.add(old)
        async with new.serving(found.path / "new.sock"):
            await until(lambda: found.asked == "new")
            old.on("Reconcile", lambda _: state_pb2.ReconcileResponse())
        await until(lambda: found.asked == "old" and len(old.requests("Reconcile")) == 2)


async def test_next_process_at_a_socket_of_the_folder_waits_for_no_backoff_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems use the inode of a removed file again; the new socket is then the same place."""

    def failed_often() -> Backoff:
        backoff = attach_backoff(HalfTheBound())
        backoff.failures = 6
        return backoff

    monkeypatch.setattr(attachment, "attach_backoff", failed_often)
    broken, mended = versions()
    broken.on("Handshake", refuse(grpc.StatusCode.INTERNAL))
    async with folder(tmp_path) as found:
        async with broken.serving(found.path / "a.sock"):
            await until(lambda: State.BACKOFF in [one.state for one in found.host.attachments.conditions()])
        async with mended.serving(found.path / "a.sock"), asyncio.timeout(PATIENCE_S):
            await until(lambda: found.asked == "new")


async def test_replica_stands_by_for_a_plugin_as_long_as_one_instance_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachment, "STANDBY_LOOK_S", 0.02)
    old, new = versions()
    path = tmp_path / "sockets"
    path.mkdir()
    host = AttachedHost([Place(endpoint=f"unix://{path}", is_open=True, plugins=(wanted("Demo"),))])
    async with old.serving(path / "old.sock"), new.serving(path / "new.sock"):
        try:
            await host.attachments.start(stands_by=True)
            await until(lambda: len(host.attachments.plugins["Demo"].stood_by_at) == 2)
            await new.stop()
            await until(lambda: State.BACKOFF in [one.state for one in host.attachments.conditions()])
            attached = host.attachments.plugins["Demo"]
            assert (attached.stands_by, attached.absence) == (True, "is not attached: this host stands by")
            await old.stop()
            await until(lambda: not attached.stands_by)
        finally:
            await host.attachments.stop()
