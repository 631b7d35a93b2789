"""The order in which nodes are visited."""

from __future__ import annotations

import pytest
from berth_host.cache.node_tree import NodeTree, zone_key
from berth_sdk.node import Node

REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
OLD_REGION = "failure-domain.beta.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param({}, "", id="no labels"),
        pytest.param({REGION: "r", ZONE: "z"}, "r:\x00:z", id="both"),
        pytest.param({ZONE: "z"}, ":\x00:z", id="zone alone"),
        pytest.param({REGION: "r"}, "r:\x00:", id="region alone"),
        pytest.param({OLD_REGION: "or", REGION: "r", OLD_ZONE: "oz", ZONE: "z"}, "or:\x00:oz", id="old wins"),
        pytest.param({OLD_ZONE: "", ZONE: "z"}, "", id="an old label that is empty wins too"),
    ],
)
def test_zone_key(labels: dict[str, str], want: str) -> None:
    assert zone_key(labels) == want


def tree(*nodes: tuple[str, str]) -> NodeTree:
    made = NodeTree()
    for name, zone in nodes:
        made.put(Node(name=name, labels={ZONE: zone}))
    return made


def test_zones_take_turns_in_order_of_first_appearance() -> None:
    made = tree(("b1", "b"), ("a1", "a"), ("b2", "b"), ("b3", "b"), ("a2", "a"))
    assert made.names() == ["b1", "a1", "b2", "a2", "b3"]


def test_zone_goes_with_its_last_node_and_comes_back_last() -> None:
    made = tree(("a1", "a"), ("b1", "b"))
    made.remove("a1")
    made.put(Node(name="a2", labels={ZONE: "a"}))
    assert made.names() == ["b1", "a2"]


def test_node_that_changes_its_zone_is_appended_there() -> None:
    made = tree(("a1", "a"), ("b1", "b"), ("b2", "b"))
    made.put(Node(name="a1", labels={ZONE: "b"}))
    assert made.names() == ["b1", "b2", "a1"]


def test_repeated_put_and_unknown_removal_change_nothing() -> None:
    made = tree(("a1", "a"), ("a2", "a"))
    made.put(Node(name="a1", labels={ZONE: "a"}))
    made.remove("ghost")
    assert made.names() == ["a1", "a2"]
    assert len(made) == 2


def test_empty_tree_has_no_names() -> None:
    assert NodeTree().names() == []
