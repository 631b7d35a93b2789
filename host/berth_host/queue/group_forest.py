"""`GroupForest`: the group objects that the queue has seen, and the root of each.

The queue has a view of its own, because it must hold a member back until the queue itself has been given the
object of the member's group: the cache may be ahead. Owned by `group_entries`.
Source: kube-scheduler `backend/queue/workload_forest.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from berth_sdk.group_tree import tree_of
from berth_sdk.pod_group import PodGroup


@dataclass(frozen=True, slots=True, eq=False)
class GroupTree:
    """A group, and the trees of its child groups by creation time and name."""

    group: PodGroup
    children: tuple[GroupTree, ...] = ()

    def all(self) -> Iterator[GroupTree]:
        """Yield the tree of the group and of each group below it, each before its children."""
        waiting = [self]
        while waiting:
            tree = waiting.pop()
            yield tree
            waiting.extend(reversed(tree.children))


class GroupForest:
    """The PodGroups and CompositePodGroups by key."""

    def __init__(self) -> None:
        self._groups: dict[str, PodGroup] = {}
        self._children: dict[str, set[str]] = {}
        """The keys of the groups that name a composite group as their parent, by its key."""

    def put(self, group: PodGroup) -> None:
        """Add a group, or replace an older version of it."""
        self.remove(group.key)
        self._groups[group.key] = group
        if group.parent_key:
            self._children.setdefault(group.parent_key, set()).add(group.key)

    def remove(self, key: str) -> None:
        """Remove a group, if it is here."""
        old = self._groups.pop(key, None)
        if old is not None and old.parent_key:
            siblings = self._children[old.parent_key]
            siblings.discard(key)
            if not siblings:
                del self._children[old.parent_key]

    def tree(self, group: PodGroup) -> GroupTree:
        """Return the tree of a root group as it is now."""
        below: dict[str, list[GroupTree]] = {}
        for one in reversed(tree_of(self, group)):
            tree = GroupTree(one, tuple(reversed(below.pop(one.key, ()))))
            below.setdefault(one.parent_key, []).append(tree)
        return tree

    def children(self, key: str) -> list[PodGroup]:
        """Return the child groups of a group, by creation time, then name."""
        found = (self._groups[child] for child in self._children.get(key, ()))
        return sorted(found, key=lambda one: (one.created_s or 0.0, one.name, one.kind))

    def get(self, key: str) -> PodGroup | None:
        """Return the group with this key; None if the queue has not seen it, or saw it deleted."""
        return self._groups.get(key)

    def root_of(self, key: str) -> PodGroup | None:
        """Return the root of the tree in which the group with this key is; the group itself without a parent.

        None if the group or one of its ancestors is missing, or if the ancestors form a circle.
        """
        for group in self._upwards(key):
            if not group.parent_key:
                return group
        return None

    def missing_above(self, key: str) -> str:
        """Return the key of the first missing group, from the group with this key upwards; "" for none."""
        missing = key
        for group in self._upwards(key):
            missing = group.parent_key
        return "" if missing in self._groups else missing

    def circle_above(self, key: str) -> str:
        """Return the key of a group that is among its own parents, from the group with this key upwards; ""
        for none.
        """
        seen = {group.key: group.parent_key for group in self._upwards(key)}
        last = next(reversed(seen.values()), "")
        return last if last in seen else ""

    def _upwards(self, key: str) -> Iterator[PodGroup]:
        seen: set[str] = set()
        while key not in seen and (group := self._groups.get(key)) is not None:
            seen.add(key)
            yield group
            key = group.parent_key
