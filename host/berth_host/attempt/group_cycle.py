"""`GroupCycle` and `PlacementCycle`: the records of one attempt of a group of pods, and of its placements.

    the group's record <- the record of a placement <- the record of a pod (`attempt.cycle.Cycle`)

Each record has states of its own, whose `parent` is the state of the record above. The scheduler makes the
records, and adds its own parts. All calls of a group's cycle to a plugin go to the instance of the first one.
The record of the group pays for them: its budget is that of one pod for each member.
Source: kube-scheduler `schedule_one_podgroup.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from berth_sdk.cycle_state import GroupState, PlacementState, TrialRef
from berth_sdk.pod_group import Assignment, GroupView, Placement, PlacementProgress
from berth_sdk.runtime.group_runtime import FeasibleSteps
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable, StateVersion

from berth_host.attempt.call_record import CycleRecord
from berth_host.attempt.cycle import DEFAULT_BUDGET_S, NO_NODES, NO_VERSION, Cycle


class GroupCycle(CycleRecord):
    """One attempt of a group. `subject` and `group`: what plugins get of it. `nodes`: the whole snapshot."""

    state_class = GroupState

    def __init__(
        self,
        cycle_id: str,
        group: GroupView,
        profile: str,
        *,
        nodes: NodeTable = NO_NODES,
        version: StateVersion = NO_VERSION,
        budget_s: float = DEFAULT_BUDGET_S,
        parent: PlacementCycle | None = None,
    ) -> None:
        """Make the record.

        Args:
            cycle_id: The id of the cycle; of a child group, that of `parent`, to which the key is added.
            budget_s: The budget of one pod, in seconds.
            parent: The placement in which a child group of a composite group is tried; None: a root group.
        """
        if parent is not None:
            cycle_id = f"{cycle_id}/{group.group.key}"
        super().__init__(cycle_id, group, profile, budget_s * max(count_members(group), 1))
        self.group = group
        self.nodes = nodes
        self.version = version
        self.trials = 0
        """The number of trials so far; counted by the root group."""
        self.below: list[CycleRecord] = []
        """The records of all placements and of all child groups, kept by the root group."""
        self.parent = parent
        self.payer = None if parent is None else parent.payer
        if parent is not None:
            _keep_below(self)
            _trace_like(self, parent)

    def placement(self, placement: Placement) -> PlacementCycle:
        """Return the record of the next trial: of one placement, from the start."""
        root: CycleRecord = self if self.parent is None else self.root
        number = 1
        if isinstance(root, GroupCycle):
            number = root.trials = root.trials + 1
        return PlacementCycle(self, placement, number, root)


class PlacementCycle(CycleRecord):
    """One trial of a group: its members in one placement. Attributes: group_cycle, placement, number."""

    state_class = PlacementState
    is_placement = True

    def __init__(self, group_cycle: GroupCycle, placement: Placement, number: int, root: CycleRecord) -> None:
        """Make the record. `root`: the record that `group_cycle` belongs to in the end."""
        super().__init__(f"{root.cycle_id}.{number}", group_cycle.group, group_cycle.profile, root.budget_s)
        self.group_cycle = group_cycle
        self.placement = placement
        self.number = number
        self.version = group_cycle.version
        self.parent = group_cycle
        self.payer = group_cycle.payer or group_cycle
        self._assignments: Sequence[Assignment] | None = ()
        self._assigned_later: Callable[[], Sequence[Assignment]] = tuple
        self.kept_scores: dict[Hashable, int] | None = None
        """The raw answers to PlacementScore that are kept for this trial; None: none are."""
        self.judged: dict[str, JudgedSteps] = {}
        """The answers of served plugins to PlacementFeasible, by plugin."""
        if isinstance(root, GroupCycle):
            root.below.append(self)
        _trace_like(self, group_cycle)

    @property
    def assignments(self) -> Sequence[Assignment]:
        """The members that have a node in this placement, in the order in which they got it."""
        found = self._assignments
        if found is None:
            found = self._assignments = self._assigned_later()
        return found

    @assignments.setter
    def assignments(self, found: Sequence[Assignment]) -> None:
        self._assignments = found

    def assigns_later(self, find: Callable[[], Sequence[Assignment]]) -> None:
        """Make the assignments with `find` when they are read."""
        self._assignments, self._assigned_later = None, find

    def take(self, member: Cycle) -> None:
        """Make the cycle of a member a part of this trial. Called before the first call of that cycle."""
        member.parent, member.payer, member.budget_s = self, self.payer, self.budget_s
        member.trial = TrialRef(self.group_cycle.group.group.key, self.placement.name, self.number, True)


class JudgedSteps:
    """A plugin's answer to PlacementFeasible about `steps`, one status for each."""

    def __init__(self, steps: FeasibleSteps, statuses: Sequence[Status]) -> None:
        self.steps = steps
        self._statuses = statuses

    def at(self, step: PlacementProgress) -> Status | None:
        """Return the status of a step; None if the plugin was not asked about it."""
        position = self.steps.position(step)
        return None if position is None else self._statuses[position]


def _keep_below(record: CycleRecord) -> None:
    root = record.root
    if isinstance(root, GroupCycle):
        root.below.append(record)


def _trace_like(record: CycleRecord, above: CycleRecord) -> None:
    """Let the calls about a record be a part of the trace of the group's attempt, if that is traced."""
    if above.trace is not None:
        record.trace, record.sampler = above.trace, above.sampler


def count_members(group: GroupView) -> int:
    """Return the number of unscheduled pods of a group and of the groups in it."""
    return len(group.pods) + sum(map(count_members, group.children))
