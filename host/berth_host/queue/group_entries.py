"""`GroupEntries`: pod groups as entries of the queue, and the members that are in no entry.

    member -its group is unknown-> incomplete -the group's object comes-> entry
    member -its group is in a cycle-> pending -the cycle ends-> entry
    member -else-> entry -popped-> in the group's cycle -rejected-> pending

Each member that the queue holds is in exactly one of: the entry of its root group, incomplete, pending. A
group has one entry at most, and none while it is in a cycle. Owned by `SchedulingQueue`.
Source: kube-scheduler `backend/queue/scheduling_queue.go` (addPodGroupMember, deletePodGroupMember,
AddAttemptedPodGroupIfNeeded, AddPodGroup, DeletePodGroup) and `pod_group_member_pods.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from berth_sdk.events import UNSCHEDULED_POD, ActionType
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup

from berth_host.config.host_rules import RULES_1_37
from berth_host.queue.events import ATTEMPT_FAILED, label_of
from berth_host.queue.gates import STANDS, UNANSWERED, Answered
from berth_host.queue.group_forest import GroupForest
from berth_host.queue.hints import Strategy
from berth_host.queue.places import Place, Places
from berth_host.queue.queued_group import GroupOutcome, QueuedGroupInfo, member_order
from berth_host.queue.queued_pod import INCOMPLETE, QueuedEntity, QueuedPodInfo

_ADDED: Final = RULES_1_37.pod_add
_UPDATED: Final = label_of(UNSCHEDULED_POD, ActionType.UPDATE)
_BACK: dict[Place, Strategy] = {
    Place.ACTIVE: Strategy.IMMEDIATELY,
    Place.BACKOFF: Strategy.AFTER_BACKOFF,
    Place.POOL: Strategy.SKIP,
}
"""The strategy that puts an entry back where it was taken from, after its members were changed."""


class Aside(Enum):
    """The two stores of members that are in no entry, spelled as the metric's label."""

    INCOMPLETE = "incomplete"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Held:
    """The place of a pod in the queue. `entity`: the record of the pod or its group; None beside them."""

    place: Place | Aside
    info: QueuedPodInfo
    entity: QueuedEntity | None


class GroupEntries:
    """The entries of groups, and the members beside them. `now_us`: returns Unix microseconds."""

    def __init__(self, places: Places, now_us: Callable[[], int]) -> None:
        self._places = places
        self._now_us = now_us
        self.forest = GroupForest()
        self._aside: dict[Aside, dict[str, QueuedPodInfo]] = {aside: {} for aside in Aside}
        """By the pod's key."""
        self._in_cycle: dict[str, QueuedGroupInfo] = {}
        """The popped groups whose cycle has not ended, by key."""
        self._failed_on: dict[str, str] = {}
        """The plugin because of which a member's attempt failed, by key of the group in its cycle."""

    # --- reads -------------------------------------------------------------------------------

    def root_of(self, pod: Pod) -> PodGroup | None:
        """Return the root group of a member; None while the queue does not know all groups above the pod."""
        return self.forest.root_of(pod.group_key)

    def held(self, pod: Pod) -> Held | None:
        """Return where the queue holds a pod; see `SchedulingQueue.find`."""
        if not pod.group_key:
            found = self._places.find(pod.key)
            if found is None or not isinstance(found[1], QueuedPodInfo):
                return None
            return Held(found[0], found[1], found[1])
        for aside, infos in self._aside.items():
            info = infos.get(pod.key)
            if info is not None and info.uid == pod.uid:
                return Held(aside, info, None)
        entry = self.entry_of(pod)
        info = None if entry is None else entry[1].find(pod)
        return None if entry is None or info is None else Held(entry[0], info, entry[1])

    def entity_key(self, pod: Pod) -> str:
        """Return the key that the pod's entity has in the places; "" for a member of an unknown group."""
        if not pod.group_key:
            return pod.key
        root = self.root_of(pod)
        return "" if root is None else root.key

    def entry_of(self, pod: Pod) -> tuple[Place, QueuedGroupInfo] | None:
        """Return the entry of the member's root group with its place; None if the group is not queued.

        The entry need not have the member.
        """
        root = self.root_of(pod)
        found = None if root is None else self._places.find(root.key)
        if found is None or not isinstance(found[1], QueuedGroupInfo):
            return None
        return found[0], found[1]

    def aside(self, which: Aside) -> Iterator[QueuedPodInfo]:
        """Return the members in one store."""
        return iter(self._aside[which].values())

    def aside_count(self, which: Aside) -> int:
        """Return the number of members in one store."""
        return len(self._aside[which])

    # --- members -----------------------------------------------------------------------------

    def add(self, info: QueuedPodInfo, failed_plugin: str = "") -> None:
        """Put a member that is new, or comes back from an attempt, where it belongs now.

        `failed_plugin`: the plugin because of which the attempt ended in an error.
        """
        root = self.root_of(info.pod)
        if root is None:
            self._aside[Aside.INCOMPLETE][info.key] = info
            info.note(self._now_us(), INCOMPLETE, self.forest.missing_above(info.pod.group_key))
            return
        found = self.entry_of(info.pod)
        if found is not None:
            place, entry = found
            self._put_back(place, entry, lambda: entry.add(info), joined=(info.uid,))
        elif root.key in self._in_cycle:
            self._aside[Aside.PENDING][info.key] = info
            if failed_plugin:
                self._failed_on[root.key] = failed_plugin
        else:
            entry = QueuedGroupInfo(
                group=root,
                timestamp_us=info.timestamp_us,
                initial_attempt_timestamp_us=info.initial_attempt_timestamp_us,
                members=[info],
            )
            self._places.requeue(entry, Strategy.IMMEDIATELY, _ADDED, afresh=True)

    def remove(self, pod: Pod) -> bool:
        """Remove a member that was deleted or bound; return True if the queue had the member or its group.

        The entry of the group is put back even if it does not have the member: the gates are called for the
        others, and still count the member. A served plugin would be asked too late for that, so that its
        answers stand.
        """
        held = self.held(pod)
        if held is not None and isinstance(held.place, Aside):
            del self._aside[held.place][pod.key]
            return True
        found = self.entry_of(pod)
        if found is None:
            return False
        place, entry = found

        def drop() -> None:
            if held is not None:
                entry.remove(held.info)

        self._put_back(place, entry, drop, answered=UNANSWERED if place is Place.POOL else STANDS)
        return True

    def replace_pod(self, held: Held, pod: Pod) -> None:
        """Store a new version of a pod that the queue holds; the pod stays where it is."""
        entity, place = held.entity, held.place
        if entity is None or isinstance(place, Aside):
            held.info.replace_pod(pod)
            return
        before = member_order(held.info)
        self._places.replace_pod(place, entity, held.info, pod)
        if isinstance(entity, QueuedGroupInfo) and member_order(held.info) != before:
            entity.sort()

    def _put_back(
        self,
        place: Place,
        entry: QueuedGroupInfo,
        change: Callable[[], None],
        label: str = _ADDED,
        *,
        joined: tuple[str, ...] = (),
        answered: Answered = UNANSWERED,
    ) -> None:
        """Take an entry out of its place, change its members, and put it back; drop it without members.

        The gates are called, except in the pool: a gated group stays there until an event opens its gate.
        `joined`: the uid of a new member. `answered`: what is known about the gates.
        """
        awaited = self._places.gates.open_move(entry)
        self._places.take_out(entry.key)
        change()
        if not entry.members:
            self._places.order.forget(entry)
            return
        if awaited is not None:
            # A gate has not answered about the members: it is asked about those of now.
            known = replace(awaited.answered, late=awaited.answered.late + joined)
            self._places.requeue(entry, awaited.strategy, awaited.label, known)
        else:
            self._places.requeue(entry, _BACK[place], label, answered)

    # --- group objects -----------------------------------------------------------------------

    def add_group(self, group: PodGroup) -> None:
        """Take a new group object; the members that waited for it are queued, in member order."""
        self.forest.put(group)
        released = [
            info for info in self._aside[Aside.INCOMPLETE].values() if self.root_of(info.pod) is not None
        ]
        for info in sorted(released, key=member_order):
            del self._aside[Aside.INCOMPLETE][info.key]
            self.add(info)

    def update_group(self, group: PodGroup) -> None:
        """Take a new version of a group object."""
        self.forest.put(group)
        found = self._places.find(group.key)
        entry = self._in_cycle.get(group.key) if found is None else found[1]
        if not isinstance(entry, QueuedGroupInfo):
            return
        is_resorted = entry.group.priority != group.priority
        entry.group = group
        if is_resorted and found is not None:
            self._places.renew_order(entry)

    def delete_group(self, group: PodGroup) -> None:
        """Drop a group object: its members, and those of the groups below it, wait for it again."""
        root = self.forest.root_of(group.key)
        self.forest.remove(group.key)
        if root is None:
            return
        for info in list(self._aside[Aside.PENDING].values()):
            if self.root_of(info.pod) is None:
                del self._aside[Aside.PENDING][info.key]
                self.add(info)
        found = self._places.find(root.key)
        if found is None or not isinstance(found[1], QueuedGroupInfo):
            return
        place, entry = found[0], found[1]
        left = [info for info in entry.members if self.root_of(info.pod) is None]
        if not left:
            return

        def drop() -> None:
            for info in left:
                entry.remove(info)

        self._put_back(place, entry, drop, _UPDATED)
        for info in left:
            self.add(info)

    # --- the cycle ---------------------------------------------------------------------------

    def popped(self, entry: QueuedGroupInfo) -> None:
        """Record that a group's cycle begins."""
        self._in_cycle[entry.key] = entry
        entry.tree = self.forest.tree(entry.group)

    def attempted(self, entry: QueuedGroupInfo, outcome: GroupOutcome) -> str:
        """End a group's cycle; queue the members that were given back, or that came in the meantime.

        Returns the plugin because of which a member failed, if the group backs off; else "".
        """
        self._in_cycle.pop(entry.key, None)
        failed_plugin = self._failed_on.pop(entry.key, "")
        pending = self._aside[Aside.PENDING]
        left = [
            info
            for info in pending.values()
            if (root := self.root_of(info.pod)) is not None and root.key == entry.key
        ]
        root = self.forest.get(entry.key)
        if not left or root is None:
            return ""
        for info in left:
            del pending[info.key]
        now_us = self._now_us()
        retried = entry.attempted(root, left)
        strategy = Strategy.AFTER_BACKOFF
        if outcome is GroupOutcome.SUCCESS:
            retried.unschedulable_count = retried.consecutive_errors_count = 0
            strategy = Strategy.IMMEDIATELY
            tried = {info.uid for info in entry.members}
            if not any(info.uid in tried for info in left):
                retried.timestamp_us = now_us
        else:
            if outcome is GroupOutcome.REJECTED:
                retried.unschedulable_count += 1
                retried.consecutive_errors_count = 0
            else:
                retried.consecutive_errors_count += 1
            retried.backoff_expiration_us = None
            retried.timestamp_us = now_us
        place = self._places.requeue(retried, strategy, ATTEMPT_FAILED, afresh=True)
        return failed_plugin if place is Place.BACKOFF else ""
