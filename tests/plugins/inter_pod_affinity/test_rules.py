"""Laws: over any cluster InterPodAffinity says what the plain rules say pod by pod; it goes on doing so while
pods, nodes and namespaces come, change and go; and what-ifs equal clusters that are so.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from berth_plugins.inter_pod_affinity.plugin import InterPodAffinity
from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeColumns, NodeTable, ObjectStore, PodTable
from berth_sdk.testing import make_table
from berth_sdk.testing.handle import RecordingHandle
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support import affinity_strategies as strategies
from support.affinity_strategies import AffineCluster
from support.asking import InProcess, Plug
from support.plain_rules import Verdict
from support.served import Served
from support.tiers import examples

few = settings(max_examples=examples(75))


def plug_of(cluster: AffineCluster) -> Plug:
    return Plug(InterPodAffinity, cluster.args, {"namespaces": cluster.namespace_objects})


def table_of(cluster: AffineCluster) -> NodeTable:
    return make_table(map(Node.from_object, cluster.nodes), map(Pod.from_object, cluster.pods))


def as_verdict(status: Status) -> Verdict:
    return None if status.is_success else (status.code.kube_name, status.reasons)


def check(runtime: PluginRuntime, cluster: AffineCluster, table: NodeTable) -> None:
    """PreFilter, Filter, PreScore and Score of one cycle against the rules."""
    rules, pod, state = cluster.rules, Pod.from_object(cluster.pod), CycleState("cycle")
    by_name = {node["metadata"]["name"]: i for i, node in enumerate(cluster.nodes)}
    rows = [by_name[name] for name in table.names]
    before: Any = runtime.pre_filter(state, pod, table)
    assert (before.status.code is Code.SKIP) == rules.skips_filter
    if not rules.skips_filter:
        result: Any = runtime.filter(state, pod, table)
        got = [as_verdict(status) for status in result.verdicts.to_list()]
        assert got == [rules.verdict(cluster.nodes[row]) for row in rows]
    status: Any = runtime.pre_score(state, pod, table)
    want = rules.scores()
    assert (status.code is Code.SKIP) == (want is None)
    if want is not None:
        scores: Any = runtime.score(state, pod, table)
        assert scores.tolist() == [want[row] for row in rows]


@pytest.mark.slow
@few
@given(cluster=strategies.clusters())
def test_verdicts_and_scores_equal_a_computation_by_the_rules(cluster: AffineCluster) -> None:
    check(plug_of(cluster).runtime(), cluster, table_of(cluster))


@pytest.mark.long
@pytest.mark.slow
@few
@given(cluster=strategies.clusters(), data=st.data())
def test_part_of_the_table_gets_the_same_answers(cluster: AffineCluster, data: st.DataObject) -> None:
    runtime, pod, whole = plug_of(cluster).runtime(), Pod.from_object(cluster.pod), table_of(cluster)
    rows = data.draw(st.lists(st.sampled_from(range(len(whole))), min_size=1, unique=True))
    state = CycleState("cycle")
    runtime.pre_filter(state, pod, whole)
    every: Any = runtime.filter(state, pod, whole)
    some: Any = runtime.filter(state, pod, whole.take(rows))
    assert some.verdicts.to_list() == every.verdicts.take(rows).to_list()
    want = cluster.rules.scores()
    if want is not None:
        runtime.pre_score(state, pod, whole.take(rows))
        scores: Any = runtime.score(state, pod, whole.take(rows))
        assert scores.tolist() == [want[row] for row in rows]


@st.composite
def what_ifs(draw: st.DrawFn) -> tuple[AffineCluster, list[tuple[str, list[int], list[dict[str, Any]]]]]:
    """A cluster, and for some of its nodes the pods that leave, by position, and those that come."""
    cluster = draw(strategies.clusters())
    asked = []
    for i in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(cluster.nodes))["metadata"]["name"]
        here = [at for at, pod in enumerate(cluster.pods) if pod["spec"]["nodeName"] == name]
        gone = draw(st.lists(st.sampled_from(here), unique=True)) if here else []
        asked.append(
            (name, gone, [draw(strategies.pods(f"q{i}{k}", name)) for k in range(draw(st.integers(0, 2)))])
        )
    return cluster, asked


def scenarios_of(cluster: AffineCluster, table: NodeTable, asked: Any) -> Scenarios:
    held = {pod.uid: pod for node in table for pod in node.pods}
    return Scenarios(
        table,
        [
            Scenario(
                name,
                tuple(held[cluster.pods[at]["metadata"]["uid"]] for at in gone),
                tuple(map(Pod.from_object, came)),
            )
            for name, gone, came in asked
        ],
    )


def wanted_of(cluster: AffineCluster, asked: Any) -> list[Verdict]:
    result = []
    for name, gone, came in asked:
        then = cluster.with_pods([pod for at, pod in enumerate(cluster.pods) if at not in gone] + came)
        node = next(node for node in cluster.nodes if node["metadata"]["name"] == name)
        result.append(then.rules.verdict(node))
    return result


@pytest.mark.slow
@few
@given(drawn=what_ifs(), prepared=st.booleans())
def test_what_if_equals_a_cluster_with_the_changes(drawn: Any, prepared: bool) -> None:
    cluster, asked = drawn
    runtime, pod, table, state = (
        plug_of(cluster).runtime(),
        Pod.from_object(cluster.pod),
        table_of(cluster),
        CycleState("cycle"),
    )
    if prepared:
        runtime.pre_filter(state, pod, table)
    verdicts: Any = runtime.filter_scenarios(state, pod, scenarios_of(cluster, table, asked))
    assert [as_verdict(status) for status in verdicts.to_list()] == wanted_of(cluster, asked)


@settings(max_examples=examples(12), deadline=None)
@given(drawn=what_ifs())
def test_served_plugin_gives_the_same_answers(plugin_server: str, drawn: Any) -> None:
    cluster, asked = drawn
    plug, pod, table = plug_of(cluster), Pod.from_object(cluster.pod), table_of(cluster)
    scenarios = scenarios_of(cluster, table, asked)

    async def answers(ask: Any) -> list[Any]:
        return [
            await ask.filter(plug, pod, table),
            await ask.score(plug, pod, table),
            await ask.scenarios(plug, pod, scenarios),
        ]

    assert asyncio.run(answers(Served(plugin_server))) == asyncio.run(answers(InProcess()))


class Living(RuleBasedStateMachine):
    """One plugin over one snapshot that moves."""

    @initialize(cluster=strategies.clusters())
    def start(self, cluster: AffineCluster) -> None:
        self.cluster = cluster
        self.columns = NodeColumns()
        self.columns.pods = self.table = PodTable()
        self.store = ObjectStore()
        self.generation = 0
        handle = RecordingHandle(lambda: NodeTable.of(self.columns), {"namespaces": self.store})
        self.runtime = PluginRuntime(InterPodAffinity(cluster.args, handle), handle=handle)
        for node in cluster.nodes:
            self.put_node(node)
        for item in cluster.namespace_objects:
            self.store.put(KubeObject.of(item).ref, KubeObject.of(item), self.later())
        self.count = 0

    def later(self) -> int:
        self.generation += 1
        return self.generation

    def put_node(self, node: dict[str, Any]) -> None:
        """The node comes or changes, with all pods that say that they are on it."""
        name = node["metadata"]["name"]
        self.columns.reclaim()
        self.columns.begin_update()
        slot = self.columns.index_of.get(name)
        if slot is None:
            slot = self.columns.add(Node.from_object(node))
        else:
            self.columns.set_node(slot, Node.from_object(node))
        here = [Pod.from_object(pod) for pod in self.cluster.pods if pod["spec"]["nodeName"] == name]
        generation = self.later()
        self.table.set_node_pods(slot, here, (), generation)
        self.columns.touch(slot, generation)

    def node(self, name: str) -> dict[str, Any] | None:
        return next((node for node in self.cluster.nodes if node["metadata"]["name"] == name), None)

    @rule(data=st.data())
    def pod_comes(self, data: st.DataObject) -> None:
        if self.cluster.nodes:
            node = data.draw(st.sampled_from(self.cluster.nodes))
            self.count += 1
            self.cluster.pods.append(data.draw(strategies.pods(f"new{self.count}", node["metadata"]["name"])))
            self.put_node(node)

    @rule(data=st.data(), again=st.booleans())
    def pod_leaves_or_changes(self, data: st.DataObject, again: bool) -> None:
        if self.cluster.pods:
            at = data.draw(st.sampled_from(range(len(self.cluster.pods))))
            gone = self.cluster.pods.pop(at)
            name = gone["spec"]["nodeName"]
            if again:
                self.cluster.pods.append(data.draw(strategies.pods(gone["metadata"]["name"], name)))
            node = self.node(name)
            if node is not None:
                self.put_node(node)

    @rule(data=st.data(), name=st.sampled_from(strategies.NODES))
    def node_comes_or_changes(self, data: st.DataObject, name: str) -> None:
        self.cluster.nodes[:] = [one for one in self.cluster.nodes if one["metadata"]["name"] != name]
        self.cluster.nodes.append(data.draw(strategies.nodes(name)))
        self.put_node(self.cluster.nodes[-1])

    @rule(data=st.data())
    def node_goes(self, data: st.DataObject) -> None:
        if len(self.cluster.nodes) > 1:
            at = data.draw(st.sampled_from(range(len(self.cluster.nodes))))
            name = self.cluster.nodes.pop(at)["metadata"]["name"]
            self.cluster.pods[:] = [pod for pod in self.cluster.pods if pod["spec"]["nodeName"] != name]
            self.columns.begin_update()
            self.columns.remove(self.columns.index_of[name], self.later())

    @rule(now=strategies.namespaces)
    def namespaces_change(self, now: dict[str, dict[str, str]]) -> None:
        for name in self.cluster.namespaces:
            self.store.remove("", name, self.later())
        self.cluster.namespaces.clear()
        self.cluster.namespaces.update(now)
        for item in self.cluster.namespace_objects:
            self.store.put(KubeObject.of(item).ref, KubeObject.of(item), self.later())

    @rule(data=st.data())
    def another_pod_is_next(self, data: st.DataObject) -> None:
        # Another object: what was read of the last one must not change under its readers.
        self.cluster = replace(self.cluster, pod=data.draw(strategies.pods("web")))

    @invariant()
    def says_what_the_rules_say(self) -> None:
        if hasattr(self, "count"):
            check(self.runtime, self.cluster, NodeTable.of(self.columns))


TestLiving = Living.TestCase
TestLiving.settings = settings(max_examples=examples(40), stateful_step_count=15, deadline=None)
