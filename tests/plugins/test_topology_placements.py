"""TopologyPlacementGenerator, PodGroupPodsCount and the placement score of NodeResourcesFit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from berth_plugins.node_resources.fit import NodeResourcesFit
from berth_plugins.pod_group_pods_count import NOBODY, PodGroupPodsCount
from berth_plugins.topology_placement_generator import TopologyPlacementGenerator
from berth_sdk.cycle_state import CycleState
from berth_sdk.pod import Pod
from berth_sdk.pod_group import Assignment, GroupView, Placement, PodGroup
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable
from berth_sdk.testing import make_node, make_pod, make_table

ZONE = "zone"
STATE = CycleState("c")


def nodes() -> NodeTable:
    made = [
        make_node("n0", cpu="4", labels={ZONE: "b"}),
        make_node("n1", cpu="8", labels={ZONE: "a"}),
        make_node("n2", cpu="4", labels={ZONE: "b"}),
        make_node("n3", cpu="4"),
    ]
    return make_table(made)


def placed(name: str, node: str) -> Pod:
    return replace(make_pod(name), node_name=node)


def generate(group: PodGroup, *scheduled: Pod) -> list[tuple[str, list[str]]] | Status:
    parent = Placement("", nodes())
    plugin = TopologyPlacementGenerator({}, None)  # type: ignore[arg-type]  # makes no calls
    found = plugin.placement_generate(STATE, GroupView(group, scheduled=scheduled), parent)
    return found if isinstance(found, Status) else [(one.name, one.nodes.names) for one in found]


def test_group_without_constraint_has_one_placement_with_all_nodes() -> None:
    assert generate(PodGroup(name="g")) == [("", ["n0", "n1", "n2", "n3"])]


def test_each_value_of_the_label_is_a_placement() -> None:
    assert generate(PodGroup(name="g", topology_key=ZONE)) == [("a", ["n1"]), ("b", ["n0", "n2"])]
    assert generate(PodGroup(name="g", topology_key="rack")) == []


def test_group_with_members_on_nodes_stays_in_their_domain() -> None:
    group = PodGroup(name="g", topology_key=ZONE)
    assert generate(group, placed("p", "n2")) == [("b", ["n0", "n2"])]
    unknown = "cannot determine domain for already scheduled pods: "
    assert generate(group, placed("p", "n3")) == Status.error(
        f"{unknown}no topology domain found for pod default/p"
    )
    assert generate(group, placed("p", "n0"), placed("q", "n1")) == Status.error(
        f'{unknown}more than 1 domain found for pod group: "a", "b"'
    )


def test_placement_with_most_members_scores_highest() -> None:
    plugin = PodGroupPodsCount({}, None)  # type: ignore[arg-type]  # makes no calls
    group = GroupView(PodGroup(name="g"), scheduled=(placed("p", "n0"),))
    placement = Placement("b", nodes())
    assert plugin.placement_score(STATE, group, placement, [Assignment(make_pod("q"), "n1")]) == 2
    scores = plugin.normalize_placements(STATE, group, np.array([2, 3, 0]), [placement] * 3)
    assert not isinstance(scores, Status)
    assert scores.tolist() == [66, 100, 0]
    none = plugin.normalize_placements(STATE, group, np.array([0, 0]), [placement] * 2)
    assert none == Status(Code.ERROR, (NOBODY,))


@pytest.mark.parametrize(("count", "want"), [(0, 0), (2, 12), (4, 25)])
def test_fuller_placement_scores_higher(count: int, want: int) -> None:
    args = {"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 1}]}}
    plugin = NodeResourcesFit(args, None)  # type: ignore[arg-type]  # makes no calls
    zone = Placement("b", nodes().take([0, 2]))
    pods = [Assignment(make_pod(f"p{i}", cpu="500m"), "n0") for i in range(count)]
    assert plugin.placement_score(STATE, GroupView(PodGroup(name="g")), zone, pods) == want
