"""A plugin at the points about groups has the same answers in process and over the contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from berth_host.attempt.cycle import Cycle, CycleEnd
from berth_host.attempt.group_cycle import GroupCycle, PlacementCycle
from berth_host.config.berth.points import FailurePolicy
from berth_host.errors.plugins import CycleRestartError
from berth_host.rpc.client import PluginClient
from berth_sdk.cycle_state import CycleState, TrialRef
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_group import (
    COSCHEDULING,
    Assignment,
    GroupCondition,
    GroupView,
    Placement,
    PlacementProgress,
    PodGroup,
)
from berth_sdk.results import PodGroupPostFilterResult, QueuedPod, Trial, Tries
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable
from berth_sdk.testing.builders import make_node, make_pod
from support.attached import PROFILE, ClusterState
from support.both_ways import both_ways
from support.frameworks import framework_of


class Racks(Plugin):
    """Places a gang into one rack, and says in its answers what it was told."""

    needs: Sequence[Need] = (Need.nodes(), Need.pods())

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self.calls: list[tuple[Any, ...]] = []

    def placement_generate(
        self, state: CycleState, group: GroupView, parent: Placement
    ) -> list[Placement] | Status:
        state.write("seen", [pod.name for pod in group.pods])
        if not group.group.topology_key:
            return Status.unschedulable(f"{group.group.key} wants no rack")
        racks = dict.fromkeys(node.labels.get(group.group.topology_key, "") for node in parent.nodes)
        return [
            Placement(
                rack,
                parent.nodes.take(
                    [
                        row
                        for row, node in enumerate(parent.nodes)
                        if node.labels.get(group.group.topology_key, "") == rack
                    ]
                ),
            )
            for rack in racks
            if rack
        ]

    def placement_score(
        self, state: CycleState, group: GroupView, placement: Placement, assignments: Sequence[Assignment]
    ) -> int:
        assert state.group is not None and state.group.read("seen") == [pod.name for pod in group.pods]
        on = [(one.pod.name, one.pod.priority, one.node_name) for one in assignments]
        self.calls.append(("score", placement.name, placement.nodes.names, on))
        return len(assignments) * len(placement.nodes)

    def normalize_placements(
        self, state: CycleState, group: GroupView, scores: Any, placements: Sequence[Placement]
    ) -> Any:
        assert state.read("seen")
        return scores * 100 // max(int(scores.max()), 1)

    def placement_feasible(self, state: CycleState, group: GroupView, progress: PlacementProgress) -> Status:
        least, sure = group.group.min_count, progress.scheduled
        text = f"minCount ({least}): {{scheduled}} scheduled, {{remaining}} remaining"
        if sure + progress.remaining < least:
            return Status.unschedulable(text)
        return Status.success() if sure >= least else Status(Code.WAIT, (text,))

    def pod_group_post_filter(
        self, state: CycleState, group: GroupView, tries: Tries
    ) -> PodGroupPostFilterResult:
        (first, *_) = group.pods
        (victim,) = (pod for node in state.read("nodes") for pod in node.pods)
        return PodGroupPostFilterResult(Status.success(), (Assignment(first, "n3"),), (victim.ref,))

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> None:
        assert state.placement is not None and state.group is not None
        state.placement.write(pod.name, "was here")
        state.group.write("nodes", list(nodes))
        state.write("mine", pod.name)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        assert state.read("mine") == pod.name
        self.calls.append(("reserve", state.cycle_id, pod.name, node_name, state.trial))
        return Status.success()

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        assert state.group is not None and state.group.read("nodes")
        assert state.placement is not None and state.placement.read(pod.name) == "was here"
        return Status.success()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.calls.append(("unreserve", state.cycle_id, pod.name, node_name, state.trial))

    def sort_key(self, pod: QueuedPod) -> bytes:
        group = "" if pod.group is None else f"{pod.group.key} {pod.group.min_count}"
        return f"{group}|{pod.pod.name} {pod.pod.priority} {pod.attempts}".encode()


def cluster() -> ClusterState:
    state = ClusterState()
    state.add_nodes(make_node(f"n{i}", labels={"rack": f"r{i % 2}"}) for i in range(5))
    state.put(make_pod("old", uid="old", priority=1), "n3")
    return state


GROUP = PodGroup(
    name="train",
    namespace="ml",
    uid="uid-train",
    generation=4,
    created_s=1_700_000_000.5,
    labels={"team": "a"},
    annotations={"note": "b"},
    is_gang=True,
    min_count=3,
    priority=7,
    preemption_policy="Never",
    disrupts_all=True,
    topology_key="rack",
    parent_key="compositepodgroup/ml/job",
    claims=(("gpu", "gpu-claim"), ("net", "")),
    conditions=(GroupCondition(type="Ready", status="False", reason="No", observed_generation=2),),
)
OF_COSCHEDULING = PodGroup(
    kind=COSCHEDULING,
    name="train",
    namespace="ml",
    uid="uid-train",
    is_gang=True,
    min_count=3,
    min_resources={"memory": 2**34},
    wait_s=12.5,
)
MEMBERS = tuple(make_pod(f"w{i}", namespace="ml", uid=f"w{i}", priority=7) for i in range(4))


def cycle_about(group: PodGroup, state: ClusterState, *, pods: Sequence[Pod] = MEMBERS) -> GroupCycle:
    scheduled = (make_pod("w9", namespace="ml", uid="w9").on_node("n1"),)
    view = GroupView(group, tuple(pods), scheduled)
    return GroupCycle("group-1", view, PROFILE, nodes=state.nodes, version=state.version, budget_s=60.0)


async def generate(client: PluginClient, cycle: GroupCycle, nodes: NodeTable) -> Any:
    found = await client.placement_generate(cycle, Placement("", nodes))
    return found if isinstance(found, Status) else [(one.name, one.nodes.names) for one in found]


async def test_placements_are_generated_scored_and_normalised_alike() -> None:
    state = cluster()
    async with both_ways(Racks, state) as ways:
        answers = []
        for client in ways.clients:
            cycle = cycle_about(GROUP, state)
            parent = Placement("", state.nodes)
            found = await client.placement_generate(cycle, parent)
            assert not isinstance(found, Status)
            raw = []
            for row, placement in enumerate(found):
                one = cycle.placement(placement)
                one.assignments = [Assignment(pod, placement.nodes.names[0]) for pod in MEMBERS[row:]]
                scored = await client.placement_score(one)
                assert scored is not None
                raw.append(scored.score)
            assert client.normalizes_placements(cycle)
            final = await client.normalize_placement_score(cycle, np.array(raw, dtype=np.int64), found)
            assert isinstance(final, np.ndarray)
            answers.append(([(one.name, one.nodes.names) for one in found], raw, final.tolist()))
        assert answers[0] == answers[1]
        assert answers[0] == (
            [("r0", ["n0", "n2", "n4"]), ("r1", ["n1", "n3"])],
            [12, 6],
            [100, 50],
        )
        assert ways.calls.count("PlacementScore") == 2, "once for each placement, whatever its members"


async def test_rejection_of_a_group_travels_with_its_reason() -> None:
    state = cluster()
    async with both_ways(Racks, state) as ways:
        plain = PodGroup(name="plain", namespace="ml", uid="uid-plain")
        for client in ways.clients:
            status = await generate(client, cycle_about(plain, state), state.nodes)
            assert (status.code, status.reasons) == (
                Code.UNSCHEDULABLE,
                ("podgroup/ml/plain wants no rack",),
            )


async def test_every_step_of_a_trial_is_answered_alike_and_few_calls_are_made() -> None:
    state = cluster()
    members = [make_pod(f"m{i}", namespace="ml", uid=f"m{i}") for i in range(40)]
    gang = PodGroup(name="train", namespace="ml", uid="uid-train", is_gang=True, min_count=25)
    async with both_ways(Racks, state) as ways:
        for failing in (0, 1, 5, 16, 40):
            answers = []
            for client in ways.clients:
                before = ways.calls.count("PlacementFeasible")
                one = cycle_about(gang, state, pods=members).placement(Placement("", state.nodes))
                remaining, scheduled, found = len(members), 1, []
                for number in range(len(members) + 1):
                    step = PlacementProgress(remaining, scheduled)
                    status = await client.placement_feasible(one, step)
                    found.append((status.code, status.reasons))
                    remaining -= 1
                    scheduled += number >= failing
                answers.append(found)
                asked = ways.calls.count("PlacementFeasible") - before
                assert asked <= (0 if client is ways.local else 7), f"{asked} calls for {failing} failures"
            assert answers[0] == answers[1]


async def reserved(client: PluginClient, one: PlacementCycle, pod: Pod, cycle_id: str) -> Cycle:
    """Try a member in a placement, as the cycle of its group does."""
    state = one.group_cycle
    cycle = Cycle(cycle_id, pod, PROFILE, nodes=state.nodes, version=state.version)
    one.take(cycle)
    assert (await client.pre_filter(cycle, state.nodes)).status.is_success
    assert (await client.reserve(cycle, "n2")).is_success
    return cycle


@pytest.mark.parametrize("asked", [GROUP, OF_COSCHEDULING], ids=lambda group: group.kind)
async def test_reservation_of_a_trial_is_given_back_and_made_again_for_the_chosen_one(
    asked: PodGroup,
) -> None:
    state = cluster()
    async with both_ways(Racks, state) as ways:
        told = []
        for client in ways.clients:
            group = cycle_about(asked, state)
            one = group.placement(Placement("r0", state.nodes.take([0, 2, 4])))
            first = await reserved(client, one, MEMBERS[0], "cycle-1")
            second = await reserved(client, one, MEMBERS[1], "cycle-2")
            placement_state = one.state("Racks")
            for cycle in (second, first):
                await client.unreserve(cycle, "n2", "the trial is over")
            first.decide("cycle-1-final")
            assert (await client.reserve(first, "n2")).is_success
            client.end_cycle(second, CycleEnd.ABORTED)
            runtime = client.local or ways.instance.served("Racks", PROFILE).runtime
            assert isinstance(runtime.plugin, Racks)
            told.append(runtime.plugin.calls)
            if client.local is not None:
                assert placement_state.get("w0") == placement_state.get("w1") == "was here"
        trial = TrialRef(asked.key, "r0", 1, True)
        assert told[0] == told[1]
        assert told[0] == [
            ("reserve", "cycle-1", "w0", "n2", trial),
            ("reserve", "cycle-2", "w1", "n2", trial),
            ("unreserve", "cycle-2", "w1", "n2", trial),
            ("unreserve", "cycle-1", "w0", "n2", trial),
            ("reserve", "cycle-1-final", "w0", "n2", TrialRef(asked.key, "r0", 1, False)),
        ]
        held = ways.instance.cycles.reservations("Racks")
        assert list(held) == ["cycle-1-final"], "nothing tentative is left"


async def test_states_above_a_pod_last_as_long_as_its_own() -> None:
    """The cycle of the group ends when its members are in their binding cycles."""
    state = cluster()
    async with both_ways(Racks, state) as ways:
        for client in ways.clients:
            group = cycle_about(GROUP, state)
            one = group.placement(Placement("r0", state.nodes))
            cycle = await reserved(client, one, MEMBERS[0], "cycle-1")
            await client.unreserve(cycle, "n2", "the trial is over")
            cycle.decide("cycle-1-final")
            assert (await client.reserve(cycle, "n2")).is_success
            framework_of([client]).groups.end_cycle(group, CycleEnd.UNSCHEDULABLE)
            result = await client.bind(cycle, "n2")
            assert result.status.is_success, result.status.message
        # The last call has brought the ends of the other cycles.
        assert len(ways.instance.cycles) == 1


async def test_late_duplicate_of_a_trials_reserve_is_refused() -> None:
    state = cluster()
    async with both_ways(Racks, state) as ways:
        client = ways.served
        one = cycle_about(GROUP, state).placement(Placement("r0", state.nodes))
        cycle = await reserved(client, one, MEMBERS[0], "cycle-1")
        await client.unreserve(cycle, "n2", "the trial is over")
        status = await client.reserve(cycle, "n2")
        assert status.message == "the cycle has been unreserved already"
        assert not ways.instance.cycles.reservations("Racks")


async def test_process_that_lost_the_groups_state_says_so() -> None:
    state = cluster()
    async with both_ways(Racks, state) as ways:
        client = ways.served
        group = cycle_about(GROUP, state)
        assert await generate(client, group, state.nodes)
        ways.instance.cycles.release("Racks", "group-1")  # as a process that restarted
        group.restarted = True
        scored = await client.placement_score(group.placement(Placement("r0", state.nodes)))
        assert scored is not None
        assert "lost what this cycle had left with it" in scored.status.message


async def no_tries(removed: Sequence[Pod]) -> Trial:
    raise AssertionError("nobody tries")


async def test_nominations_and_victims_are_checked_alike() -> None:
    state = cluster()
    async with both_ways(Racks, state) as ways:
        found = []
        for client in ways.clients:
            group = cycle_about(GROUP, state)
            one = group.placement(Placement("", state.nodes))
            cycle = Cycle("cycle-1", MEMBERS[0], PROFILE, nodes=state.nodes, version=state.version)
            one.take(cycle)
            await client.pre_filter(cycle, state.nodes)
            found.append(await client.pod_group_post_filter(group, _Tries()))
            low = cycle_about(PodGroup(name="low", namespace="ml", uid="uid-low", priority=1), state)
            low.state("Racks").write("nodes", list(state.nodes))
        for result in found:
            assert result.status.is_success
            assert [(one.pod, one.node_name) for one in result.nominations] == [(MEMBERS[0], "n3")]
            assert [ref.uid for ref in result.victims] == ["old"]


class _Tries:
    reached_pre_filter = True

    async def preempt(self) -> PodGroupPostFilterResult:
        raise AssertionError("nobody preempts")

    async def schedule(self, removed: Sequence[Pod]) -> Trial:
        raise AssertionError("nobody tries")


async def test_victim_that_is_not_below_the_group_is_a_violation() -> None:
    state = cluster()
    async with both_ways(Racks, state) as ways:
        client = ways.local
        low = cycle_about(PodGroup(name="low", namespace="ml", uid="uid-low", priority=1), state)
        low.state("Racks").write("nodes", list(state.nodes))
        result = await client.pod_group_post_filter(low, _Tries())
        assert result.status.code is Code.UNSCHEDULABLE, "the policy Ignore: the host asks the next plugin"
        assert client.stats.violations == 1


async def test_sort_key_of_a_group_is_made_of_its_record_and_its_first_member() -> None:
    state = cluster()
    entry = QueuedPod(pod=make_pod("w0", namespace="ml", uid="w0", priority=1), attempts=3).of_group(GROUP)
    async with both_ways(Racks, state) as ways:
        keys = [await client.sort_keys([entry, QueuedPod(pod=MEMBERS[1])]) for client in ways.clients]
        assert keys[0] == keys[1] == [b"podgroup/ml/train 3|w0 7 3", b"|w1 7 0"]


@pytest.mark.parametrize(
    ("inner", "word"),
    [
        (GROUP, "min_count=3, priority=7, preemption_policy='Never'"),
        (OF_COSCHEDULING, "min_resources={'memory': 17179869184}, wait_s=12.5"),
        (replace(OF_COSCHEDULING, min_resources={}, wait_s=None), "min_resources={}, wait_s=None"),
    ],
    ids=["PodGroup", "coscheduling", "empty minResources"],
)
async def test_group_travels_whole(inner: PodGroup, word: str) -> None:
    class Echo(Plugin):
        """Answers with all that it was told of the group."""

        needs: Sequence[Need] = (Need.nodes(),)

        def placement_generate(self, state: CycleState, group: GroupView, parent: Placement) -> Status:
            (child,) = group.children
            return Status.unschedulable(
                repr(group.group),
                repr(child.group),
                repr([(pod.name, pod.uid) for pod in child.pods]),
                repr([(pod.name, pod.node_name) for pod in child.scheduled]),
            )

    state = cluster()
    composite = PodGroup(kind="CompositePodGroup", name="job", namespace="ml", uid="uid-job", min_count=2)
    leaf = GroupView(inner, MEMBERS, (make_pod("w9", namespace="ml", uid="w9").on_node("n1"),))
    view = GroupView(composite, children=(leaf,))
    async with both_ways(Echo, state) as ways:
        statuses = [
            await generate(
                client, GroupCycle("g", view, PROFILE, nodes=state.nodes, version=state.version), state.nodes
            )
            for client in ways.clients
        ]
        assert statuses[0].reasons == statuses[1].reasons
        assert word in statuses[0].reasons[1]


class Broken(Plugin):
    """Fails at every point about groups."""

    needs: Sequence[Need] = (Need.nodes(),)

    def placement_generate(self, state: CycleState, group: GroupView, parent: Placement) -> list[Placement]:
        raise RuntimeError("no racks today")

    def placement_score(
        self, state: CycleState, group: GroupView, placement: Placement, assignments: Sequence[Assignment]
    ) -> int:
        raise RuntimeError("no score today")

    def placement_feasible(self, state: CycleState, group: GroupView, progress: PlacementProgress) -> Status:
        raise RuntimeError("no idea today")


async def test_failure_at_a_point_of_groups_fails_the_group_by_default() -> None:
    state = cluster()
    async with both_ways(Broken, state) as ways:
        for client in ways.clients:
            group = cycle_about(GROUP, state)
            one = group.placement(Placement("", state.nodes))
            generated = await generate(client, group, state.nodes)
            feasible = await client.placement_feasible(one, PlacementProgress(4, 0))
            scored = await client.placement_score(one)
            assert scored is not None
            for status, word in ((generated, "racks"), (feasible, "idea"), (scored.status, "score")):
                assert status.code is Code.ERROR and f"no {word} today" in status.message, status


@pytest.mark.parametrize("policy", [FailurePolicy.IGNORE, FailurePolicy.NEUTRAL], ids=lambda one: one.value)
async def test_policy_leaves_a_plugin_out_of_the_placement_of_a_group(policy: FailurePolicy) -> None:
    state = cluster()
    points = {"placementScore": policy}
    if policy is FailurePolicy.IGNORE:
        points |= {"placementGenerate": policy, "placementFeasible": policy}
    async with both_ways(Broken, state, points) as ways:
        for client in ways.clients:
            group = cycle_about(GROUP, state)
            one = group.placement(Placement("", state.nodes))
            assert await client.placement_score(one) is None
            if policy is FailurePolicy.IGNORE:
                assert await generate(client, group, state.nodes) == [("", state.nodes.names)]
                assert (await client.placement_feasible(one, PlacementProgress(4, 0))).is_success
                assert any("PlacementGenerate" in note for note in group.account.notes)


async def test_spent_budget_of_a_group_ends_its_calls_alone() -> None:
    state = cluster()
    async with both_ways(Racks, state) as ways:
        view = GroupView(GROUP, MEMBERS)
        spent = GroupCycle("g", view, PROFILE, nodes=state.nodes, version=state.version, budget_s=0.0)
        status = await generate(ways.served, spent, state.nodes)
        assert status.code is Code.ERROR and "0 s for served plugins are spent" in status.message
        assert "PlacementGenerate" not in ways.calls
        assert not isinstance(await generate(ways.served, cycle_about(GROUP, state), state.nodes), Status)


async def test_group_begins_again_where_another_instance_takes_over_in_its_middle() -> None:
    state = cluster()
    async with both_ways(Racks, state) as ways:
        client = ways.served
        group = cycle_about(GROUP, state)
        assert await generate(client, group, state.nodes)
        ways.instance.cycles.release("Racks", "group-1")  # what the next instance knows of the group: nothing
        one = group.placement(Placement("r0", state.nodes))
        with pytest.raises(CycleRestartError):
            await client.placement_score(one)
        cycle = Cycle("cycle-1", MEMBERS[0], PROFILE, nodes=state.nodes, version=state.version)
        one.take(cycle)
        with pytest.raises(CycleRestartError):
            await client.pre_filter(cycle, state.nodes)
