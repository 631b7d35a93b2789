"""`check_reads` names the part of a row that a class reads and does not declare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from berth_sdk import DependsOn, Need, NodeColumn, NodeLabel, NodeView, Plugin, Status
from berth_sdk.errors import UndeclaredError
from berth_sdk.testing import PluginHost, check_reads, make_node, make_pod

GPU = "example.com/gpu"
NODES = (
    make_node("n0", labels={"zone": "a"}, annotations={"note": "x"}, allocatable={GPU: 1}),
    make_node("n1", taints=["t"], features=["Fast"], unschedulable=True, labels={"zone": "b"}),
)
PODS = (make_pod("a", node="n0", requests={GPU: 1}), make_pod("b", node="n1", cpu=1, host_ports=[80]))
Read = Callable[[NodeView], Any]
EVERY = (Need.nodes(images=True, annotation_prefixes=("",)), Need.pods(), Need.node_objects())
ROW: dict[str, Any] = {"depends_on": DependsOn.ROW, "needs": EVERY}


def host_of(read: Read, *, at: str = "filter", **attributes: Any) -> PluginHost:
    def judge(self: Any, state: Any, pod: Any, node: NodeView) -> Status:
        return Status.unschedulable(repr(read(node)))

    def rate(self: Any, state: Any, pod: Any, node: NodeView) -> int:
        return hash(repr(read(node))) % 101

    method = judge if at == "filter" else rate
    cls = type("Made", (Plugin,), {at: method, **ROW, "reads": (), **attributes})
    return PluginHost(cls, nodes=NODES, pods=PODS)


READS: dict[str, tuple[Read, str]] = {
    "name": (lambda node: node.name, "NodeColumn.NAME"),
    "a label": (lambda node: node.labels.get("zone"), "NodeLabel('zone')"),
    "any label": (lambda node: len(node.labels), "NodeLabel('example.com/other')"),
    "annotations": (lambda node: node.annotations.get("note"), "NodeColumn.ANNOTATIONS"),
    "taints": (lambda node: node.taints, "NodeColumn.TAINTS"),
    "unschedulable": (lambda node: node.unschedulable, "NodeColumn.UNSCHEDULABLE"),
    "allocatable": (lambda node: node.allocatable.get(GPU, 0), "NodeColumn.ALLOCATABLE"),
    "features": (lambda node: node.node.declared_features, "NodeColumn.DECLARED_FEATURES"),
    "requested": (lambda node: node.requested.get(GPU, 0), "NodeColumn.REQUESTED"),
    "non-zero requested": (lambda node: node.non_zero_requested["cpu"], "NodeColumn.NON_ZERO_REQUESTED"),
    "pod count": (lambda node: node.pod_count, "NodeColumn.POD_COUNT"),
    "ports": (lambda node: node.host_ports, "NodeColumn.HOST_PORTS"),
}


@pytest.mark.parametrize("at", ["filter", "score"])
@pytest.mark.parametrize(("read", "part"), READS.values(), ids=READS)
def test_undeclared_column_is_named(read: Read, part: str, at: str) -> None:
    with pytest.raises(AssertionError) as found:
        check_reads(host_of(read, at=at), make_pod("web", requests={GPU: 1}))
    assert str(found.value).startswith(f"Made.reads lacks {part}: after a change of it on node n")
    assert f"add {part} to reads" in str(found.value)


@pytest.mark.parametrize(
    ("read", "part"),
    [
        pytest.param(lambda node: [pod.name for pod in node.pods], "the pods on the node", id="pods"),
        pytest.param(lambda node: node.object.parsed["status"], "the Node's JSON", id="object"),
        pytest.param(lambda node: node.node.images, "the node's images", id="images"),
    ],
)
def test_part_without_a_column_cannot_be_declared(read: Read, part: str) -> None:
    with pytest.raises(AssertionError, match=f"depend on {part}, which no column has: .*; remove reads"):
        check_reads(host_of(read, reads=(NodeColumn.NAME,)), make_pod("web"))


def test_true_declaration_passes() -> None:
    check_reads(host_of(lambda node: node.taints, reads=(NodeColumn.TAINTS,)), make_pod("web"))
    check_reads(
        host_of(
            lambda node: (node.labels.get("zone"), node.pod_count),
            reads=(NodeLabel("zone"), NodeColumn.POD_COUNT),
        ),
        make_pod("web"),
    )
    check_reads(host_of(lambda node: sorted(node.labels), reads=(NodeColumn.LABELS,)), make_pod("web"))
    check_reads(host_of(lambda node: "always the same"), make_pod("web"))


def test_answer_that_fails_after_a_change_depends_on_the_part() -> None:
    with pytest.raises(AssertionError, match=r"lacks NodeLabel\('kubernetes.io/hostname'\).*raises KeyError"):
        check_reads(host_of(lambda node: bool(node.labels["kubernetes.io/hostname"])), make_pod("web"))


def test_error_of_the_class_itself_is_raised() -> None:
    host = host_of(lambda node: node.annotations, needs=(Need.nodes(), Need.pods()))
    with pytest.raises(UndeclaredError, match="annotation"):
        check_reads(host, make_pod("web"))


def test_class_without_a_declaration_has_nothing_to_check() -> None:
    with pytest.raises(ValueError, match="Made declares no reads"):
        check_reads(host_of(lambda node: None, reads=None), make_pod("web"))
