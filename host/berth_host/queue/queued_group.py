"""`QueuedGroupInfo`: the queue's record of one root pod group, with its queued members.

A group is one entry of the queue, whatever its size. It has counters, a timestamp and a backoff of its own;
its members keep theirs. A member is in the record of its group, or waits in `group_entries`, and never in a
place of the queue by itself.
Source: kube-scheduler `framework/types.go` (QueuedPodGroupInfo, PodGroupMemberPodsOrderingFunc), v1.37.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from berth_sdk.pod_group import PodGroup
from berth_sdk.results import QueuedPod

from berth_host.queue.group_forest import GroupTree
from berth_host.queue.interfaces import QueueProfile
from berth_host.queue.member_kinds import MemberKinds
from berth_host.queue.queued_pod import GATED, QueuedEntity, QueuedPodInfo


class GroupOutcome(Enum):
    """The result of a group's cycle for the queue: that of the root group, before PodGroupPostFilter."""

    SUCCESS = "success"
    """The root group was placed; members may be left."""
    REJECTED = "rejected"
    ERROR = "error"


MemberOrder = tuple[str, int, int, int, str]


def member_order(info: QueuedPodInfo) -> MemberOrder:
    """Return the key that sorts the members of an entry, in the order in which the cycle tries them.

    The leaf groups of a composite group come one after the other. In a group: highest priority, most
    attempts, oldest, name.
    """
    pod = info.pod
    return pod.group_key, -pod.priority, -info.attempts, info.timestamp_us, pod.name


@dataclass(slots=True, eq=False, kw_only=True)
class QueuedGroupInfo(QueuedEntity):
    """The record of one root group: a PodGroup without parent, or the CompositePodGroup above all others.

    group: the root group as the queue last saw it. members: the queued members, in `member_order`; empty
    only after the last one was removed. tree: the root group and the groups below it when it was popped.
    """

    is_group: ClassVar[bool] = True

    group: PodGroup
    members: list[QueuedPodInfo] = field(default_factory=list)
    tree: GroupTree = field(init=False)
    _kinds: MemberKinds | None = field(default=None, init=False, repr=False)
    _noted: str = field(default="", init=False, repr=False)
    """The plugin whose closed gate is the last entry in the history of each member; "" where it is not."""

    def __post_init__(self) -> None:
        self.tree = GroupTree(self.group)

    @property
    def key(self) -> str:
        """`podgroup/namespace/name` or `compositepodgroup/namespace/name`."""
        return self.group.key

    @property
    def uid(self) -> str:
        """The group's uid."""
        return self.group.uid

    @property
    def priority(self) -> int:
        """The group's priority, whatever the priorities of its pods; see `PodGroup.priority_among`."""
        # The first member has the highest priority.
        return self.group.priority_among([info.pod for info in self.members[:1]])

    @property
    def type(self) -> str:
        """The type in metrics: `podgroup` or `compositepodgroup`."""
        return self.group.api_kind.lower()

    @property
    def is_rejected(self) -> bool:
        """False: the plugins that rejected a member are in the record of the member."""
        return False

    def pods(self) -> Sequence[QueuedPodInfo]:
        """Return the records of the members in their order; a live view."""
        return self.members

    def kinds(self, profiles: Mapping[str, QueueProfile]) -> MemberKinds:
        """Return the members by kind. `profiles`: those of the queue, always the same."""
        kinds = self._kinds
        if kinds is None:
            kinds = self._kinds = MemberKinds(profiles)
            for info in self.members:
                kinds.put(info)
        return kinds

    def changed(self, info: QueuedPodInfo) -> None:
        """See QueuedEntity."""
        if self._kinds is not None:
            self._kinds.put(info)

    def add(self, info: QueuedPodInfo) -> None:
        """Add a member at its place in the order."""
        before = self.priority
        self._noted = ""
        insort(self.members, info, key=member_order)
        self.changed(info)
        self._priority_was(before)

    def remove(self, info: QueuedPodInfo) -> None:
        """Remove a member."""
        before = self.priority
        self.members.remove(info)
        if self._kinds is not None:
            self._kinds.remove(info.uid)
        self._priority_was(before)

    def sort(self) -> None:
        """Sort the members again, after a member changed."""
        self.members.sort(key=member_order)

    def _priority_was(self, before: int) -> None:
        """Have the sort key made again if the priority is another one now."""
        if self.members and self.priority != before:
            self.sort_key = None

    def count_attempt(self) -> None:
        """Count a pop for the group and for each member."""
        self.attempts += 1
        for info in self.members:
            info.count_attempt()

    def entered_active(self, now_us: int) -> None:
        """Record when the group, and each of its present members, entered activeQ first."""
        if self.initial_attempt_timestamp_us is None:
            self.initial_attempt_timestamp_us = now_us
        for info in self.members:
            info.entered_active(now_us)

    def note(self, now_us: int, what: str, about: str) -> None:
        """Add an entry to the history of each member."""
        members = self.members
        noted, self._noted = self._noted, about if what is GATED else ""
        if what is GATED:
            # A gang is put back for each member that arrives: most members have the entry already.
            if noted == about:
                return
            members = [
                info
                for info in members
                if not info.history or info.history[-1][1] is not GATED or info.history[-1][2] != about
            ]
        for info in members:
            info.note(now_us, what, about)

    def as_queued_pod(self, *, victims_pending: bool = False) -> QueuedPod:
        """Return the entry of the group, for QueueSort: with its first member, its time and its attempts."""
        first_us = self.initial_attempt_timestamp_us
        return QueuedPod(
            pod=self.members[0].pod,
            attempts=self.attempts,
            added_at_s=self.timestamp_us / 1e6,
            first_attempt_at_s=None if first_us is None else first_us / 1e6,
            victims_pending=victims_pending,
        ).of_group(self.group)

    def attempted(self, group: PodGroup, members: Iterable[QueuedPodInfo]) -> QueuedGroupInfo:
        """Return a new record for the next attempt: the counters of this one, other members."""
        return QueuedGroupInfo(
            group=group,
            members=sorted(members, key=member_order),
            timestamp_us=self.timestamp_us,
            attempts=self.attempts,
            initial_attempt_timestamp_us=self.initial_attempt_timestamp_us,
            unschedulable_count=self.unschedulable_count,
            consecutive_errors_count=self.consecutive_errors_count,
            backoff_expiration_us=self.backoff_expiration_us,
            gating_plugin=self.gating_plugin,
            gating_plugin_events=self.gating_plugin_events,
            gating_message=self.gating_message,
        )
