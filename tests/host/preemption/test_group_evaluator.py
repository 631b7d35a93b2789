"""Preemption of a group, over columns, against the rules told unit by unit and member by member."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from unittest import mock

import pytest
from berth_host.preemption import reprieve
from berth_host.preemption.eligibility import NEVER
from berth_host.preemption.group_evaluator import GroupEvaluation, GroupEvaluator
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.status import Code
from berth_sdk.testing import make_node, make_pod
from hypothesis import given, settings
from hypothesis import strategies as st
from support.group_trials import TriedGroup
from support.grouped_clusters import LABELS, clusters, old_groups, running, store_of
from support.plain_group_preemption import plain_units, plain_victims
from support.plain_preemption import PlainBudget, PlainNode
from support.tiers import examples

CONFIGURATION: Final = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled: [{name: NodePorts}, {name: NodeResourcesFit}, {name: InterPodAffinity},
                {name: PodTopologySpread}, {name: PrioritySort}, {name: DefaultBinder}]
      disabled: [{name: "*"}]
"""
NEW: Final = PodGroup(name="new", uid="uid-of-new", is_gang=True, priority=5)


class Idle:
    """No evictions are under way, but for the groups `busy`."""

    def __init__(self, *busy: str) -> None:
        self.busy = busy

    def is_preempting(self, uid: str) -> bool:
        return uid in self.busy


def evaluate(
    tried: TriedGroup, budgets: Sequence[PlainBudget] = (), *, group_policy: bool = False
) -> GroupEvaluation:
    return asyncio.run(GroupEvaluator(store_of(budgets), Idle(), group_policy=group_policy).evaluate(tried))


def members(count: int, **fields: Any) -> list[Pod]:
    fields = {"priority": 5, "cpu": 1, **fields}
    return [
        replace(make_pod(f"new-{i}", uid=f"uid-new-{i}", **fields), group_key=NEW.key) for i in range(count)
    ]


# --- the rules --------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), nodes=clusters(), groups=old_groups(), one_by_one=st.booleans())
def test_columns_find_the_victims_that_the_rules_find(
    data: st.DataObject, nodes: list[PlainNode], groups: dict[str, PodGroup], one_by_one: bool
) -> None:
    pods = [
        replace(
            make_pod(
                f"new-{i}",
                uid=f"uid-new-{i}",
                cpu=data.draw(st.integers(0, 3)),
                priority=5,
                host_ports=data.draw(st.sampled_from([[], [], [80]])),
                nominated=data.draw(st.sampled_from(["", "n0"])),
            ),
            group_key=NEW.key,
        )
        for i in range(data.draw(st.integers(1, 6)))
    ]
    promised: dict[str, list[Pod]] = {"n0": [pod for pod in pods if pod.nominated_node]}
    if data.draw(st.booleans()):
        other = make_pod("promised", uid="uid-promised", cpu=1, priority=data.draw(st.sampled_from([4, 5])))
        promised["n0"].append(other)
    budgets = [
        PlainBudget(data.draw(st.sampled_from(LABELS[1:])), data.draw(st.integers(0, 2)))
        for _ in range(data.draw(st.integers(0, 2)))
    ]
    there = [pod for node in nodes for pod in node.pods]
    made = [make_node(node.name, cpu=f"{node.cpu_milli}m", pods=node.pod_limit) for node in nodes]
    tried = TriedGroup(CONFIGURATION, made, there, NEW, pods, groups.values(), promised)
    with mock.patch.object(reprieve, "looks_further", lambda client: one_by_one):
        got = evaluate(tried, budgets)
    units = [unit for unit in plain_units(there, groups) if unit.priority < NEW.priority]
    if not units:
        assert got.status.message == "No preemption victims found for incoming preemptor"
        assert got.status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return
    if not got.status.is_success:
        assert got.status.message.endswith("does not fit")
        return
    gone = {pod.uid for unit in units for pod in unit.pods}
    emptied = [replace(node, pods=tuple(pod for pod in node.pods if pod.uid not in gone)) for node in nodes]
    placed = [(one.cycle.pod, one.node_name) for one in tried.placed]
    want, violations = plain_victims(units, placed, emptied, budgets, promised)
    assert sorted(pod.name for pod in got.victims) == sorted(pod.name for pod in want)
    assert got.violations == violations
    assert got.nominations == {pod.uid: name for pod, name in placed}
    assert got.status.message == f"found a placement for podgroup, preempting {len(want)} victims"
    # The snapshot is as it was.
    assert {pod.uid for node in tried.snapshot.nodes for pod in node.pods} == {pod.uid for pod in there}


# --- single cases -----------------------------------------------------------------------------------------


def full(count: int, **fields: Any) -> list[Pod]:
    return [running(f"low-{i}", f"n{i}", minute=i, **fields) for i in range(count)]


def tried(there: Sequence[Pod], pods: Sequence[Pod], *groups: PodGroup, nodes: int = 2) -> TriedGroup:
    made = [make_node(f"n{i}", cpu=1, pods=9) for i in range(nodes)]
    return TriedGroup(CONFIGURATION, made, there, NEW, pods, groups)


def names(found: GroupEvaluation) -> list[str]:
    return [pod.name for pod in found.victims]


def test_a_group_evicts_only_what_is_in_its_way() -> None:
    found = evaluate(tried(full(3), members(2), nodes=3))
    assert names(found) == ["low-0", "low-1"]
    assert found.nominations == {"uid-new-0": "n0", "uid-new-1": "n1"}


def test_a_pod_of_a_group_has_the_priority_of_the_group() -> None:
    there = full(2, group="old", priority=9)
    assert names(evaluate(tried(there, members(2), PodGroup(name="old", priority=1)))) == ["low-0", "low-1"]
    found = evaluate(tried(there, members(2), PodGroup(name="old", priority=5)))
    assert found.status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_a_group_that_is_evicted_as_a_whole_leaves_other_nodes_too() -> None:
    there = full(3, group="old")
    whole = PodGroup(name="old", priority=1, disrupts_all=True)
    found = evaluate(tried(there, members(1), whole, nodes=3))
    assert sorted(names(found)) == ["low-0", "low-1", "low-2"]
    assert found.disruptions == {"podgroup": 1}


def test_the_rerun_decides_whether_preemption_helps() -> None:
    found = evaluate(tried(full(2), members(3)))
    assert (found.status.code, found.status.message) == (Code.UNSCHEDULABLE, "new-2 does not fit")
    assert not found.victims


@pytest.mark.parametrize(
    "group_policy", [pytest.param(False, id="the pods decide"), pytest.param(True, id="the group decides")]
)
def test_preemption_policy_of_the_group(group_policy: bool) -> None:
    attempt = tried(full(2), members(2))
    attempt.root = replace(NEW, preemption_policy="Never")
    found = evaluate(attempt, group_policy=group_policy)
    assert (found.status.message == NEVER) is group_policy


def test_one_pod_that_never_preempts_keeps_the_group_from_it() -> None:
    pods = [members(2)[0], members(2, spec={"preemptionPolicy": "Never"})[1]]
    assert evaluate(tried(full(2), pods)).status.message == NEVER
    assert evaluate(tried(full(2), pods), group_policy=True).status.is_success


def test_a_group_waits_for_the_victims_on_its_nominated_nodes() -> None:
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    leaving = running(
        "low-0",
        "n0",
        meta={"deletionTimestamp": "2026-01-01T00:00:00Z"},
        status={"conditions": [mark]},
    )
    pods = [members(2, nominated="n0")[0], members(2)[1]]
    found = evaluate(tried([leaving], pods))
    assert found.status.is_success
    assert found.status.message == "ongoing preemption on nominated nodes"
    assert found.nominations == {"uid-new-0": "n0", "uid-new-1": ""}
    assert not found.victims
    assert names(evaluate(tried([leaving], members(2)))) == ["low-0"]


def test_a_pod_that_a_member_cannot_be_beside_does_not_come_back() -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
            ]
        }
    }
    there = [
        running("far", "n1", minute=1, cpu=0, labels={"app": "web"}),
        running("other", "n1", minute=2, cpu=0, labels={"app": "db"}),
    ]
    nodes = [make_node(f"n{i}", cpu=1, labels={"zone": "a"}) for i in range(2)]
    attempt = TriedGroup(CONFIGURATION, nodes, there, NEW, members(1, affinity=apart), ())
    assert names(evaluate(attempt)) == ["far"]


def test_a_group_whose_evictions_run_chooses_no_further_victims() -> None:
    attempt = tried(full(2), members(2, nominated="n0"))
    found = asyncio.run(GroupEvaluator(store_of([]), Idle(NEW.uid)).evaluate(attempt))
    assert found.status.message == "ongoing preemption on nominated nodes"
    assert not found.victims
