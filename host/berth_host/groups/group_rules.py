"""`GroupRules`: what becomes of the outcome of a group's cycle, in words and in its tree, by version.

    an answer of PlacementFeasible, or a run without a place -> the status of the group (`GroupStatus`)
    the status of a group -> its child groups, its members that were not tried, its condition

Two classes: `FlatGroups` (1.37) shares the status of a failed group with the groups below it and tells its
members the cause. `GroupTrees` (1.38) gives each group a status of its own; its members are told the name of
their group, and the plugins that rejected it. `HostRules` chooses; `schedule_group` and `placements` call it.
Source: kube-scheduler `schedule_one_podgroup.go`, v1.37; `schedule_one_podgroup.go`, `algorithm_podgroup.go`
and `types.go`, v1.38.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.status import Code, Status

from berth_host.cache.pod_groups import GroupReader
from berth_host.config.host_rules import HostRules
from berth_host.cycle.attempt import SCHEDULER_ERROR, Failed
from berth_host.groups.group_attempt import UNSCHEDULABLE, Branch, GroupProblem, GroupStatus, Member
from berth_host.groups.tree_checks import changed_tree, tree_differences
from berth_host.queue.queued_group import QueuedGroupInfo

_SAME: Final = "all pods in a single pod group should have the same"


class GroupRules(Protocol):
    """The rules of one version of kube-scheduler. `judges_trees`: `HostRules.judges_group_trees`."""

    judges_trees: bool

    def feasible(self, answer: Status) -> GroupStatus:
        """Return the status of a group for an answer SUCCESS, WAIT or rejected of PlacementFeasible."""
        ...

    def not_begun(self, status: GroupStatus) -> GroupStatus:
        """Return the status of a group of which no member was tried, from that of the first answer."""
        ...

    def completed(self, status: GroupStatus) -> GroupStatus:
        """Return the status after the last member or child group, from that of the last answer."""
        ...

    def nobody_placed(self) -> GroupStatus:
        """Return the status of a root group that needs no further member, where none fits."""
        ...

    def without_placement(self, first: GroupStatus, count: int) -> GroupStatus:
        """Return the status of a group that fits none of `count` placements. `first`: that of the first one
        that was tried.
        """
        ...

    def child_failed(self, group: PodGroup, child: Branch) -> GroupStatus:
        """Return the status of a composite group after an error in a child group."""
        ...

    def after_error(self, branch: Branch) -> None:
        """Forget what a group that ended with an error has below it, where this shares its status."""
        ...

    def fill_in(self, tree: Branch) -> None:
        """Give the groups below a failed one, and the members that were not tried, their statuses."""
        ...

    def add_reason(self, tree: Branch, reason: str) -> None:
        """Add what PodGroupPostFilter says to the status of each group."""
        ...

    def refused(self, branch: Branch, *, waits: bool) -> Failed:
        """Return the end of the attempt of a member that fits, in a group that has no place. `waits`: the
        group waits for a preemption. Without a nomination to keep or to clear.
        """
        ...

    def error_text(self, branch: Branch, member: Member) -> str:
        """Return the text for a member of a group that ended with an error."""
        ...

    def problem(
        self, groups: GroupReader, info: QueuedGroupInfo, pods: Iterable[Pod], profiles: Iterable[str]
    ) -> GroupProblem | None:
        """Return why a popped group must not be tried now; None: it may be. `pods`: the members to place, at
        least one. `profiles`: the schedulerNames that the host knows.
        """
        ...


class FlatGroups:
    """The rules of 1.37. `group_policy`: the group says whether it preempts (the gate
    PodGroupPreemptionPolicy), else its pods.
    """

    judges_trees = False

    def __init__(self, *, group_policy: bool = False) -> None:
        self._group_policy = group_policy

    def feasible(self, answer: Status) -> GroupStatus:
        """See `GroupRules`."""
        return GroupStatus.of(answer)

    def not_begun(self, status: GroupStatus) -> GroupStatus:
        """See `GroupRules`."""
        if status.is_rejected:
            status.error = UNSCHEDULABLE
        return status

    def completed(self, status: GroupStatus) -> GroupStatus:
        """See `GroupRules`."""
        if status.code is Code.WAIT:
            return GroupStatus(Code.UNSCHEDULABLE, *status.reasons, error=UNSCHEDULABLE)
        return status

    def nobody_placed(self) -> GroupStatus:
        """See `GroupRules`."""
        return GroupStatus(Code.UNSCHEDULABLE, error=UNSCHEDULABLE)

    def without_placement(self, first: GroupStatus, count: int) -> GroupStatus:
        """See `GroupRules`."""
        return GroupStatus(Code.UNSCHEDULABLE, _placements_text(count, first.text), error=UNSCHEDULABLE)

    def child_failed(self, group: PodGroup, child: Branch) -> GroupStatus:
        """See `GroupRules`."""
        text = "" if child.status is None else child.status.text
        return GroupStatus.failed(f"composite pod group evaluation failed due to child error: {text}")

    def after_error(self, branch: Branch) -> None:
        """See `GroupRules`."""
        for child in branch.children:
            for below in child.all():
                below.status = None
            for member in child.all_members():
                member.forget()

    def fill_in(self, tree: Branch) -> None:
        """See `GroupRules`."""
        status = tree.status
        if status is None or status.is_success:
            status = None
        for member in tree.members:
            if status is not None and member.result is None and member.failed is None:
                member.failed = Failed(status.status(), status.message, nominated=None)
        for child in tree.children:
            if status is not None and (child.status is None or child.status.is_success):
                # A group that fails fails its child groups too. Their members lose the places that they have.
                child.status = status
                for member in child.members:
                    member.result = member.failed = None
            self.fill_in(child)

    def add_reason(self, tree: Branch, reason: str) -> None:
        """See `GroupRules`. A child may share the status of a group above it, and gets the reason twice then,
        as upstream.
        """
        for status in [branch.status for branch in tree.all() if branch.status is not None]:
            status.reasons.append(reason)

    def refused(self, branch: Branch, *, waits: bool) -> Failed:
        """See `GroupRules`."""
        message = "" if branch.status is None else branch.status.message
        text = message if waits else f"{UNSCHEDULABLE}, {message}"
        return Failed(Status.unschedulable(text), text)

    def error_text(self, branch: Branch, member: Member) -> str:
        """See `GroupRules`."""
        return "" if branch.status is None else branch.status.message

    def problem(
        self, groups: GroupReader, info: QueuedGroupInfo, pods: Iterable[Pod], profiles: Iterable[str]
    ) -> GroupProblem | None:
        """See `GroupRules`."""
        waiting = list(pods)
        for pod in waiting:
            root = groups.root(pod.group_key)
            if root is None or root.key != info.key:
                return GroupProblem(f"pod group object not found for pod group {info.key}")
        found = differences(groups, info.key, waiting, group_policy=self._group_policy)
        if not found and waiting[0].scheduler_name not in profiles:
            found = _unknown_profile(waiting[0])
        told = {leaf.key: SCHEDULER_ERROR for leaf in groups.leaves(info.key)}
        return GroupProblem(found, told) if found else None


class GroupTrees:
    """The rules of 1.38."""

    judges_trees = True

    def feasible(self, answer: Status) -> GroupStatus:
        """See `GroupRules`."""
        if answer.is_success:
            return GroupStatus(Code.SUCCESS)
        code = Code.WAIT if answer.code is Code.WAIT else Code.UNSCHEDULABLE
        return GroupStatus.fit_error(answer.message, _plugins_of(answer), code=code)

    def not_begun(self, status: GroupStatus) -> GroupStatus:
        """See `GroupRules`."""
        return status

    def completed(self, status: GroupStatus) -> GroupStatus:
        """See `GroupRules`."""
        if status.code is Code.WAIT:
            status.code = Code.UNSCHEDULABLE
        return status

    def nobody_placed(self) -> GroupStatus:
        """See `GroupRules`."""
        return GroupStatus.fit_error("no pods were schedulable")

    def without_placement(self, first: GroupStatus, count: int) -> GroupStatus:
        """See `GroupRules`."""
        text = "nominated placement is feasible but no pending pod was scheduled"
        text = text if first.is_success else first.message
        return GroupStatus.fit_error(_placements_text(count, text), first.plugins)

    def child_failed(self, group: PodGroup, child: Branch) -> GroupStatus:
        """See `GroupRules`."""
        text = "" if child.status is None else child.status.text
        return GroupStatus.failed(
            f'composite pod group "{group.name}" evaluation failed due to child "{child.group.name}" error:'
            f" {text}"
        )

    def after_error(self, branch: Branch) -> None:
        """See `GroupRules`: each group has a status of its own."""

    def fill_in(self, tree: Branch) -> None:
        """See `GroupRules`."""
        self._fill_in(tree, None)

    def _fill_in(self, branch: Branch, failed: Branch | None) -> None:
        """Fill in a group and what is below it. `failed`: the next group above it that failed."""
        status = branch.status
        if failed is not None and failed.status is not None:
            above = failed.status
            if status is None or status.is_success or (above.is_error and not status.is_error):
                status = branch.status = _below(failed.group, above)
            else:
                failed = branch
        elif status is not None and not status.is_success:
            failed = branch
        if status is not None and not status.is_success:
            for member in branch.members:
                if member.result is None and member.failed is None:
                    member.failed = self._not_tried(branch, status)
        for child in branch.children:
            self._fill_in(child, failed)

    def _not_tried(self, branch: Branch, status: GroupStatus) -> Failed:
        if status.is_error:
            text = _parent_failed(branch.group)
            return Failed(Status.error(text), text, nominated=None)
        failed = self.refused(branch, waits=False)
        failed.nominated = None
        return failed

    def add_reason(self, tree: Branch, reason: str) -> None:
        """See `GroupRules`."""
        for branch in tree.all():
            if reason and branch.status is not None:
                branch.status.reasons.append(reason)

    def refused(self, branch: Branch, *, waits: bool) -> Failed:
        """See `GroupRules`."""
        status = branch.status
        if status is None or not status.is_fit_error:
            text = "" if status is None else status.message
            return Failed(Status.unschedulable(text), text)
        text = f'parent pod group "{branch.group.name}" is unschedulable'
        return Failed(status.status(), text, plugins=status.plugins)

    def error_text(self, branch: Branch, member: Member) -> str:
        """See `GroupRules`."""
        return _parent_failed(branch.group)

    def problem(
        self, groups: GroupReader, info: QueuedGroupInfo, pods: Iterable[Pod], profiles: Iterable[str]
    ) -> GroupProblem | None:
        """See `GroupRules`."""
        tree = info.tree
        text, reason = changed_tree(groups, tree), SCHEDULER_ERROR
        if not text:
            text, is_invalid = tree_differences(groups, info.key, pods, profiles)
            reason = "PodGroupError" if is_invalid else SCHEDULER_ERROR
        if not text:
            return None
        told = {
            one.key: f"Composite{reason}" if one.is_composite and reason != SCHEDULER_ERROR else reason
            for one in (below.group for below in tree.all())
        }
        return GroupProblem(text, told)


def rules_of(rules: HostRules, *, group_policy: bool = False) -> GroupRules:
    """Return the rules of a version. `group_policy`: see `FlatGroups`."""
    return GroupTrees() if rules.judges_group_trees else FlatGroups(group_policy=group_policy)


def differences(groups: GroupReader, key: str, waiting: Iterable[Pod], *, group_policy: bool) -> str:
    """Say in what the members of a root group differ that must be equal in 1.37; "" for nothing.

    `waiting`: those without a node, at least one. `group_policy`: see `FlatGroups`.
    """
    root = groups.object(key)
    pods = list(waiting)
    first = pods[0]
    for leaf in groups.leaves(key):
        state = groups.state(leaf.key)
        pods.extend(() if state is None else state.scheduled)
    for pod in pods:
        if pod.scheduler_name != first.scheduler_name:
            names = f'"{first.scheduler_name}" and "{pod.scheduler_name}"'
            return f"{_SAME} .spec.schedulerName set, got: {names}"
        if root is not None and root.is_coscheduling:
            continue
        if root is not None and pod.priority != root.priority:
            return f"{_SAME} priority as the pod group's priority, got {pod.priority} and {root.priority}"
        policy = _policy(pod.never_preempts)
        if group_policy:
            if root is not None and pod.never_preempts != root.never_preempts:
                return (
                    f"{_SAME} preemption policy as the pod group's preemption policy,"
                    f" got {policy} and {_policy(root.never_preempts)}"
                )
        elif pod.never_preempts != first.never_preempts:
            return f"{_SAME} preemption policy, got {policy} and {_policy(first.never_preempts)}"
    return ""


def _placements_text(count: int, first: str) -> str:
    return f"0/{count} placements are available, first placement status: {first}"


def _below(group: PodGroup, failed: GroupStatus) -> GroupStatus:
    """Return the status of a group below one that failed, which names that group alone."""
    if failed.is_error:
        return GroupStatus.failed(f'ancestor composite pod group "{group.name}" encountered an error')
    text = f'ancestor composite pod group "{group.name}" is unschedulable'
    return GroupStatus.fit_error(text, failed.plugins, code=failed.code)


def _parent_failed(group: PodGroup) -> str:
    return f'parent pod group "{group.name}" encountered an error'


def _plugins_of(answer: Status) -> frozenset[str]:
    return frozenset({answer.plugin}) if answer.plugin else frozenset()


def _unknown_profile(pod: Pod) -> str:
    return f'profile not found for scheduler name "{pod.scheduler_name}"'


def _policy(never: bool) -> str:
    return "Never" if never else "PreemptLowerPriority"
