"""The whole host on the embedded cluster, with plugins in process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

import pytest
from berth_host.explain.diagnosis import Outcome
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import Plugin
from berth_sdk.kube_object import ObjectRef
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import (
    BindResult,
    NodeRejections,
    ObjectPatch,
    PatchOutcome,
    PatchResult,
    PermitResult,
    PostFilterResult,
    PreBindResult,
)
from berth_sdk.status import Status
from berth_sdk.tables import NodeView
from support.hosts import World, node, pod


async def test_pods_are_bound_to_nodes_with_room_and_the_rest_say_why_not() -> None:
    objects = [node("n0", cpu="1"), node("n1", cpu="1"), *(pod(f"p{i}", cpu="500m") for i in range(5))]
    async with World(objects) as world:
        await world.settle()
        assert sorted(world.node_of(f"p{i}") for i in range(5)) == ["", "n0", "n0", "n1", "n1"]
        left = next(f"p{i}" for i in range(5) if not world.node_of(f"p{i}"))
        assert world.message_of(left) == (
            "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate,"
            " preemption: 0/2 nodes are available:"
            " 2 No preemption victims found for incoming pod."
        )
        assert world.everything_is_accounted_for()


async def test_pod_that_did_not_fit_is_placed_when_another_one_leaves() -> None:
    async with World(
        [node("n0", cpu="1"), pod("first", cpu="1", priority=5), pod("second", cpu="1")]
    ) as world:
        await world.settle()
        assert (world.node_of("first"), world.node_of("second")) == ("n0", "")
        await world.cluster.delete("pods", ObjectRef(namespace="default", name="first"))
        await world.settle()
        assert world.node_of("second") == "n0"


class Cancels(Plugin):
    """Lets a cancellation escape, as a library that it uses might; once per pod."""

    seen: ClassVar[set[str]] = set()

    async def filter(self, state: CycleState, pod: Pod, node: NodeView) -> None:
        if pod.uid not in self.seen:
            self.seen.add(pod.uid)
            raise asyncio.CancelledError


async def test_cancellation_from_a_plugin_fails_the_attempt_and_not_the_scheduler() -> None:
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


async def test_pod_of_another_scheduler_is_left_alone() -> None:
    async with World([node("n0"), pod("other", schedulerName="other")]) as world:
        await world.settle()
        assert world.node_of("other") == ""
        assert world.host.queue.places.find("default/other") is None


class Ledger(Plugin):
    """Reserve and Unreserve, counted per pod."""

    reserved: ClassVar[list[str]] = []
    unreserved: ClassVar[list[str]] = []

    def reserve(self, state: object, pod: Pod, node_name: str) -> Status:
        self.reserved.append(pod.name)
        return Status.success()

    def unreserve(self, state: object, pod: Pod, node_name: str) -> None:
        self.unreserved.append(pod.name)


@pytest.fixture(autouse=True)
def empty_ledger() -> None:
    Ledger.reserved.clear()
    Ledger.unreserved.clear()


class Gang(Plugin):
    """Holds pods at Permit until three of them wait; the third lets them go."""

    def permit(self, state: object, pod: Pod, node_name: str) -> PermitResult | Status:
        siblings = self.handle.waiting_pods(only_mine=True)
        if len(siblings) < 2:
            return PermitResult.wait(30.0, "waiting for the gang")
        for waiting in siblings:
            self.handle.allow(waiting)
        return Status.success()


async def test_gang_waits_at_permit_until_its_last_member_lets_it_go() -> None:
    async with World([node("n0"), *(pod(f"p{i}") for i in range(3))], [Gang, Ledger]) as world:
        await world.settle()
        assert [world.node_of(f"p{i}") for i in range(3)] == ["n0"] * 3
        assert Ledger.unreserved == []
        assert world.clock.monotonic_s() == 0.0


async def test_incomplete_gang_times_out_is_unreserved_and_counts_nowhere() -> None:
    async with World([node("n0"), pod("p0"), pod("p1")], [Gang, Ledger]) as world:
        await world.settle()
        assert (world.node_of("p0"), world.node_of("p1")) == ("", "")
        want = "0/1 nodes are available: 1 rejected due to timeout after waiting 30s at plugin Gang."
        assert world.message_of("p0") == want
        await world.host.stop()
        assert len(Ledger.reserved) == len(Ledger.unreserved)
        assert world.host.cache.pod_count == 0


async def test_pod_deleted_while_it_waits_at_permit_is_unreserved_and_gone() -> None:
    class Holds(Plugin):
        def permit(self, state: object, pod: Pod, node_name: str) -> PermitResult:
            return PermitResult.wait(600.0)

    async with World([node("n0"), pod("web")], [Holds, Ledger]) as world:
        await world.until_waiting(1)
        await world.cluster.delete("pods", ObjectRef(namespace="default", name="web"))
        await world.settle()
        assert Ledger.unreserved == ["web"]
        assert world.host.cache.pod_count == 0
        assert len(world.host.waiting_pods) == 0
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


async def test_post_filter_that_names_a_stronger_victim_is_refused_and_nobody_dies() -> None:
    class Traitor(Plugin):
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


async def test_binder_that_claims_success_without_binding_is_found_out() -> None:
    class Liar(Plugin):
        def bind(self, state: object, pod: Pod, node_name: str) -> Status:
            return Status.success()

    configuration = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    bind:
      enabled: [{name: Liar}]
      disabled: [{name: "*"}]
    reserve:
      enabled: [{name: Ledger}]
"""
    async with World([node("n0"), pod("web")], [Liar, Ledger], configuration=configuration) as world:
        await world.settle()
        assert world.node_of("web") == ""
        assert "the pod is not bound to n0" in world.message_of("web")
        assert len(Ledger.reserved) == len(Ledger.unreserved) == 5
        assert world.everything_is_accounted_for()


async def test_binder_may_be_ahead_of_the_cluster() -> None:
    worlds: list[World] = []

    class Late(Plugin):
        def bind(self, state: object, pod: Pod, node_name: str) -> Status:
            cluster, clock = worlds[0].host.cluster, worlds[0].clock
            due_s = clock.monotonic_s() + 3.0
            clock.call_at(
                due_s, lambda: tasks.append(asyncio.ensure_future(cluster.bind(pod.ref, node_name)))
            )
            return Status.success()

    tasks: list[asyncio.Future[None]] = []
    configuration = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {bind: {enabled: [{name: Late}], disabled: [{name: "*"}]}}
"""
    async with World([node("n0"), pod("web")], [Late], configuration=configuration) as world:
        worlds.append(world)
        await world.settle()
        assert world.node_of("web") == "n0"
        assert world.message_of("web") == ""
        assert len(tasks) == world.host.binding.bound_count == 1


async def test_all_binders_that_skip_leave_the_pod_unbound_and_retried() -> None:
    class Passes(Plugin):
        def bind(self, state: object, pod: Pod, node_name: str) -> BindResult:
            return BindResult(Status.skip())

    configuration = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {bind: {enabled: [{name: Passes}], disabled: [{name: "*"}]}}
"""
    async with World([node("n0"), pod("web")], [Passes], configuration=configuration) as world:
        await world.settle()
        assert world.node_of("web") == ""
        assert world.message_of("web") == ""
        diagnosis = world.host.diagnoses.find("default/web")
        assert diagnosis is not None
        assert diagnosis.message == "every Bind plugin skipped the pod"
        assert world.everything_is_accounted_for()


async def test_pre_bind_patches_are_applied_in_rounds_until_it_is_satisfied() -> None:
    class Annotates(Plugin):
        needs: ClassVar[Sequence[Need]] = (Need.nodes(),)
        rounds: ClassVar[list[list[PatchOutcome]]] = []

        def pre_bind(
            self, state: object, pod: Pod, node_name: str, patched: Sequence[PatchResult]
        ) -> PreBindResult:
            self.rounds.append([item.outcome for item in patched])
            if patched:
                return PreBindResult(Status.success())
            patch = {"metadata": {"annotations": {"example.com/gpu": "3"}}}
            mine = ObjectPatch(resource="pods", ref=pod.ref, merge_patch=patch)
            return PreBindResult(Status.success(), patches=(mine,))

    async with World([node("n0"), pod("web")], [Annotates]) as world:
        await world.settle()
        found = world.pod("web")
        assert found is not None
        assert found.get("metadata.annotations") == {"example.com/gpu": "3"}
        assert world.node_of("web") == "n0"
        assert Annotates.rounds == [[], [PatchOutcome.APPLIED]]


async def test_patch_on_an_undeclared_kind_never_reaches_the_cluster() -> None:
    class Meddles(Plugin):
        def pre_bind(
            self, state: object, pod: Pod, node_name: str, patched: Sequence[PatchResult]
        ) -> PreBindResult:
            ref = ObjectRef(namespace="default", name="claim")
            patch = ObjectPatch(resource="persistentvolumeclaims", ref=ref, merge_patch={"x": 1})
            return PreBindResult(Status.success(), patches=(patch,))

    async with World([node("n0"), pod("web")], [Meddles, Ledger]) as world:
        await world.settle()
        assert world.node_of("web") == ""
        assert "persistentvolumeclaims" in world.message_of("web")
        assert len(Ledger.reserved) == len(Ledger.unreserved)


async def test_pre_bind_that_asks_to_be_called_again_waits_on_the_hosts_clock() -> None:
    class Patient(Plugin):
        calls: ClassVar[list[str]] = []

        def pre_bind(
            self, state: object, pod: Pod, node_name: str, patched: Sequence[PatchResult]
        ) -> PreBindResult:
            self.calls.append(pod.name)
            return PreBindResult(Status.success(), ask_again_after_s=5.0 if len(self.calls) < 3 else None)

    async with World([node("n0"), pod("web")], [Patient]) as world:
        await world.settle()
        assert (world.node_of("web"), len(Patient.calls)) == ("n0", 3)
        assert world.clock.monotonic_s() == 10.0


async def test_higher_priority_goes_first_and_ties_go_to_the_smallest_name() -> None:
    objects = [node("b", cpu="1"), node("a", cpu="1"), pod("low", cpu="1"), pod("high", cpu="1", priority=9)]
    async with World(objects) as world:
        await world.settle()
        assert (world.node_of("high"), world.node_of("low")) == ("a", "b")


async def test_gated_pod_enters_when_its_last_gate_goes() -> None:
    gated = pod("web", schedulingGates=[{"name": "example.com/hold"}])
    async with World([node("n0"), gated]) as world:
        await world.settle()
        assert world.node_of("web") == ""
        found = world.pod("web")
        assert found is not None
        await world.cluster.patch("pods", found.ref, {"spec": {"schedulingGates": []}})
        await world.settle()
        assert world.node_of("web") == "n0"


async def test_sampling_still_places_every_pod() -> None:
    configuration = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 10
"""
    objects = [*(node(f"n{i:03}", pods="1") for i in range(150)), *(pod(f"p{i}") for i in range(150))]
    async with World(objects, configuration=configuration) as world:
        await world.settle()
        assert len({world.node_of(f"p{i}") for i in range(150)}) == 150


async def test_stop_in_the_middle_of_binding_cycles_undoes_them() -> None:
    class Holds(Plugin):
        def permit(self, state: object, pod: Pod, node_name: str) -> PermitResult:
            return PermitResult.wait(600.0)

    async with World([node("n0"), pod("a"), pod("b")], [Holds, Ledger]) as world:
        await world.until_waiting(2)
    assert sorted(Ledger.unreserved) == ["a", "b"]
    assert world.host.cache.pod_count == 0


async def test_pod_that_a_plugin_activates_leaves_the_pool_when_the_cycle_succeeds() -> None:
    class Shepherd(Plugin):
        events: ClassVar[Sequence[EventInterest] | None] = ()
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
