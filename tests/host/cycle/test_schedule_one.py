"""One attempt for one popped pod: the state of the pod at the end of each way through it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from berth_host.attempt.cycle import POD_DELETED
from berth_host.explain.diagnosis import Outcome
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import Plugin
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import (
    NodeRejections,
    PostFilterResult,
)
from berth_sdk.status import Status
from berth_sdk.tables import NodeView
from support.hosts import World, node, pod
from support.ledger import Ledger
from support.raw_http import answer, raw_server


@pytest.fixture(autouse=True)
def empty_ledger() -> None:
    Ledger.empty()


class Cancels(Plugin):
    """Lets a cancellation escape, as a library that it uses might; once per pod."""

    seen: ClassVar[set[str]] = set()

    async def filter(self, state: CycleState, pod: Pod, node: NodeView) -> None:
        if pod.uid not in self.seen:
            self.seen.add(pod.uid)
            raise asyncio.CancelledError


@pytest.mark.slow
async def test_a_cancellation_out_of_a_plugin_fails_the_attempt_and_not_the_scheduler() -> None:
    Cancels.seen.clear()
    async with World([node("n0"), pod("a"), pod("b")], [Cancels]) as world:
        await world.settle()
        assert (world.node_of("a"), world.node_of("b")) == ("n0", "n0")
        assert world.everything_is_accounted_for()


async def test_no_nodes_is_unschedulable_and_retried_until_it_is_pointless() -> None:
    async with World([pod("web")]) as world:
        await world.settle()
        assert world.message_of("web") == "no nodes available to schedule pods"
        assert world.everything_is_accounted_for()


async def test_reserve_that_rejects_undoes_all_and_names_the_plugin() -> None:
    class Refuses(Ledger):
        def reserve(self, state: object, pod: Pod, node_name: str) -> Status:
            return Status.unschedulable("no licence left")

    async with World([node("n0"), pod("web")], [Ledger, Refuses]) as world:
        await world.settle()
        assert world.message_of("web") == "0/1 nodes are available: 1 no licence left."
        found = world.host.diagnoses.find("default/web")
        assert found is not None
        assert Ledger.unreserved == ["web"] * 2 * found.attempt
        assert (found.outcome, found.unschedulable_plugins) == (Outcome.UNSCHEDULABLE, {"Refuses"})


async def test_error_five_times_in_a_row_is_reported_and_ends_the_run() -> None:
    class Breaks(Plugin):
        tries: ClassVar[list[str]] = []

        def pre_filter(self, state: object, pod: Pod, nodes: object) -> Status:
            self.tries.append(pod.name)
            raise RuntimeError("no database")

    async with World([node("n0"), pod("web")], [Breaks]) as world:
        await world.settle()
        assert "no database" in world.message_of("web")
        assert 'PreFilter plugin "Breaks"' in world.message_of("web")
        assert len(Breaks.tries) == 5
        assert world.everything_is_accounted_for()


class Bully(Plugin):
    """PostFilter that evicts the first pod of lower priority."""

    def post_filter(self, state: object, pod: Pod, rejections: NodeRejections) -> PostFilterResult | Status:
        for victim_node in self.handle.snapshot():
            for other in victim_node.pods:
                if other.priority < pod.priority:
                    return PostFilterResult(Status.success(), victim_node.name, victims=(other.ref,))
        return Status.unschedulable("nobody to evict")


async def test_victims_of_post_filter_are_evicted_and_the_pod_takes_the_place() -> None:
    low = pod("low", cpu="1") | {"spec": {**pod("low", cpu="1")["spec"], "nodeName": "n0"}}
    async with World([node("n0", cpu="1"), low, pod("high", cpu="1", priority=10)], [Bully]) as world:
        await world.settle()
        assert world.pod("low") is None
        assert world.node_of("high") == "n0"
        assert list(world.host.evictions.preempted_by.values()) == ["default/high"]


async def test_post_filter_that_names_a_stronger_victim_is_refused_and_evicts_no_pod() -> None:
    class Traitor(Plugin):
        needs: Sequence[Need] = (Need.nodes(), Need.pods())

        def post_filter(self, state: object, pod: Pod, rejections: NodeRejections) -> PostFilterResult:
            other = next(other for each in self.handle.snapshot() for other in each.pods)
            return PostFilterResult(Status.success(), "n0", victims=(other.ref,))

    strong = pod("strong", cpu="1", priority=10)
    strong["spec"]["nodeName"] = "n0"
    async with World([node("n0", cpu="1"), strong, pod("weak", cpu="1")], [Traitor]) as world:
        await world.settle()
        assert world.node_of("strong") == "n0"
        assert world.node_of("weak") == ""
        assert world.host.plugin_stats()["Traitor"].violations > 0


async def test_pod_that_a_plugin_activates_leaves_the_pool_when_the_cycle_succeeds() -> None:
    class Shepherd(Plugin):
        events: Sequence[EventInterest] | None = ()
        released: ClassVar[list[str]] = []

        def pre_filter(self, state: CycleState, pod: Pod, nodes: object) -> Status:
            if pod.name == "sheep" and not self.released:
                return Status.unresolvable("waits for the shepherd")
            return Status.success()

        def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
            if pod.name == "shepherd":
                self.released.append(pod.name)
                state.activate(Pod(name="sheep"))
            return Status.success()

        def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
            pass

    async with World([node("n0"), pod("sheep", priority=5), pod("shepherd")], [Shepherd]) as world:
        await world.settle()
        assert (world.node_of("shepherd"), world.node_of("sheep")) == ("n0", "n0")


async def test_plugin_that_exits_is_an_error_of_its_point_and_the_host_lives() -> None:
    class Quits(Plugin):
        def pre_filter(self, state: object, pod: Pod, nodes: object) -> Status:
            raise SystemExit("enough")

    async with World([node("n0"), pod("web")], [Quits]) as world:
        await world.settle()
        assert "enough" in world.message_of("web")
        assert world.everything_is_accounted_for()


async def test_unexpected_error_in_a_cycle_fails_only_its_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World([node("n0"), pod("web"), pod("other")])
    real = world.host.snapshot.update
    raised: list[int] = []

    def update(cache: Any) -> None:
        if world.host.scheduler.in_cycle is not None and not raised:
            raised.append(1)
            raise KeyError("nobody foresaw this")
        real(cache)

    monkeypatch.setattr(world.host.snapshot, "update", update)
    async with world:
        await world.settle()
        assert raised
        assert (world.node_of("web"), world.node_of("other")) == ("n0", "n0")
        assert world.everything_is_accounted_for()


class Quitter(Plugin):
    """Aborts the attempt that asks it."""

    world: ClassVar[World]

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        attempt = self.world.host.scheduler.in_cycle
        if attempt is not None and pod.name == "web":
            attempt.abort(POD_DELETED)
        return Status.success()


async def test_attempt_that_is_aborted_from_inside_leaves_the_loop_alone() -> None:
    Quitter.world = World([node("n0"), pod("web"), pod("next")], [Quitter])
    async with Quitter.world as world:
        await world.settle()
        assert world.node_of("next") == "n0"


def popped(world: World) -> QueuedPodInfo:
    """Return the next pod, while the host's own loop does not run."""
    queued = world.host.queue.pop()
    assert isinstance(queued, QueuedPodInfo)
    return queued


def events(world: World) -> list[str]:
    """Return the Events about pods that could not be scheduled."""
    return [event.note for event in world.server.events.recent if event.reason == "FailedScheduling"]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """One node and one pod, on a host that pops nothing by itself."""
    async with World([node("n0"), pod("web")]) as made:
        made.host.scheduler.stop_popping()
        yield made


async def test_terminating_pod_is_dropped_with_a_report(world: World) -> None:
    queued = popped(world)
    queued.pod = replace(queued.pod, terminating=True)
    await world.host.scheduler.pods.schedule_one(queued)
    assert (len(world.host.queue.in_flight), world.host.cache.pod_count) == (0, 0)
    assert events(world) == ["skip schedule deleting pod: default/web"]


async def test_pod_without_a_profile_is_dropped_without_a_report(world: World) -> None:
    queued = popped(world)
    queued.pod = replace(queued.pod, scheduler_name="nobody")
    await world.host.scheduler.pods.schedule_one(queued)
    assert (len(world.host.queue.in_flight), events(world)) == (0, [])


async def test_a_pod_that_is_assumed_has_no_second_attempt(world: World) -> None:
    queued = popped(world)
    world.host.cache.assume(queued.pod.on_node("n0"))
    await world.host.scheduler.pods.schedule_one(queued)
    assert len(world.host.binding) == 0
    assert world.host.diagnoses.find("default/web") is None


async def test_pod_is_assumed_and_its_binding_cycle_open_when_schedule_one_returns(world: World) -> None:
    queued = popped(world)
    await world.host.scheduler.pods.schedule_one(queued)
    assert world.host.scheduler.in_cycle is None
    assert world.host.cache.is_assumed(queued.pod.uid)
    assert [attempt.node_name for attempt in world.host.binding.attempts()] == ["n0"]


async def test_no_two_cycles_have_the_same_id() -> None:
    seen: list[str] = []

    class Notes(Plugin):
        def pre_filter(self, state: CycleState, pod: Pod, nodes: object) -> Status:
            attempt = running[0].host.scheduler.in_cycle
            assert attempt is not None
            seen.append(attempt.cycle_id)
            return Status.success()

    running = [World([node("n0"), *(pod(f"p{i}") for i in range(5))], [Notes])]
    async with running[0] as world:
        await world.settle()
    assert len(set(seen)) == 5
    assert {len(cycle_id) for cycle_id in seen} == {32}


async def test_snapshot_does_not_change_until_permit_has_returned() -> None:
    counts: list[int] = []

    class Looks(Plugin):
        needs = (Need.nodes(), Need.pods())

        def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
            counts.extend(len(each.pods) for each in self.handle.snapshot())
            return Status.success()

        def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
            pass

    async with World([node("n0"), pod("a"), pod("b")], [Looks]) as world:
        await world.settle()
    assert counts == [0, 1]  # without the pod itself, which the cache has assumed


async def test_stop_popping_lets_no_further_pod_begin(world: World) -> None:
    assert world.host.scheduler.is_stopping
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.host.queue.places.find("default/web") is not None


async def test_error_of_an_extender_on_the_nominated_node_does_not_pass_the_node() -> None:
    answered = answer(json.dumps({"NodeNames": ["n1"]}))
    async with raw_server(lambda _: answered) as server:
        extender = {"urlPrefix": server.url, "filterVerb": "filter", "nodeCacheCapable": True}
        configuration = f"""\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders: {json.dumps([extender])}
"""
        async with World([node("n0")], configuration=configuration) as world:
            gated = pod("web")
            gated["spec"]["schedulingGates"] = [{"name": "example.com/gate"}]
            ref = world.server.create(gated).ref
            nominated = {"status": {"nominatedNodeName": "n0"}}
            await world.cluster.patch("pods", ref, nominated, subresource="status")
            await world.cluster.patch("pods", ref, {"spec": {"schedulingGates": []}})
            await world.settle()
            assert server.requests[0].json["Pod"]["status"]["nominatedNodeName"] == "n0"
            asked = {tuple(request.json["NodeNames"]) for request in server.requests}
            assert asked == {("n0",)}
            assert world.node_of("web") == ""
            wanted = f'extender "{server.url}" claims a filtered node "n1" which is not found'
            assert wanted in world.message_of("web")
            assert world.everything_is_accounted_for()
