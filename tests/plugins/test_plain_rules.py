"""Laws: over any cluster each plugin, asked about the whole table, says what the plain rules say node by
node; and a part of the table gets the same answers as the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from berth_plugins.image_locality import ImageLocality
from berth_plugins.node_affinity import NodeAffinity
from berth_plugins.node_name import NodeName
from berth_plugins.node_ports import NodePorts
from berth_plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from berth_plugins.node_resources.fit import NodeResourcesFit
from berth_plugins.node_unschedulable import NodeUnschedulable
from berth_plugins.taint_toleration import TaintToleration
from berth_sdk.cycle_state import CycleState
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable
from berth_sdk.testing import make_table
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import plain_rules as plain
from support.asking import Plug, filter_now, score_now
from support.cluster_strategies import GPU, Cluster, clusters
from support.tiers import examples

FILTERS: dict[type, Callable[[plain.Json, plain.Place], plain.Verdict]] = {
    NodeUnschedulable: plain.node_unschedulable,
    NodeName: plain.node_name,
    TaintToleration: plain.taint_toleration,
    NodeAffinity: plain.node_affinity,
    NodePorts: plain.node_ports,
    NodeResourcesFit: plain.node_resources_fit,
}
each_filter = pytest.mark.parametrize("cls", FILTERS, ids=lambda cls: cls.__name__)
few = settings(max_examples=examples(25))
RESOURCES = ("cpu", "memory", "ephemeral-storage", GPU)


def table_of(cluster: Cluster) -> NodeTable:
    return make_table(map(Node.from_object, cluster.nodes), map(Pod.from_object, cluster.pods))


def places_of(cluster: Cluster) -> list[plain.Place]:
    return [plain.Place(node, cluster.pods) for node in cluster.nodes]


def as_verdict(status: Status) -> plain.Verdict:
    return None if status.is_success else (status.code.kube_name, tuple(sorted(status.reasons)))


def _conflicts(statuses: list[Status]) -> bool:
    return any(status.reasons == ("pod affinity terms conflict",) for status in statuses)


@pytest.mark.slow
@each_filter
@few
@given(cluster=clusters())
def test_filter_equals_a_computation_by_the_rules(cls: type, cluster: Cluster) -> None:
    got = filter_now(Plug(cls), Pod.from_object(cluster.pod), table_of(cluster))
    # PreFilter's own rejection of contradicting names has its cases in test_node_affinity.
    assume(not _conflicts(got))
    want = [FILTERS[cls](cluster.pod, place) for place in places_of(cluster)]
    assert [as_verdict(status) for status in got] == want


@pytest.mark.slow
@each_filter
@given(cluster=clusters(), data=st.data())
@few
def test_part_of_the_table_gets_the_same_verdicts(cls: type, cluster: Cluster, data: st.DataObject) -> None:
    pod, whole = Pod.from_object(cluster.pod), table_of(cluster)
    rows = data.draw(st.lists(st.sampled_from(range(len(whole))), min_size=1, unique=True))
    every = filter_now(Plug(cls), pod, whole)
    assert filter_now(Plug(cls), pod, whole.take(rows)) == [every[row] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("cls", [NodePorts, NodeResourcesFit], ids=lambda cls: cls.__name__)
@given(cluster=clusters(), data=st.data())
@few
def test_what_if_equals_a_cluster_without_the_removed_pods(
    cls: type, cluster: Cluster, data: st.DataObject
) -> None:
    assume(cluster.pods)
    # Entries of one port are a set on a node, so that pods with the same one leave together or not at all.
    ports = [port for pod in cluster.pods for port in set(plain.ports(pod))]
    assume(len(ports) == len(set(ports)))
    gone = data.draw(st.lists(st.sampled_from(range(len(cluster.pods))), min_size=1, unique=True))
    pod, whole = Pod.from_object(cluster.pod), table_of(cluster)
    removed: dict[str, list[Pod]] = {name: [] for name in whole.names}
    for i in gone:
        left = Pod.from_object(cluster.pods[i])
        removed[left.node_name].append(left)
    scenarios = Scenarios(whole, [Scenario(name, tuple(pods)) for name, pods in removed.items()])
    runtime = Plug(cls).runtime()
    got: Any = runtime.filter_scenarios(CycleState("cycle"), pod, scenarios)
    rest = Cluster(cluster.nodes, [one for i, one in enumerate(cluster.pods) if i not in gone], cluster.pod)
    want: Any = Plug(cls).runtime().filter(CycleState("cycle"), pod, table_of(rest))
    assert got.to_list() == want.verdicts.to_list()


@pytest.mark.slow
@few
@given(cluster=clusters())
def test_taint_score_equals_a_computation_by_the_rules(cluster: Cluster) -> None:
    got = score_now(Plug(TaintToleration), Pod.from_object(cluster.pod), table_of(cluster))
    assert got == [plain.taint_toleration_score(cluster.pod, place) for place in places_of(cluster)]


@few
@given(cluster=clusters())
def test_affinity_score_equals_a_computation_by_the_rules(cluster: Cluster) -> None:
    got = score_now(Plug(NodeAffinity), Pod.from_object(cluster.pod), table_of(cluster))
    if plain.stanza(cluster.pod, "preferred") is None:
        assert got == Status.skip()
    else:
        assert got == [plain.node_affinity_score(cluster.pod, place) for place in places_of(cluster)]


weighted = st.lists(
    st.tuples(st.sampled_from(RESOURCES), st.integers(1, 100)),
    min_size=1,
    max_size=4,
    unique_by=lambda one: one[0],
)
shapes = st.builds(
    lambda used, scores: {
        "shape": [{"utilization": u, "score": s} for u, s in zip(sorted(used), scores, strict=False)]
    },
    st.sets(st.integers(0, 100), min_size=1, max_size=5),
    st.lists(st.integers(0, 10), min_size=5, max_size=5),
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"])
@few
@given(cluster=clusters(), resources=weighted, shape=shapes)
def test_fit_score_equals_a_computation_by_the_rules(
    kind: str, cluster: Cluster, resources: list[tuple[str, int]], shape: plain.Json
) -> None:
    strategy: dict[str, Any] = {
        "type": kind,
        "resources": [{"name": name, "weight": weight} for name, weight in resources],
    }
    if kind == "RequestedToCapacityRatio":
        strategy["requestedToCapacityRatio"] = shape
    plug = Plug(NodeResourcesFit, {"scoringStrategy": strategy})
    got = score_now(plug, Pod.from_object(cluster.pod), table_of(cluster))
    want = [plain.fit_score(cluster.pod, place, kind, resources, shape) for place in places_of(cluster)]
    assert got == want


@few
@given(cluster=clusters(), names=st.lists(st.sampled_from(RESOURCES), min_size=1, unique=True))
def test_balanced_score_equals_a_computation_by_the_rules(cluster: Cluster, names: list[str]) -> None:
    args = {"resources": [{"name": name, "weight": 1} for name in names]}
    plug = Plug(NodeResourcesBalancedAllocation, args)
    got = score_now(plug, Pod.from_object(cluster.pod), table_of(cluster))
    want = [plain.balanced_score(cluster.pod, place, names) for place in places_of(cluster)]
    assert got == (Status.skip() if want[0] is None else want)


@pytest.mark.slow
@few
@given(cluster=clusters())
def test_image_score_equals_a_computation_by_the_rules(cluster: Cluster) -> None:
    got = score_now(Plug(ImageLocality), Pod.from_object(cluster.pod), table_of(cluster))
    places = places_of(cluster)
    assert got == [plain.image_score(cluster.pod, place, places) for place in places]
