"""Units of pods, and a single pod that preempts them, against the rules told unit by unit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest
from berth_host.app.alone import FrameworkAlone
from berth_host.cache.pod_groups import PodGroups
from berth_host.config.loading import load_configuration
from berth_host.cycle.chooser import SmallestName
from berth_host.framework.framework import all_rows
from berth_host.model.node_statuses import NodeStatuses
from berth_host.plugins.registry import ClassRegistry
from berth_host.preemption.eligibility import TERMINATING
from berth_host.preemption.evaluator import Evaluation, Evaluator, SearchLimits
from berth_host.preemption.units import units_of
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.status import Status
from berth_sdk.testing import make_node, make_pod
from hypothesis import given, settings
from hypothesis import strategies as st
from support.grouped_clusters import LABELS, clusters, old_groups, running, store_of
from support.plain_group_preemption import plain_pod_preempts, plain_units
from support.plain_preemption import PlainBudget, PlainNode
from support.tiers import examples

NOT_ASKED: Final = Status.unresolvable("fits")
CONFIGURATION: Final = load_configuration(
    """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled: [{name: NodePorts}, {name: NodeResourcesFit}, {name: InterPodAffinity}, {name: PrioritySort},
                {name: DefaultBinder}]
      disabled: [{name: "*"}]
""",
    source="test",
    registered=ClassRegistry().points(),
)


class Known:
    """`PodsAndPreemptions`: the pod is as it was popped."""

    def current(self, pod: Pod) -> Pod | None:
        return pod

    def is_preempting(self, uid: str) -> bool:
        return False


def cluster(nodes: Sequence[Node], pods: Sequence[Pod], groups: Sequence[PodGroup]) -> FrameworkAlone:
    alone = FrameworkAlone(CONFIGURATION)
    alone.cache.groups = PodGroups(alone.cache.generations, composite=True)
    for group in groups:
        alone.cache.groups.put_object(group)
    for one in nodes:
        alone.add_node(one)
    for other in pods:
        alone.add_pod(other)
    alone.snapshot.update(alone.cache)
    return alone


def evaluate(
    pod: Pod,
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    groups: Sequence[PodGroup],
    budgets: Sequence[PlainBudget] = (),
) -> Evaluation:
    alone = cluster(nodes, pods, groups)

    async def run() -> Evaluation:
        cycle = alone.cycle(pod)
        cycle.statuses = NodeStatuses(cycle.nodes)
        await alone.framework.run_pre_filter(cycle)
        passed = await alone.framework.run_filter(
            cycle, cycle.statuses, all_rows(cycle.nodes), cycle.nominated
        )
        cycle.statuses.groups[passed] = cycle.statuses.group_of(NOT_ASKED)
        alone.snapshot.hold()
        evaluator = Evaluator(SmallestName(), store_of(budgets), Known(), groups_in=alone.snapshot)
        return await evaluator.evaluate(alone.framework, cycle, SearchLimits(100, 0))

    return asyncio.run(run())


def made(nodes: Sequence[PlainNode]) -> list[Node]:
    return [make_node(one.name, cpu=f"{one.cpu_milli}m", pods=one.pod_limit) for one in nodes]


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(nodes=clusters(), groups=old_groups())
def test_units_are_the_pods_that_leave_together(nodes: list[PlainNode], groups: dict[str, PodGroup]) -> None:
    pods = [pod for node in nodes for pod in node.pods]
    alone = cluster(made(nodes), pods, list(groups.values()))
    table = alone.snapshot.pods
    units = units_of(table, alone.snapshot.groups)
    found = {
        frozenset(table.pod(row).uid for row in units.rows[start:end].tolist()): (priority, rank)
        for start, end, priority, rank in zip(
            units.starts[:-1], units.starts[1:], units.priority.tolist(), units.rank.tolist(), strict=True
        )
    }
    plain = plain_units(pods, groups)
    assert found == {frozenset(pod.uid for pod in unit.pods): (unit.priority, unit.rank) for unit in plain}
    for unit in plain:
        for pod in unit.pods:
            assert alone.snapshot.groups.eviction_priority(pod) == unit.priority


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(data=st.data(), nodes=clusters(), groups=old_groups())
def test_a_pod_evicts_the_units_that_the_rules_name(
    data: st.DataObject, nodes: list[PlainNode], groups: dict[str, PodGroup]
) -> None:
    pod = make_pod(
        "new",
        uid="uid-new",
        cpu=data.draw(st.integers(1, 6)),
        priority=data.draw(st.integers(0, 7)),
        host_ports=data.draw(st.sampled_from([[], [80]])),
    )
    budgets = [
        PlainBudget(data.draw(st.sampled_from(LABELS[1:])), data.draw(st.integers(0, 2)))
        for _ in range(data.draw(st.integers(0, 2)))
    ]
    want = plain_pod_preempts(pod, nodes, groups, budgets)
    there = [other for node in nodes for other in node.pods]
    got = evaluate(pod, made(nodes), there, list(groups.values()), budgets)
    assert sorted(got.statuses.table.take(got.potential).names) == sorted(want.tried)
    rejected = {name: got.statuses.status_of(name).reasons for name in set(want.tried) - set(want.candidates)}
    assert rejected == want.rejected
    if not want.candidates:
        assert got.choice is None
        return
    choice = got.choice
    assert choice is not None
    found = {
        choice.node_name(place): (
            sorted(one.name for one in choice.victims_of(place)),
            int(choice.candidates.violations[place]),
        )
        for place in range(len(choice.candidates))
    }
    assert found == {
        name: (sorted(pod.name for pod in one.victims), one.violations)
        for name, one in want.candidates.items()
    }


# --- single cases -----------------------------------------------------------------------------------------


def spread(count: int, **fields: int) -> tuple[list[Node], list[Pod]]:
    nodes = [make_node(f"n{i}", cpu=1) for i in range(count)]
    return nodes, [running(f"old-{i}", f"n{i}", group="old", minute=i, **fields) for i in range(count)]


def victims(found: Evaluation) -> list[str]:
    assert found.choice is not None
    return [pod.name for pod in found.choice.victims_of(found.choice.chosen)]


def test_a_group_that_leaves_as_a_whole_leaves_every_node() -> None:
    pod = make_pod("new", uid="u", cpu=1, priority=5)
    whole = PodGroup(name="old", priority=1, disrupts_all=True)
    assert victims(evaluate(pod, *spread(3), [whole])) == ["old-0", "old-1", "old-2"]
    single = replace(whole, disrupts_all=False)
    assert len(victims(evaluate(pod, *spread(3), [single]))) == 1


def test_pods_of_the_unit_on_other_nodes_are_gone_for_plugins_that_look_there() -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "old"}}, "topologyKey": "zone"}
            ]
        }
    }
    pod = make_pod("new", uid="u", cpu=1, priority=5, affinity=apart, node_selector={"room": "yes"})
    nodes = [
        make_node("n0", cpu=1, labels={"zone": "a", "room": "yes"}),
        make_node("n1", cpu=1, labels={"zone": "a"}),
    ]
    there = [running(f"old-{i}", f"n{i}", group="old", minute=i, labels={"app": "old"}) for i in range(2)]
    whole = PodGroup(name="old", priority=1, disrupts_all=True)
    single = replace(whole, disrupts_all=False)
    found = evaluate(pod, nodes, there, [whole])
    assert victims(found) == ["old-0", "old-1"]
    assert victims(evaluate(pod, nodes, [there[0]], [whole])) == ["old-0"]
    # The pod on the other node stays, and with it the reason not to be in its zone.
    assert evaluate(pod, nodes, there, [single]).choice is None


def test_the_priority_of_the_group_protects_its_pods() -> None:
    pod = make_pod("new", uid="u", cpu=1, priority=5)
    assert evaluate(pod, *spread(2, priority=1), [PodGroup(name="old", priority=5)]).choice is None
    assert len(victims(evaluate(pod, *spread(2, priority=9), [PodGroup(name="old", priority=4)]))) == 1


def test_a_leaving_pod_of_a_group_of_lower_priority_is_waited_for() -> None:
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    leaving = running(
        "leaving",
        "n0",
        group="old",
        cpu=0,
        priority=9,
        meta={"deletionTimestamp": "2026-01-01T00:00:00Z"},
        status={"conditions": [mark]},
    )
    full = running("full", "n0", minute=1, priority=1)
    pod = make_pod("new", uid="u", cpu=1, priority=5, nominated="n0")
    cluster = [make_node("n0", cpu=1)], [leaving, full]
    assert evaluate(pod, *cluster, [PodGroup(name="old", priority=1)]).ineligible == TERMINATING
    assert evaluate(pod, *cluster, [PodGroup(name="old", priority=7)]).ineligible == ""
