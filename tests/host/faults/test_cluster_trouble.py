"""Calls to the cluster that fail, hang, or end without telling whether they took effect."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from berth_bench.life.faulty_cluster import Fault, Faults
from berth_host.cluster.port import WatchEvent
from berth_host.errors.state import InvariantError
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import Plugin
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import (
    NodeRejections,
    ObjectPatch,
    PatchAction,
    PatchOutcome,
    PatchResult,
    PostFilterResult,
    PreBindResult,
)
from berth_sdk.status import Status
from support.hosts import World, node, pod
from support.waiting import PATIENCE_S

AT_ONCE = Faults(turns=0, reorder=False)
WEB = ObjectRef(namespace="default", name="web")
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}},
}


def trouble(objects: Sequence[dict[str, Any]], plugins: Sequence[type] = ()) -> World:
    return World(objects, plugins, faults=AT_ONCE)


def binds(world: World) -> list[str]:
    """Return the pods whose Binding took effect."""
    assert world.faulty is not None
    return [key for call, key in world.faulty.done if call == "bind"]


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# --- a Binding whose outcome is unknown ---------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.TIME_OUT_AFTER, Fault.UNAVAILABLE_AFTER])
async def test_binding_that_took_effect_without_an_answer_counts_however_often_reading_fails(
    fault: Fault,
) -> None:
    world = trouble([node("n0", cpu="1"), pod("web", cpu="1"), pod("other", cpu="1", priority=-1)])
    assert world.faulty is not None
    world.faulty.script("bind", fault)
    world.faulty.script("get", *[Fault.UNAVAILABLE_BEFORE] * 8)
    async with world:
        await world.settle()
        assert (world.node_of("web"), world.node_of("other")) == ("n0", "")
        assert binds(world) == ["default/web"]
        assert world.host.binding.bound_count == 1
        # 0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 5 + 5, and not a busy loop.
        assert world.clock.monotonic_s() == pytest.approx(16.3)
        assert world.everything_is_accounted_for()


async def test_pod_stays_assumed_until_its_binding_is_known() -> None:
    world = trouble([node("n0", cpu="1"), pod("web", cpu="1")])
    assert world.faulty is not None
    async with world:
        faulty = world.faulty
        with faulty.always("bind", Fault.TIME_OUT_AFTER), faulty.always("get", Fault.TIME_OUT_BEFORE):
            faulty.die()  # the watch does not tell either
            faulty.revive()
            for _ in range(20):
                await turns()
                world.clock.advance(1)
            bound = world.pod("web")
            assert bound is not None
            assert world.host.cache.pod_count == 1
            assert len(world.host.binding) == 1
        await world.settle()
        assert world.host.binding.bound_count == 1


@pytest.mark.parametrize(
    "fault", [Fault.TIME_OUT_BEFORE, Fault.UNAVAILABLE_BEFORE, Fault.TOO_MANY, Fault.CONFLICT, Fault.RAISES]
)
async def test_binding_that_did_not_happen_is_undone_and_tried_again(fault: Fault) -> None:
    world = trouble([node("n0"), pod("web")])
    assert world.faulty is not None
    world.faulty.script("bind", fault)
    async with world:
        await world.settle()
        assert world.node_of("web") == "n0"
        assert binds(world) == ["default/web"]
        found = world.host.diagnoses.find("default/web")
        assert found is not None
        assert found.attempt == 2
        assert world.host.cache.assumed_count == 0


@pytest.mark.slow
async def test_pod_that_another_client_bound_is_left_on_its_node() -> None:
    world = trouble([node("n0"), node("n1"), pod("web")])
    assert world.faulty is not None
    gate = world.faulty.gate("bind")
    async with world:
        await gate.arrived.wait()
        world.server.bind(WEB, "n1")
        gate.open.set()
        await world.settle()
        assert world.node_of("web") == "n1"
        assert binds(world) == []
        assert world.everything_is_accounted_for()
        on = {name: world.host.cache.node_info(name) for name in ("n0", "n1")}
        assert {name: 0 if info is None else len(info.pods) for name, info in on.items()} == {
            "n0": 0,
            "n1": 1,
        }


async def test_pod_deleted_while_its_binding_is_on_its_way_leaves_nothing() -> None:
    world = trouble([node("n0"), pod("web")])
    assert world.faulty is not None
    gate = world.faulty.gate("bind", after=True)
    async with world:
        await gate.arrived.wait()
        world.server.delete("pods", WEB)
        await turns()
        gate.open.set()
        await world.settle()
        assert world.host.cache.pod_count == 0
        assert world.everything_is_accounted_for()


# --- nothing a call raises ends the loop or loses a pod -----------------------------------------------


class Annotates(Plugin):
    """One patch of the pod at PreBind; keeps the outcomes."""

    outcomes: ClassVar[list[PatchOutcome]] = []
    expected = ""

    def pre_bind(
        self, state: object, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult:
        self.outcomes.extend(item.outcome for item in patched)
        if patched:
            applied = all(item.outcome is PatchOutcome.APPLIED for item in patched)
            return PreBindResult(Status.success() if applied else Status.error("not applied"))
        patch = {"metadata": {"annotations": {"example.com/gpu": "3"}}}
        mine = ObjectPatch(
            resource="pods", ref=pod.ref, merge_patch=patch, expected_resource_version=self.expected
        )
        return PreBindResult(Status.success(), patches=(mine,))


class Expects(Annotates):
    expected = "1000000"


@pytest.fixture(autouse=True)
def no_outcomes() -> None:
    Annotates.outcomes.clear()


@pytest.mark.parametrize(
    ("patch", "reads", "want"),
    [
        pytest.param(Fault.TIME_OUT_AFTER, [], PatchOutcome.APPLIED, id="done, and read back"),
        pytest.param(
            Fault.TIME_OUT_AFTER, [Fault.TIME_OUT_BEFORE], PatchOutcome.APPLIED, id="read at the second try"
        ),
        pytest.param(Fault.TIME_OUT_BEFORE, [], PatchOutcome.CONFLICT, id="not done: as it is now"),
        pytest.param(
            Fault.UNAVAILABLE_AFTER, [Fault.UNAVAILABLE_BEFORE] * 4, PatchOutcome.UNKNOWN, id="nobody knows"
        ),
        pytest.param(Fault.CONFLICT, [Fault.FORBIDDEN], PatchOutcome.UNKNOWN, id="and cannot be read"),
        pytest.param(Fault.FORBIDDEN, [], PatchOutcome.REFUSED, id="refused"),
    ],
)
async def test_patch_without_an_answer_is_judged_by_the_object(
    patch: Fault, reads: list[Fault], want: PatchOutcome
) -> None:
    world = trouble([node("n0"), pod("web")], [Annotates])
    assert world.faulty is not None
    world.faulty.script("patch", Fault.NONE, patch)  # the first one nominates
    world.faulty.script("get", *reads)
    async with world:
        await world.settle()
        assert Annotates.outcomes[0] is want
        assert world.node_of("web") == "n0"
        assert world.host.cache.assumed_count == 0
        assert world.everything_is_accounted_for()


async def test_conflict_that_cannot_be_read_back_loses_no_pod() -> None:
    world = trouble([node("n0"), pod("web")], [Expects])
    assert world.faulty is not None
    world.faulty.script("get", *[Fault.UNAVAILABLE_BEFORE] * 4)
    async with world:
        await world.settle()
        assert Annotates.outcomes[:2] == [PatchOutcome.UNKNOWN, PatchOutcome.CONFLICT]
        assert world.node_of("web") == ""
        assert world.host.cache.pod_count == 0
        assert world.everything_is_accounted_for()


@pytest.mark.sampled(every=4)
@pytest.mark.slow
@pytest.mark.parametrize("call", ["patch", "bind", "get"])
async def test_unexpected_error_of_a_cluster_call_fails_only_the_attempt(call: str) -> None:
    world = trouble([node("n0"), pod("web"), pod("other")], [Annotates])
    assert world.faulty is not None
    world.faulty.script(call, Fault.RAISES)
    world.faulty.script("bind", Fault.TIME_OUT_AFTER)
    async with world:
        await world.settle()
        assert (world.node_of("web"), world.node_of("other")) == ("n0", "n0")
        assert world.everything_is_accounted_for()


class FreesService(Plugin):
    """No node will do until the service was changed."""

    needs: Sequence[Need] = (Need.nodes(), Need.objects("services"))
    events: Sequence[EventInterest] | None = (EventInterest("*"),)

    def filter_nodes(self, state: object, pod: Pod, nodes: Any) -> Status:
        service = self.handle.objects("services").get("web", "default")
        free = pod.name != "web" or service is None or service.get("spec.selector") == {"app": "free"}
        return Status.success() if free else Status.unschedulable("in use")

    def post_filter(self, state: object, pod: Pod, rejections: NodeRejections) -> PostFilterResult:
        patch = ObjectPatch(resource="services", ref=WEB, merge_patch={"spec": {"selector": {"app": "free"}}})
        return PostFilterResult(Status.unschedulable("freed"), patches=(patch,))


async def test_change_that_post_filter_asks_for_delays_no_other_pod() -> None:
    world = trouble([SERVICE, node("n0"), pod("web", priority=9), pod("other")], [FreesService])
    assert world.faulty is not None
    gate = world.faulty.gate("patch")
    async with world:
        await gate.arrived.wait()
        for _ in range(200):
            await asyncio.sleep(0)
        assert world.node_of("other") == "n0"
        gate.open.set()
        await world.settle()
        assert world.node_of("web") == "n0"


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault.FORBIDDEN, Fault.RAISES, Fault.UNAVAILABLE_BEFORE])
async def test_failed_change_of_post_filter_is_reported_and_the_pod_requeued(fault: Fault) -> None:
    world = trouble([SERVICE, node("n0"), pod("web", priority=9)], [FreesService])
    assert world.faulty is not None
    world.faulty.script("patch", fault)
    async with world:
        await world.settle()
        for _ in range(3):
            world.clock.advance(10)
            await world.settle()
        assert world.node_of("web") == "n0"
        assert world.everything_is_accounted_for()


async def test_deletion_of_a_missing_object_counts_as_done() -> None:
    class Clears(Plugin):
        needs: Sequence[Need] = (Need.nodes(), Need.objects("services"))

        def pre_bind(
            self, state: object, pod: Pod, node_name: str, patched: Sequence[PatchResult]
        ) -> PreBindResult:
            Annotates.outcomes.extend(item.outcome for item in patched)
            if patched:
                return PreBindResult(Status.success())
            patch = ObjectPatch(resource="services", ref=WEB, merge_patch={}, action=PatchAction.DELETE)
            return PreBindResult(Status.success(), patches=(patch,))

    world = trouble([SERVICE, node("n0"), pod("web")], [Clears])
    assert world.faulty is not None
    world.faulty.script("delete", Fault.TIME_OUT_AFTER)
    async with world:
        await world.settle()
        assert Annotates.outcomes == [PatchOutcome.APPLIED]
        assert world.node_of("web") == "n0"


async def test_eviction_that_the_adapter_cancels_leaves_its_pod_to_be_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    low = pod("low", cpu="1", nodeName="n0")
    async with trouble([node("n0", cpu="1"), low, pod("high", cpu="1", priority=9)]) as world:
        assert world.faulty is not None
        delete, refs = world.faulty.delete, []

        async def cancelled_once(resource: str, ref: ObjectRef, *, grace_period_s: int | None = None) -> None:
            refs.append(ref)
            if len(refs) == 1:
                raise asyncio.CancelledError
            await delete(resource, ref, grace_period_s=grace_period_s)

        monkeypatch.setattr(world.faulty, "delete", cancelled_once)
        await world.settle()
        assert world.node_of("high") == "n0"
        assert world.everything_is_accounted_for()


# --- a broken invariant ends the host, and says so ----------------------------------------------------


async def test_invariant_that_breaks_in_the_feed_ends_the_host() -> None:
    async with World([node("n0"), node("n1"), pod("web", nodeName="n0")]) as world:
        await world.settle()
        seen = world.pod("web")
        assert seen is not None
        moved = dict(seen.parsed) | {"spec": {**seen.parsed["spec"], "nodeName": "n1"}}
        moved["metadata"] = {**seen.parsed["metadata"], "resourceVersion": "999999"}
        world.host.feed.handle(WatchEvent("Pod", seen, KubeObject.of(moved)))
        error = await asyncio.wait_for(world.host.wait_failed(), PATIENCE_S)
        assert isinstance(error, InvariantError)
        with pytest.raises(InvariantError, match="is on 'n0' in the cache"):
            world.host.check()


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize("where", ["cycle", "binding", "status", "loop"])
async def test_invariant_that_breaks_while_scheduling_ends_the_host(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World([node("n0")]) as world:

        def breaks(*_: object, **__: object) -> None:
            raise InvariantError("two and two are five")

        if where == "cycle":
            monkeypatch.setattr(world.host.cache, "assume", breaks)
        elif where == "binding":
            monkeypatch.setattr(world.cluster, "bind", breaks)
        elif where == "status":
            monkeypatch.setattr(world.cluster, "patch", breaks)
        else:
            monkeypatch.setattr(asyncio.get_running_loop(), "default_exception_handler", lambda _: None)
            asyncio.get_running_loop().call_soon(breaks)
        world.server.create(pod("web", cpu="100" if where == "status" else "1"))
        error = await asyncio.wait_for(world.host.wait_failed(), PATIENCE_S)
        assert str(error) == "two and two are five"


# --- another client acts at any moment of the cycle ---------------------------------------------------


class StopsEverywhere(Plugin):
    """Gives way to others at every point, several times."""

    async def _pause(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def pre_filter(self, state: object, pod: Pod, nodes: object) -> Status:
        await self._pause()
        return Status.success()

    async def filter_nodes(self, state: object, pod: Pod, nodes: object) -> Status:
        await self._pause()
        return Status.success()

    async def reserve(self, state: object, pod: Pod, node_name: str) -> Status:
        await self._pause()
        return Status.success()

    async def unreserve(self, state: object, pod: Pod, node_name: str) -> None:
        await self._pause()

    async def permit(self, state: object, pod: Pod, node_name: str) -> Status:
        await self._pause()
        return Status.success()

    async def pre_bind(
        self, state: object, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult:
        await self._pause()
        return PreBindResult(Status.success())

    async def post_bind(self, state: object, pod: Pod, node_name: str) -> None:
        await self._pause()


@pytest.mark.slow
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("act", ["delete", "update", "bind", "recreate", "terminate"])
async def test_pod_is_in_its_right_place_whoever_acts_on_it_at_whatever_moment(act: str, every: int) -> None:
    for moment in range(0, 60, every):
        objects = [node("n0", cpu="1"), node("n1", cpu="1"), pod("web", cpu="1")]
        if act == "terminate":
            objects[-1]["metadata"]["finalizers"] = ["example.com/stops-slowly"]
        world = World(objects, [StopsEverywhere], faults=Faults(turns=2), seed=moment)
        async with world:
            await turns(moment)
            before = world.node_of("web")
            if act == "bind":
                if not before:
                    world.server.bind(WEB, "n1")
            elif act == "update":
                world.server.patch("pods", WEB, {"metadata": {"labels": {"x": "1"}}})
            else:
                world.server.delete("pods", WEB)
                if act == "recreate":
                    world.server.create(pod("web", cpu="1"))
            await world.settle()
            if act == "terminate":
                await _finish_terminating(world)
            world.host.check()
            want = {"delete": {""}, "terminate": {""}, "bind": {before or "n1"}}.get(act, {"n0", "n1"})
            assert world.node_of("web") in want
            assert world.everything_is_accounted_for()
            assert world.host.cache.assumed_count == 0
            # All the room that is left can be had.
            for i in range(2):
                world.server.create(pod(f"next-{i}", cpu="1"))
            await world.settle()
            placed = [world.node_of(name) for name in ("web", "next-0", "next-1")]
            assert sorted(filter(None, placed)) == ["n0", "n1"]


async def _finish_terminating(world: World) -> None:
    assert world.host.cache.assumed_count == 0
    if world.pod("web") is not None:
        world.server.patch("pods", WEB, {"metadata": {"finalizers": None}})
    await world.settle()
