"""A Node object as the typed record: units, defaults, and the field that an error names."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.errors import ObjectError
from berth_sdk.node import Node, NodeImage, Taint


def test_every_field_is_read_in_the_units_of_the_tables() -> None:
    raw = {
        "metadata": {
            "name": "n1",
            "uid": "u1",
            "resourceVersion": "7",
            "labels": {"zone": "a"},
            "annotations": {"note": "x"},
        },
        "spec": {
            "unschedulable": True,
            "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"key": "bare"}],
        },
        "status": {
            "allocatable": {"cpu": "1500m", "memory": "2Ki", "pods": "110"},
            "images": [{"names": ["a", "b"], "sizeBytes": 5}, {"names": None}],
            "declaredFeatures": ["F"],
        },
    }
    node = Node.from_object(raw)
    assert (node.name, node.uid, node.resource_version) == ("n1", "u1", "7")
    assert (node.labels, node.annotations) == ({"zone": "a"}, {"note": "x"})
    assert node.taints == (Taint("gpu", "yes", "NoSchedule"), Taint("bare"))
    assert node.unschedulable
    assert node.allocatable == {"cpu": 1500, "memory": 2048, "pods": 110}
    assert node.images == (NodeImage(("a", "b"), 5), NodeImage((), 0))
    assert node.declared_features == ("F",)
    assert node.object is not None
    assert node.object.get("metadata.name") == "n1"


def test_node_without_fields_has_empty_defaults() -> None:
    node = Node.from_object({"metadata": {"name": "n1"}})
    assert (node.labels, node.taints, node.allocatable, node.images) == ({}, (), {}, ())
    assert not node.unschedulable


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        pytest.param({"metadata": {"labels": {"a": 1}}}, "metadata.labels.a", id="label that is no string"),
        pytest.param({"spec": {"taints": {}}}, "taints", id="taints that are no list"),
        pytest.param({"spec": {"taints": ["x"]}}, r"taints\[0\]", id="taint that is no map"),
        pytest.param({"status": {"allocatable": {"cpu": "1x"}}}, "status.allocatable", id="no quantity"),
        pytest.param({"status": {"images": [{"sizeBytes": "big"}]}}, "not a Node", id="no number"),
    ],
)
def test_error_names_a_malformed_field(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(ObjectError, match=problem):
        Node.from_object(raw)
