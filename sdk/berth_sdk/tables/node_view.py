"""`NodeView`: one node as an object, for plugins that are asked node by node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node, Taint
from berth_sdk.pod import HostPort, Pod

if TYPE_CHECKING:
    from berth_sdk.tables.node_columns import NodeUsage
    from berth_sdk.tables.node_table import NodeTable


class NodeView:
    """Node object, its usage by pods, and the pods. Read-only, of one snapshot version."""

    __slots__ = ("_pods", "_table", "generation", "index", "node", "usage")

    def __init__(
        self,
        node: Node,
        index: int,
        usage: NodeUsage,
        generation: int,
        table: NodeTable,
    ) -> None:
        self.node = node
        self.index = index
        self.usage = usage
        self.generation = generation
        self._table = table
        self._pods: tuple[Pod, ...] | None = None

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.node.name

    @property
    def labels(self) -> Mapping[str, str]:
        """metadata.labels."""
        return self.node.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        """metadata.annotations."""
        return self.node.annotations

    @property
    def taints(self) -> tuple[Taint, ...]:
        """spec.taints, in order."""
        return self.node.taints

    @property
    def unschedulable(self) -> bool:
        """spec.unschedulable."""
        return self.node.unschedulable

    @property
    def allocatable(self) -> Mapping[str, int]:
        """status.allocatable: cpu in milli, all else in base units."""
        return self.node.allocatable

    @property
    def requested(self) -> Mapping[str, int]:
        """Requests of the pods on the node: cpu in milli, all else in base units."""
        return self.usage.requested

    @property
    def non_zero_requested(self) -> Mapping[str, int]:
        """cpu (milli) and memory (bytes), with defaults for containers that request nothing."""
        return self.usage.non_zero_requested

    @property
    def pod_count(self) -> int:
        """Pods on the node, reserved ones included."""
        return self.usage.pod_count

    @property
    def host_ports(self) -> frozenset[HostPort]:
        """Host ports in use."""
        return self.usage.host_ports

    @property
    def object(self) -> KubeObject | None:
        """The Node's JSON, where it is known (in process, or with KIND_NODE_OBJECT)."""
        return self.node.object

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods on the node, reserved ones included (needs KIND_POD_SUMMARY when served)."""
        if self._pods is None:
            self._pods = tuple(self._table.pods.on_node(self.index))
        return self._pods

    def with_pods(self, pods: tuple[Pod, ...], usage: NodeUsage) -> NodeView:
        """The same node as it would be with other pods on it."""
        view = NodeView(self.node, self.index, usage, self.generation, self._table)
        view._pods = pods
        return view

    def __repr__(self) -> str:
        return f"NodeView({self.name})"
