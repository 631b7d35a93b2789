"""The records of a group's cycle: whose state belongs to whose, who pays, and what a trial is."""

from __future__ import annotations

from berth_host.attempt.cycle import Cycle
from berth_host.attempt.group_cycle import GroupCycle, JudgedSteps
from berth_sdk.cycle_state import TrialRef
from berth_sdk.pod_group import (
    COMPOSITE_POD_GROUP,
    POD_GROUP,
    GroupView,
    Placement,
    PlacementProgress,
    PodGroup,
)
from berth_sdk.runtime.group_runtime import FeasibleSteps, filled
from berth_sdk.status import Status
from berth_sdk.testing.builders import make_pod
from support.relays import some_nodes

PODS = tuple(make_pod(f"w{i}", uid=f"w{i}") for i in range(3))
NODES = some_nodes()


def group_cycle(**options: float) -> GroupCycle:
    return GroupCycle("g", GroupView(PodGroup(name="train"), PODS), "default", nodes=NODES, **options)  # type: ignore[arg-type]  # keywords of the tests


def member(pod_number: int = 0) -> Cycle:
    return Cycle(f"c{pod_number}", PODS[pod_number], "default")


def test_state_of_a_pod_reaches_those_of_its_placement_and_its_group() -> None:
    group, cycle = group_cycle(), member()
    one = group.placement(Placement("a", NODES))
    one.take(cycle)
    state = cycle.state("Demo")
    assert state.placement is one.state("Demo") and state.group is group.state("Demo")
    assert one.state("Demo").group is group.state("Demo") and one.state("Demo").placement is None
    assert group.state("Demo").group is None


def test_pod_by_itself_has_neither() -> None:
    state = member().state("Demo")
    assert state.placement is None and state.group is None and state.trial is None


def test_trials_are_numbered_over_all_placements_of_the_root_group() -> None:
    root = group_cycle()
    first = root.placement(Placement("a", NODES))
    child = GroupCycle("child", root.group, "default", parent=first)
    second = child.placement(Placement("a1", NODES))
    assert (first.number, second.number, root.placement(Placement("b", NODES)).number) == (1, 2, 3)
    assert second.state("Demo").group is child.state("Demo")
    assert child.state("Demo").placement is first.state("Demo")
    assert second.payer is root


def test_child_groups_of_two_kinds_with_the_same_name_have_cycles_of_their_own() -> None:
    trial = group_cycle().placement(Placement("a", NODES))
    views = [GroupView(PodGroup(kind=kind, name="same"), ()) for kind in (POD_GROUP, COMPOSITE_POD_GROUP)]
    first, second = (GroupCycle(trial.cycle_id, view, "default", parent=trial) for view in views)
    assert first.cycle_id != second.cycle_id


def test_the_budget_is_that_of_one_pod_for_each_member() -> None:
    group = group_cycle(budget_s=2.0)
    assert group.budget_s == 6.0
    cycle = member()
    group.placement(Placement("a", NODES)).take(cycle)
    cycle.served_call_begins()
    assert group.budget_left_s < 6.0 and cycle.budget_left_s < 6.0
    assert cycle.budget_s == 6.0, "messages about a spent budget name that of the group"
    cycle.served_call_ends()
    assert group.budget_left_s == cycle.budget_left_s


def test_decided_member_has_a_new_id_and_the_same_states() -> None:
    group, cycle = group_cycle(), member()
    group.placement(Placement("a", NODES)).take(cycle)
    assert cycle.trial == TrialRef("podgroup/default/train", "a", 1, True)
    state = cycle.state("Demo")
    state.write("key", 1)
    cycle.reserved = True
    cycle.part("Demo").reserved_node = "n1"
    cycle.decide("c0-final")
    assert (cycle.cycle_id, cycle.continues, state.cycle_id) == ("c0-final", "c0", "c0-final")
    assert cycle.trial == TrialRef("podgroup/default/train", "a", 1, False)
    assert cycle.state("Demo") is state and state.read("key") == 1
    assert not cycle.reserved and cycle.part("Demo").reserved_node is None


def test_member_may_restart_as_long_as_its_group_may() -> None:
    group, cycle = group_cycle(), member()
    group.placement(Placement("a", NODES)).take(cycle)
    assert cycle.may_restart
    group.restarted = True
    assert not cycle.may_restart


def test_status_of_a_step_has_its_numbers() -> None:
    statuses = [Status.unschedulable("{scheduled} of {remaining}")] * len(FeasibleSteps(0, 2, 0))
    judged = JudgedSteps(FeasibleSteps(0, 2, 0), statuses)
    step = PlacementProgress(1, 1)
    found = judged.at(step)
    assert found is not None and filled(found, step).message == "1 of 1"
    assert judged.at(PlacementProgress(1, 0)) is None, "one member failed, and none was allowed for"
