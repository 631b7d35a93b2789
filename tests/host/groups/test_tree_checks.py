"""What a tree of groups must have in common before 1.38 tries it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from berth_host.cache.pod_groups import MAX_DEPTH, PodGroups
from berth_host.groups.tree_checks import changed_tree, tree_differences
from berth_host.queue.group_forest import GroupTree
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.testing import make_pod

COMPOSITE = "CompositePodGroup"
PROFILES = ("default-scheduler",)
ROOT = PodGroup(kind=COMPOSITE, name="root", workload_name="w", is_gang=True, priority=5)
LEAF = PodGroup(name="leaf", workload_name="w", is_gang=True, priority=5, parent_key=ROOT.key)
POD = replace(make_pod("a", uid="a", priority=5), group_key=LEAF.key)


def differences(*groups: PodGroup, pods: tuple[Pod, ...] = (POD,)) -> tuple[str, bool]:
    live = PodGroups(composite=True)
    for group in groups:
        live.put_object(group)
    return tree_differences(live, groups[0].key, pods, PROFILES)


def test_tree_with_all_in_common_may_be_tried() -> None:
    assert differences(ROOT, LEAF)[0] == ""


@pytest.mark.parametrize(
    ("root", "leaf", "text"),
    [
        ({"workload_name": ""}, {}, "has no spec.workloadRef"),
        ({}, {"workload_name": "x"}, "pod group workload does not match root workload"),
        ({}, {"priority": 4}, "all pod groups in a hierarchy should have the same priority"),
        (
            {"states_policy": True},
            {"states_policy": True, "preemption_policy": "Never"},
            "all pod groups in a hierarchy should have the same preemption policy",
        ),
        ({}, {"is_gang": False}, "cannot have basic child"),
        ({"disrupts_all": True}, {"disrupts_single": True}, "with All disruption mode cannot have child"),
    ],
)
def test_groups_that_differ_are_named(root: dict[str, Any], leaf: dict[str, Any], text: str) -> None:
    found, is_invalid = differences(replace(ROOT, **root), replace(LEAF, **leaf))
    assert text in found
    assert is_invalid


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"scheduler_name": "x"}, '.spec.schedulerName set, got: "x" ("b") and "default-scheduler" ("a")'),
        ({"priority": 4}, 'root pod group\'s priority, got 4 ("b") and 5'),
        ({"never_preempts": True}, 'preemption policy, got Never ("b") and PreemptLowerPriority'),
    ],
)
def test_pods_that_differ_are_named(other: dict[str, Any], text: str) -> None:
    found, is_invalid = differences(ROOT, LEAF, pods=(POD, replace(POD, name="b", uid="b", **other)))
    assert text in found
    assert is_invalid


def test_unknown_scheduler_name_is_no_fault_of_the_objects() -> None:
    found = differences(ROOT, LEAF, pods=(replace(POD, scheduler_name="x"),))
    assert found == ('profile not found for scheduler name "x"', False)


def test_tree_that_is_too_deep_is_refused() -> None:
    chain = [ROOT]
    for depth in range(1, MAX_DEPTH):
        chain.append(replace(ROOT, name=f"c{depth}", parent_key=chain[-1].key))
    leaf = replace(LEAF, parent_key=chain[-1].key)
    assert "hierarchy depth exceeds maximum allowed depth" in differences(*chain, leaf)[0]
    assert differences(*chain[:-1], replace(leaf, parent_key=chain[-2].key))[0] == ""


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ((ROOT, LEAF), ""),
        ((), "composite pod group not found in snapshot"),
        ((LEAF,), "composite pod group object not found"),
        ((ROOT,), "different number of children"),
        ((replace(ROOT, parent_key=ROOT.key + "x"), LEAF), "different parent in composite pod group"),
    ],
)
def test_tree_that_changed_since_the_pop_is_noticed(groups: tuple[PodGroup, ...], text: str) -> None:
    live = PodGroups(composite=True)
    for group in groups:
        live.put_object(group)
    found = changed_tree(live, GroupTree(ROOT, (GroupTree(LEAF),)))
    assert found == text if not text else text in found
