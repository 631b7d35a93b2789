"""Walks through trees of pod groups: of any depth, and with an end also where the groups form a circle.

The API server does not limit the depth of a tree of CompositePodGroups and lets them form circles, so that
nothing here recurses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from berth_sdk.pod_group import PodGroup


class ChildGroups(Protocol):
    """Groups whose child groups are known, such as a `berth_sdk.pod_group.PodGroupReader`."""

    def children(self, key: str) -> Sequence[PodGroup]:
        """Return the child groups of a CompositePodGroup, by creation time, then name."""
        ...


def tree_of(groups: ChildGroups, group: PodGroup, levels: int | None = None) -> list[PodGroup]:
    """Return a group and all groups below it. Each group comes before its child groups, and these come in
    their order; of a circle each group comes once.

    `levels`: the levels of the tree to return, the group's own counted; None: all.
    """
    found: list[PodGroup] = []
    seen = {group.key}
    waiting = [(group, 1)]
    while waiting:
        one, level = waiting.pop()
        found.append(one)
        if not one.is_composite or level == levels:
            continue
        for child in reversed(groups.children(one.key)):
            key = child.key
            if key not in seen:
                seen.add(key)
                waiting.append((child, level + 1))
    return found


def meets_minimum(
    groups: ChildGroups,
    group: PodGroup,
    has_enough: Callable[[PodGroup], bool],
    levels: int | None = None,
) -> bool:
    """Return True if a group has enough members, or as a composite group enough child groups that do.

    `has_enough`: returns True for a group with pods that has enough of them. `levels`: see `tree_of`.
    """
    met: Counter[str] = Counter()
    for one in reversed(tree_of(groups, group, levels)):
        is_met = met[one.key] >= one.min_count if one.is_composite else has_enough(one)
        if one is not group:
            met[one.parent_key] += is_met
    return is_met
