"""`PodGroups`: the group objects and the states of their members now. `SnapshotGroups`: a copy for a cycle.

The event handlers write the objects and the unbound members; `Cache` writes the members on nodes. A state
that a snapshot has taken never changes again: the next change makes a copy of it.
Source: kube-scheduler `backend/cache/podgroupstate.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, TypeAlias

from berth_sdk.group_tree import meets_minimum, tree_of
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.tables.generation_log import GenerationLog

from berth_host.cache.generations import Generations

MAX_DEPTH: Final = 4
"""The most groups from a leaf to its root, both counted."""


class MemberState(Enum):
    """The states of a member of a group: without a node, assumed on one, or bound to one."""

    UNSCHEDULED = "unscheduled"
    ASSUMED = "assumed"
    ASSIGNED = "assigned"


Member: TypeAlias = tuple[Pod, MemberState]
"""A member's record in its group, and its state."""


@dataclass(slots=True, eq=False)
class GroupState:
    """The members of one group by uid. `all` has every member, also gated, waiting and terminating ones.

    `assumed`: members that have a node for which the watch has not shown the binding yet.
    `assigned`: bound members. Callers outside this module must not change a state.
    """

    all: dict[str, Pod] = field(default_factory=dict)
    unscheduled: dict[str, Pod] = field(default_factory=dict)
    assumed: dict[str, Pod] = field(default_factory=dict)
    assigned: dict[str, Pod] = field(default_factory=dict)

    @property
    def scheduled_count(self) -> int:
        """The number of assumed and assigned members."""
        return len(self.assumed) + len(self.assigned)

    @property
    def scheduled(self) -> tuple[Pod, ...]:
        """The assumed and the assigned members."""
        return (*self.assumed.values(), *self.assigned.values())

    def member(self, uid: str) -> MemberState | None:
        """Return the state of a member; None if the group has no such member."""
        if uid in self.assumed:
            return MemberState.ASSUMED
        if uid in self.assigned:
            return MemberState.ASSIGNED
        return MemberState.UNSCHEDULED if uid in self.unscheduled else None

    def put(self, pod: Pod, member: MemberState) -> None:
        """Add a member, or replace it."""
        self.remove(pod.uid)
        self.all[pod.uid] = pod
        self._of(member)[pod.uid] = pod

    def remove(self, uid: str) -> Pod | None:
        """Remove a member and return it; None if the group has no such member."""
        pod = self.all.pop(uid, None)
        if pod is not None:
            for part in (self.unscheduled, self.assumed, self.assigned):
                part.pop(uid, None)
        return pod

    def copy(self) -> GroupState:
        """Return a state with the same members that may be changed."""
        return GroupState(self.all.copy(), self.unscheduled.copy(), self.assumed.copy(), self.assigned.copy())

    def _of(self, member: MemberState) -> dict[str, Pod]:
        part: dict[str, Pod] = getattr(self, member.value)
        return part


class GroupReader:
    """Group objects and member states by key, as both the live groups and a snapshot's copy offer them."""

    def __init__(self) -> None:
        self._objects: dict[str, PodGroup] = {}
        self._states: dict[str, GroupState] = {}
        self._children: dict[str, set[str]] = {}
        self.judges_trees = False
        """`HostRules.judges_group_trees`: the depth of a tree is not limited here, as the cycle refuses a
        tree that is too deep; and a pod's own priority decides who may preempt it.
        """

    def object(self, key: str) -> PodGroup | None:
        """Return the object of a group; None if there is none."""
        return self._objects.get(key)

    def objects(self) -> Iterator[PodGroup]:
        """Return all group objects."""
        return iter(self._objects.values())

    def state(self, key: str) -> GroupState | None:
        """Return the members of a group; None if there is neither a member nor an object."""
        return self._states.get(key)

    def group_keys(self) -> Iterator[str]:
        """Return the keys of all groups that have a state."""
        return iter(self._states)

    def path(self, key: str) -> tuple[PodGroup, ...] | None:
        """Return the group's object and its ancestors up to the root.

        None while one of the objects is missing, for a circle, and for more than MAX_DEPTH groups unless
        `judges_trees`.
        """
        found: dict[str, PodGroup] = {}
        while key:
            group = self._objects.get(key)
            if group is None or key in found or (len(found) >= MAX_DEPTH and not self.judges_trees):
                return None
            found[key] = group
            key = group.parent_key
        return tuple(found.values())

    def known_path(self, key: str) -> Iterator[PodGroup]:
        """Yield the group's object and its ancestors, up to the first one that does not exist.

        Preemption reads the groups like this. At most MAX_DEPTH groups, or once around a circle.
        """
        seen: set[str] = set()
        while key not in seen and (self.judges_trees or len(seen) < MAX_DEPTH):
            seen.add(key)
            group = self._objects.get(key) if key else None
            if group is None:
                return
            yield group
            key = group.parent_key

    def eviction_priority(self, pod: Pod) -> int:
        """Return the priority that decides who may preempt the pod: that of the root of its tree of groups,
        or its own.
        """
        priority = pod.priority
        if self.judges_trees:
            return priority
        for group in self.known_path(pod.group_key):
            priority = group.priority_among((pod,))
        return priority

    def root(self, key: str) -> PodGroup | None:
        """Return the root of a group's tree, the group itself if it has no parent.

        None where `path` is None.
        """
        path = self.path(key)
        return path[-1] if path else None

    def root_key(self, pod: Pod) -> str:
        """Return the key of the root of the pod's group; "" for a pod without a group, or where an object
        between the pod and the root is missing.
        """
        root = self.root(pod.group_key) if pod.group_key else None
        return "" if root is None else root.key

    def children(self, key: str) -> list[PodGroup]:
        """Return the child groups of a CompositePodGroup, by creation time, then name."""
        found = [self._objects[child] for child in self._children.get(key, ())]
        return sorted(found, key=lambda group: (group.created_s or 0.0, group.name, group.kind))

    def leaves(self, key: str, levels: int | None = None) -> list[PodGroup]:
        """Return the groups under a root that have pods: the group itself unless it is composite. `levels`:
        see `tree_of`.
        """
        group = self._objects.get(key)
        return [] if group is None else [one for one in tree_of(self, group, levels) if not one.is_composite]

    def has_minimum(self, group: PodGroup, levels: int | None = None) -> bool:
        """Return True if enough members of a group have a node; of a composite group, if enough child groups
        have their minimum. `levels`: see `tree_of`.
        """
        return meets_minimum(self, group, self._has_members, levels)

    def _has_members(self, group: PodGroup) -> bool:
        state = self.state(group.key)
        return state is not None and state.scheduled_count >= group.min_count

    def _set_object(self, key: str, group: PodGroup | None) -> None:
        old = self._objects.get(key)
        if old is group:
            return
        if old is not None and old.parent_key:
            siblings = self._children[old.parent_key]
            siblings.discard(key)
            if not siblings:
                del self._children[old.parent_key]
        if group is None:
            del self._objects[key]
            return
        self._objects[key] = group
        if group.parent_key:
            self._children.setdefault(group.parent_key, set()).add(key)


class PodGroups(GroupReader):
    """The live groups of one cache. `composite`: False ignores the parents that groups name.

    A group exists while it has an object or a member. Members are identified by uid.
    """

    def __init__(self, generations: Generations | None = None, *, composite: bool = False) -> None:
        super().__init__()
        self._generations = generations if generations is not None else Generations()
        self._composite = composite
        self._lent: set[str] = set()
        """The keys of states that a snapshot has taken since their last change."""
        self.changed: GenerationLog[str] = GenerationLog()
        """The keys of groups with a changed object or state."""
        self.on_change: Callable[[str], None] = lambda _: None
        """Called with the key of each such group, before the change is complete."""

    # --- objects -------------------------------------------------------------------------------

    def put_object(self, group: PodGroup) -> tuple[PodGroup | None, PodGroup]:
        """Store a group's object. Return the one that had its key, or None, and the one that is stored."""
        if group.parent_key and not self._composite:
            group = replace(group, parent_key="")
        key = group.key
        old = self._objects.get(key)
        self._set_object(key, group)
        self._own(key)
        return old, group

    def remove_object(self, key: str) -> PodGroup | None:
        """Remove a group's object and return it; None if there was none. The members stay."""
        old = self._objects.get(key)
        if old is not None:
            self._set_object(key, None)
            self._own(key)
            self._drop_if_empty(key)
        return old

    # --- members -------------------------------------------------------------------------------

    def put_unscheduled(self, pod: Pod) -> None:
        """Add or replace a member without a node. Has no effect on a member that is assumed or bound."""
        key = pod.group_key
        if not key:
            return
        known = self._states.get(key)
        if known is None or known.member(pod.uid) in (None, MemberState.UNSCHEDULED):
            self._own(key).put(pod, MemberState.UNSCHEDULED)

    def remove_unscheduled(self, pod: Pod) -> None:
        """Remove a deleted member that the watch never showed on a node, assumed or not."""
        self._remove(pod)

    def assume(self, pod: Pod) -> None:
        """Mark a member as assumed on `pod.node_name`. Has no effect on a pod that was deleted meanwhile."""
        key = pod.group_key
        known = self._states.get(key) if key else None
        if known is not None and pod.uid in known.all:
            self._own(key).put(pod, MemberState.ASSUMED)

    def forget(self, pod: Pod) -> None:
        """Undo `assume`. Has no effect on a pod that is not assumed."""
        key = pod.group_key
        known = self._states.get(key) if key else None
        if known is not None and pod.uid in known.assumed:
            self._own(key).put(pod.on_node(""), MemberState.UNSCHEDULED)

    def put_assigned(self, pod: Pod) -> None:
        """Add or replace a bound member."""
        if pod.group_key:
            self._own(pod.group_key).put(pod, MemberState.ASSIGNED)

    def remove_assigned(self, pod: Pod) -> None:
        """Remove a bound member that was deleted."""
        self._remove(pod)

    def lend(self, key: str) -> tuple[PodGroup | None, GroupState | None]:
        """Return a group's object and state for a snapshot: they do not change any more."""
        state = self._states.get(key)
        if state is not None:
            self._lent.add(key)
        return self._objects.get(key), state

    # --- plumbing ------------------------------------------------------------------------------

    def _own(self, key: str) -> GroupState:
        """Return the group's state for a change, which is recorded. Creates the state of a new group."""
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = GroupState()
        elif key in self._lent:
            state = self._states[key] = state.copy()
        self._lent.discard(key)
        self.changed.add(self._generations.next(), key)
        self.on_change(key)
        return state

    def _remove(self, pod: Pod) -> None:
        key = pod.group_key
        known = self._states.get(key) if key else None
        if known is not None and pod.uid in known.all:
            self._own(key).remove(pod.uid)
            self._drop_if_empty(key)

    def _drop_if_empty(self, key: str) -> None:
        if key not in self._objects and not self._states[key].all:
            del self._states[key]


class SnapshotGroups(GroupReader):
    """The groups of one snapshot: updated with it, and changed by its trials, which are undone again."""

    def __init__(self) -> None:
        super().__init__()
        self._originals: dict[str, GroupState | None] = {}
        """The states that the trial steps changed, as they were taken; None: the group had no state."""

    def update(self, live: PodGroups, since: int) -> None:
        """Take the groups that changed after the generation `since`."""
        self.judges_trees = live.judges_trees
        changes = live.changed.since(since)
        keys = {*live.group_keys(), *self._states} if changes is None else {key for _, key in changes}
        for key in keys:
            group, state = live.lend(key)
            if group is not None or key in self._objects:
                self._set_object(key, group)
            if state is not None:
                self._states[key] = state
            else:
                self._states.pop(key, None)

    def member(self, pod: Pod) -> Member | None:
        """Return the record and the state of a pod in its group; None for a pod that is not a member."""
        state = self._states.get(pod.group_key) if pod.group_key else None
        found = None if state is None else state.member(pod.uid)
        return None if state is None or found is None else (state.all[pod.uid], found)

    def set_member(self, pod: Pod, member: Member | None) -> None:
        """Change a member in a trial. None: the pod is no member for now."""
        if member is not None:
            self._own(pod.group_key).put(*member)
        elif self.member(pod) is not None:
            self._own(pod.group_key).remove(pod.uid)

    def revert_all(self) -> None:
        """Return to the states that were taken."""
        for key, state in self._originals.items():
            if state is None:
                self._states.pop(key, None)
            else:
                self._states[key] = state
        self._originals.clear()

    def _own(self, key: str) -> GroupState:
        state = self._states.get(key)
        if key not in self._originals:
            self._originals[key] = state
            state = self._states[key] = GroupState() if state is None else state.copy()
        if state is None:
            state = self._states[key] = GroupState()
        return state
