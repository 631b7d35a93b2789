"""Walks through trees of pod groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from berth_sdk.group_tree import meets_minimum, tree_of
from berth_sdk.pod_group import PodGroup

ROOT = PodGroup(kind="CompositePodGroup", name="root", min_count=2)
DEPTH = 5000


class Known:
    """The child groups of some groups, in the order in which they were given."""

    def __init__(self, *groups: PodGroup) -> None:
        self.groups = groups

    def children(self, key: str) -> list[PodGroup]:
        """Return the groups that name this one as their parent."""
        return [one for one in self.groups if one.parent_key == key]


class Chain:
    """A composite group in a composite group, and so on, with one PodGroup at the end."""

    def children(self, key: str) -> list[PodGroup]:
        """Return the next group."""
        depth = int(key.rpartition("/")[2].removeprefix("c")) + 1
        kind = "PodGroup" if depth == DEPTH else "CompositePodGroup"
        return [PodGroup(kind=kind, name=f"c{depth}", parent_key=key)]


def below(parent: PodGroup, name: str, **more: Any) -> PodGroup:
    return replace(PodGroup(name=name, parent_key=parent.key), **more)


def test_groups_come_before_those_in_them_and_siblings_in_order() -> None:
    middle = below(ROOT, "middle", kind="CompositePodGroup")
    groups = Known(ROOT, below(ROOT, "a"), middle, below(ROOT, "b"), below(middle, "c"), below(middle, "d"))
    assert [one.name for one in tree_of(groups, ROOT)] == ["root", "a", "middle", "c", "d", "b"]


def test_child_groups_count_where_they_have_their_minimum() -> None:
    middle = below(ROOT, "middle", kind="CompositePodGroup", min_count=1)
    groups = Known(ROOT, below(ROOT, "a"), middle, below(middle, "c"), below(middle, "d"))

    def met(*names: str) -> bool:
        return meets_minimum(groups, ROOT, lambda one: one.name in names)

    assert met("a", "d")
    assert not met("c", "d")
    assert not met("a")
    assert not meets_minimum(groups, middle, lambda one: one.name == "a")
    assert meets_minimum(groups, below(ROOT, "a"), lambda one: one.name == "a")


def test_deep_tree_ends_in_no_error() -> None:
    top = PodGroup(kind="CompositePodGroup", name="c0")
    assert len(tree_of(Chain(), top)) == DEPTH + 1
    assert meets_minimum(Chain(), top, lambda one: True)
    assert not meets_minimum(Chain(), top, lambda one: False)


def test_levels_below_the_last_one_that_is_asked_for_are_left_out() -> None:
    top = PodGroup(kind="CompositePodGroup", name="c0")
    assert [one.name for one in tree_of(Chain(), top, 3)] == ["c0", "c1", "c2"]
    assert not meets_minimum(Chain(), top, lambda one: True, 3)


def test_groups_in_a_circle_come_once() -> None:
    other = PodGroup(kind="CompositePodGroup", name="other", parent_key=ROOT.key)
    first = replace(ROOT, parent_key=other.key)
    groups = Known(first, other, below(other, "leaf"))
    assert [one.name for one in tree_of(groups, first)] == ["root", "other", "leaf"]
    assert not meets_minimum(groups, first, lambda one: True)
