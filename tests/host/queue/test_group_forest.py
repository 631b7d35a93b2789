"""Which group is the root of a member's group, and which object is missing."""

from __future__ import annotations

from berth_host.queue.group_forest import GroupForest
from berth_sdk.pod_group import COMPOSITE_POD_GROUP, PodGroup

LEAF = "podgroup/default/leaf"


def composite(name: str, parent: str = "") -> PodGroup:
    key = f"compositepodgroup/default/{parent}" if parent else ""
    return PodGroup(kind=COMPOSITE_POD_GROUP, name=name, parent_key=key)


def forest(*groups: PodGroup) -> GroupForest:
    made = GroupForest()
    for group in groups:
        made.put(group)
    return made


def root_name(groups: GroupForest) -> str | None:
    root = groups.root_of(LEAF)
    return None if root is None else root.name


def leaf(parent: str) -> PodGroup:
    return PodGroup(name="leaf", parent_key=f"compositepodgroup/default/{parent}")


def test_group_without_parent_is_its_own_root() -> None:
    groups = forest(PodGroup(name="leaf"))
    assert (root_name(groups), groups.missing_above(LEAF)) == ("leaf", "")


def test_root_is_the_highest_ancestor() -> None:
    groups = forest(leaf("middle"), composite("middle", "top"), composite("top"))
    assert (root_name(groups), groups.missing_above(LEAF)) == ("top", "")


def test_missing_group_or_ancestor_leaves_no_root_and_is_named() -> None:
    groups = forest(composite("top"))
    assert (root_name(groups), groups.missing_above(LEAF)) == (None, LEAF)
    groups.put(leaf("middle"))
    assert (root_name(groups), groups.missing_above(LEAF)) == (None, "compositepodgroup/default/middle")
    groups.put(composite("middle", "top"))
    assert root_name(groups) == "top"
    groups.remove("compositepodgroup/default/top")
    assert (root_name(groups), groups.missing_above(LEAF)) == (None, "compositepodgroup/default/top")


def test_ancestors_in_a_circle_have_no_root() -> None:
    groups = forest(leaf("a"), composite("a", "b"), composite("b", "a"))
    assert (root_name(groups), groups.missing_above(LEAF)) == (None, "")
    assert groups.circle_above(LEAF) == "compositepodgroup/default/a"
    groups.put(composite("b", "gone"))
    assert groups.circle_above(LEAF) == ""
    groups.put(composite("b"))
    assert groups.circle_above(LEAF) == groups.circle_above("podgroup/default/unknown") == ""
