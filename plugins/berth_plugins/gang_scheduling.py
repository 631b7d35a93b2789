"""GangScheduling: the members of a gang start together, or none of them starts.

Called at PreEnqueue (are there enough members?), PlacementFeasible (did enough of them get a node in the
cycle of their group?) and, before 1.38, Permit (do enough of them have a node?). PreEnqueue and Permit count
the members that the host knows at that moment (`Handle.pod_groups`).

Source: `pkg/scheduler/framework/plugins/gangscheduling/gangscheduling.go`, v1.37 and v1.38;
`hierarchy_tracker.go`, v1.38.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.gang_policy import GangPolicy, Repair
from berth_sdk.group_tree import meets_minimum, tree_of
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_group import (
    COMPOSITE_POD_GROUP,
    COSCHEDULING,
    POD_GROUP,
    GroupMembers,
    GroupView,
    PlacementProgress,
    PodGroup,
    PodGroupReader,
)
from berth_sdk.results import PermitResult, QueuedPod
from berth_sdk.status import SUCCESS, Code, Status

from berth_plugins.args.gates import COMPOSITE_GROUPS, QUORUM_OF_TREES, is_on
from berth_plugins.objects.of_events import as_group

_GROUP: Final = "group"
_OF_COSCHEDULING: Final = f"{COSCHEDULING.lower()}/"
"""The start of the keys of coscheduling's PodGroups, which the plugin Coscheduling judges."""


class GangScheduling(Plugin):
    """Holds the members of a gang back until `minCount` of them exist and have a node."""

    kinds: ClassVar[frozenset[str]] = frozenset({POD_GROUP, COMPOSITE_POD_GROUP})
    """The kinds of groups that this class judges; members of others pass."""
    minimum: ClassVar[str] = "minCount"
    """The field of a group that says how many members it needs."""
    follows_kubernetes: ClassVar[bool] = True
    """True: the class changes with the version of kube-scheduler that the host follows."""
    needs: Sequence[Need] = ()
    depends_on: DependsOn | None = DependsOn.OTHER
    feasible_by_progress: ClassVar[bool] = True
    events: Sequence[EventInterest] | None = (
        EventInterest("UnscheduledPod", ("add",), Hint.ASK_PLUGIN),
        EventInterest("AssignedPod", ("add",), Hint.ASK_PLUGIN),
        EventInterest("scheduling.k8s.io/PodGroup", ("add", "update"), Hint.ASK_PLUGIN),
        EventInterest("scheduling.k8s.io/CompositePodGroup", ("add", "update"), Hint.ASK_PLUGIN),
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """`args`: those of `GangPolicy`; kube-scheduler's plugin has none. Raises PluginArgsError."""
        super().__init__(args, handle)
        self._policy = GangPolicy.of(args)
        self._has_trees = is_on(args, COMPOSITE_GROUPS, default=False)
        self._judges_trees = self.follows_kubernetes and is_on(args, QUORUM_OF_TREES, default=True)
        self._too_few = Status.unresolvable(
            f"waiting for {self.minimum} pods from a gang to appear in scheduling queue"
        )

    # --- PreEnqueue --------------------------------------------------------------------------------

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        """Return unresolvable while the pod's group is unknown, or has fewer members than it needs."""
        key = pod.pod.group_key
        if not self._is_mine(key):
            return SUCCESS
        groups = self.handle.pod_groups()
        if self._judges_trees:
            return _tree_is_ready(groups, key)
        if self._has_trees:
            return _tree_is_complete(groups, key, self._too_few)
        group, members = groups.object(key), groups.state(key)
        if group is None or members is None:
            name = key.rpartition("/")[2]
            return Status.unresolvable(
                f'waiting for pods\'s pod group "{name}" to appear in scheduling queue'
            )
        return SUCCESS if not group.is_gang or len(members.all) >= group.min_count else self._too_few

    def sign_queue(self, pod: Pod) -> Hashable:
        """Return the group: all its members get the same answer."""
        return pod.group_key

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True for a new member of the pod's group, for the new group itself, and where a gang needs
        fewer members than before.
        """
        if not self._is_mine(pod.group_key):
            return False
        if isinstance(event.new, Pod):
            return self._is_related(event.new.group_key, pod.group_key)
        group = as_group(event.new)
        if not self._is_related(group.key, pod.group_key):
            return False
        if event.old is None:
            return True
        if group.is_composite and not self._judges_trees:
            return False
        before = as_group(event.old)
        return before.is_gang and group.is_gang and group.min_count < before.min_count

    def _is_mine(self, key: str) -> bool:
        """Return True for a member of a group that this class judges."""
        return bool(key) and (key.startswith(_OF_COSCHEDULING) == (COSCHEDULING in self.kinds))

    def _is_related(self, one: str, other: str) -> bool:
        """Return True if two groups are the same, or parts of one tree of groups."""
        if not one or not other:
            return False
        if one == other or not self._has_trees:
            return one == other
        groups = self.handle.pod_groups()
        roots = groups.root(one), groups.root(other)
        return roots[0] is not None and roots[1] is not None and roots[0].key == roots[1].key

    # --- the group's cycle -------------------------------------------------------------------------

    def placement_feasible(self, state: CycleState, group: GroupView, progress: PlacementProgress) -> Status:
        """Return SUCCESS with `min_count` members on nodes, UNSCHEDULABLE where the rest cannot suffice."""
        if not self._is_mine(group.group.key):
            return SUCCESS
        if state.get(_GROUP) is None:
            state.write(_GROUP, group.group)
        least, remaining = group.group.min_count, progress.remaining
        scheduled = progress.scheduled - self._leaving(group.group, group.scheduled)
        if scheduled >= least:
            return SUCCESS
        if self._judges_trees:
            return _below_threshold(least, scheduled, progress)
        if scheduled + remaining < least:
            return Status.unschedulable(
                f"{self.minimum} ({least}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining"
            )
        text = f"{self.minimum} ({least}) is not yet satisfied: {scheduled} scheduled, {remaining} remaining"
        return Status(Code.WAIT, (text,))

    # --- Permit ------------------------------------------------------------------------------------

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        """Hold the pod until enough members have a node; the last one that is needed lets all of them go.

        Unlike upstream, no member is activated: while the cycle of a group runs, none of its members is in
        the queue.
        """
        key = pod.group_key
        if not self._is_mine(key):
            return SUCCESS
        groups = self.handle.pod_groups()
        root = groups.root(key)
        if root is not None and root.is_composite:
            if not _is_met(groups, root, self._count_scheduled):
                return PermitResult.wait(self.waiting_s(root), _no_quorum(root))
            leaves = (groups.state(one.key) for one in tree_of(groups, root) if not one.is_composite)
            return self._let_go([members for members in leaves if members is not None])
        # The group as the cycle saw it: a minimum that was raised meanwhile concerns the next cycle.
        group = None if state.placement is None else state.placement.get(_GROUP)
        group = group or groups.object(key)
        members = groups.state(key)
        if group is None or not group.is_gang or members is None:
            return SUCCESS
        if self._count_scheduled(group, members) < group.min_count:
            waiting = f"waiting for {self.minimum} pods from a gang to be scheduled"
            return PermitResult.wait(self.waiting_s(group), waiting)
        return self._let_go([members])

    def waiting_s(self, group: PodGroup) -> float:
        """Return the longest wait at Permit for the other members, in seconds."""
        return self._policy.for_group(group)[0].timeout_s

    def _count_scheduled(self, group: PodGroup, members: GroupMembers) -> int:
        """Return the number of members that have a node and count."""
        there = chain(members.assumed.values(), members.assigned.values())
        return members.scheduled_count - self._leaving(group, there)

    def _leaving(self, group: PodGroup, members: Iterable[Pod]) -> int:
        """Return how many of these members are terminating, for a group that is repaired.

        For other groups they count as members with a node, as in kube-scheduler. In a group that is repaired
        they are what is lost: on a node that is gone a member may be terminating for ever, and the members
        of an evicted group must not count for its new start.
        """
        if self._policy.for_group(group)[0].repair is Repair.LEAVE:
            return 0
        return sum(pod.terminating for pod in members)

    def _let_go(self, groups: Sequence[GroupMembers]) -> Status:
        """End the waits of the members of these groups, without members that were deleted meanwhile."""
        for waiting in self.handle.waiting_pods(only_mine=True):
            if any(waiting.pod.uid in members.assumed for members in groups):
                self.handle.allow(waiting)
        return SUCCESS


def _below_threshold(least: int, scheduled: int, progress: PlacementProgress) -> Status:
    """Return the status of a group with fewer than the `least` members (or child groups) on nodes."""
    is_lost = scheduled + progress.remaining < least
    verdict = "cannot be" if is_lost else "is not yet"
    text = (
        f"scheduling policy's minimum threshold ({least}) {verdict} satisfied:"
        f" {scheduled} scheduled, {progress.unschedulable} unschedulable, {progress.remaining} not-evaluated"
    )
    return Status.unschedulable(text) if is_lost else Status(Code.WAIT, (text,))


def _tree_is_ready(groups: PodGroupReader, key: str) -> Status:
    """Return SUCCESS if every group of the tree exists and the root has enough members or ready children."""
    root = groups.root(key)
    if root is None:
        circle = _circle(groups, key)
        if circle:
            return Status.error(f"cycle detected in the hierarchy: [{' '.join(circle)}]")
        name = key.rpartition("/")[2]
        return Status.unresolvable(
            f'pod group "{name}" or one of its composite pod group ancestors has not been created yet'
        )
    if _is_met(groups, root, _count_all):
        return SUCCESS
    if root.is_gang:
        return Status.unresolvable(f"waiting for {root.key} to meet its quorum")
    return Status.unresolvable(f"waiting for {root.key} tree to have at least one ready child group")


def _circle(groups: PodGroupReader, key: str) -> list[str]:
    """Return the keys of the groups upwards to the first one that comes again; empty if none does."""
    seen: dict[str, None] = {}
    while key:
        if key in seen:
            return [*seen, key]
        seen[key] = None
        group = groups.object(key)
        key = "" if group is None else group.parent_key
    return []


def _tree_is_complete(groups: PodGroupReader, key: str, too_few: Status) -> Status:
    root = groups.root(key)
    if root is None:
        return Status.unresolvable(f"failed to build hierarchy snapshot: {_what_lacks(groups, key)}")
    if _is_met(groups, root, _count_all):
        return SUCCESS
    return Status.unresolvable(_no_quorum(root)) if root.is_composite else too_few


def _what_lacks(groups: PodGroupReader, key: str) -> str:
    """Say which group above a pod is unknown, or that there are too many of them."""
    first, seen = key, set[str]()
    while key not in seen:
        seen.add(key)
        group = groups.object(key)
        if group is None:
            kind, namespace, name = key.split("/", 2)
            what = "composite pod group" if kind == COMPOSITE_POD_GROUP.lower() else "pod group"
            return f"{what} {namespace}/{name} not found"
        if not group.parent_key:
            return f"the tree of {key} changes"
        key = group.parent_key
    return f"{first} is among its own parents"


def _is_met(groups: PodGroupReader, group: PodGroup, count: Callable[[PodGroup, GroupMembers], int]) -> bool:
    """Return True if the group has enough members, or enough child groups that have enough."""

    def has_members(leaf: PodGroup) -> bool:
        members = groups.state(leaf.key)
        return members is not None and count(leaf, members) >= leaf.min_count

    return meets_minimum(groups, group, has_members)


def _count_all(group: PodGroup, members: GroupMembers) -> int:
    return len(members.all)


def _no_quorum(root: PodGroup) -> str:
    return f'waiting for composite pod group "{root.name}" tree to meet quorum'
