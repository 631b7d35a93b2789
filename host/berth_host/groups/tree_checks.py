"""The checks of a tree of pod groups before 1.38 tries the tree: its form is still that of the pop, and its
groups and pods have in common what they must.

Called by `group_rules`. Source: kube-scheduler `schedule_one_podgroup.go` (reconcilePodGroupWithSnapshot,
validatePodGroupHierarchy), `backend/cache/snapshot.go`, v1.38.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup

from berth_host.cache.pod_groups import MAX_DEPTH, GroupReader
from berth_host.queue.group_forest import GroupTree

_PODS: Final = "all pods in a pod group hierarchy should have the same"
_GROUPS: Final = "all pod groups in a hierarchy should have the same"


def changed_tree(groups: GroupReader, tree: GroupTree) -> str:
    """Say in what the groups of a snapshot differ from those of a popped tree; "" for nothing."""
    return next((text for one in tree.all() if (text := _changed(groups, one))), "")


def _changed(groups: GroupReader, tree: GroupTree) -> str:
    """Say in what one group of a popped tree differs; "" for nothing."""
    queued = tree.group
    found = groups.object(queued.key)
    kind = "composite pod group" if queued.is_composite else "pod group"
    if found is None:
        if queued.is_composite:
            if groups.children(queued.key):
                return f'composite pod group object not found for pod group "{queued.key}"'
            return f"composite pod group not found in snapshot: {queued.key}"
        lacks = "state" if groups.state(queued.key) is None else "object"
        return f"pod group {lacks} not found for pod group {queued.key}"
    if found.parent_key != queued.parent_key:
        return (
            f"different parent in {kind} between snapshot ({_name(found.parent_key)})"
            f" and queued entity ({_name(queued.parent_key)})"
        )
    if not queued.is_composite:
        return ""
    children = groups.children(queued.key)
    if len(children) != len(tree.children):
        return (
            f"different number of children in composite pod group between snapshot ({len(children)})"
            f" and queued entity ({len(tree.children)})"
        )
    return ""


def tree_differences(
    groups: GroupReader, key: str, waiting: Iterable[Pod], profiles: Iterable[str]
) -> tuple[str, bool]:
    """Say what is wrong with a tree, "" for nothing; and whether the objects are wrong, not the scheduler.

    `waiting`: the members to place, in order, at least one. `profiles`: the schedulerNames of the host.
    """
    root = groups.object(key)
    pods = list(waiting)
    if root is None or not pods:
        return "", False
    check = _TreeCheck(groups, root, pods)
    problem = check.subtree(root, None, 1)
    if not problem and pods[0].scheduler_name not in profiles:
        return f'profile not found for scheduler name "{pods[0].scheduler_name}"', False
    return problem, True


class _TreeCheck:
    """The checks of one tree. `first`: the member that says what the others must have."""

    def __init__(self, groups: GroupReader, root: PodGroup, waiting: list[Pod]) -> None:
        self._groups = groups
        self._root = root
        self._first = waiting[0]
        self._waiting: dict[str, list[Pod]] = {}
        for pod in waiting:
            self._waiting.setdefault(pod.group_key, []).append(pod)
        stated = root.preemption_policy if root.states_policy else ""
        self._policy = stated or _policy_of(self._first)

    def subtree(self, group: PodGroup, parent: PodGroup | None, depth: int) -> str:
        """Say what is wrong with a group and what is below it; "" for nothing."""
        if group.is_composite and depth == MAX_DEPTH:
            return f'hierarchy depth exceeds maximum allowed depth {MAX_DEPTH} at "{group.key}"'
        if group.is_composite and not group.workload_name:
            return (
                f"{group.key} has no spec.workloadRef, which a CompositePodGroup needs since Kubernetes 1.38:"
                " name the Workload of all groups of the tree in spec.workloadRef.workloadName"
            )
        problem = "" if parent is None else self._child(group, parent)
        if problem:
            return problem
        if group.is_composite:
            found = (self.subtree(child, group, depth + 1) for child in self._groups.children(group.key))
            return next(filter(None, found), "")
        state = self._groups.state(group.key)
        pods = [*self._waiting.get(group.key, ()), *(() if state is None else state.scheduled)]
        return next(filter(None, map(self._pod, pods)), "")

    def _child(self, group: PodGroup, parent: PodGroup) -> str:
        root = self._root
        if group.workload_name != root.workload_name:
            return (
                f'pod group workload does not match root workload, got: "{group.workload_name}"'
                f' ("{group.key}") and "{root.workload_name}" ("{root.key}")'
            )
        if group.priority != root.priority:
            return (
                f"{_GROUPS} priority as the root pod group's priority,"
                f' got {group.priority} ("{group.key}") and {root.priority} ("{root.key}")'
            )
        if group.states_policy and group.preemption_policy != self._policy:
            return (
                f"{_GROUPS} preemption policy,"
                f' got {group.preemption_policy} ("{group.key}") and {self._policy}'
            )
        if parent.is_gang and not group.is_gang:
            return f'gang parent "{parent.key}" cannot have basic child "{group.key}"'
        if parent.disrupts_all and group.disrupts_single:
            return (
                f'parent "{parent.key}" with All disruption mode cannot have child "{group.key}"'
                " with Single disruption mode"
            )
        return ""

    def _pod(self, pod: Pod) -> str:
        first, root = self._first, self._root
        if pod.scheduler_name != first.scheduler_name:
            return (
                f'{_PODS} .spec.schedulerName set, got: "{pod.scheduler_name}" ("{pod.name}")'
                f' and "{first.scheduler_name}" ("{first.name}")'
            )
        if root.is_coscheduling:
            return ""
        if pod.priority != root.priority:
            return (
                f"{_PODS} priority as the root pod group's priority,"
                f' got {pod.priority} ("{pod.name}") and {root.priority} ("{root.key}")'
            )
        policy = _policy_of(pod)
        if policy != self._policy:
            return f'{_PODS} preemption policy, got {policy} ("{pod.name}") and {self._policy}'
        return ""


def _policy_of(pod: Pod) -> str:
    return "Never" if pod.never_preempts else "PreemptLowerPriority"


def _name(key: str) -> str:
    return key.rpartition("/")[2] or "[unset]"
