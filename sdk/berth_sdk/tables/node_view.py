"""`NodeView`: one node as an object, for per-node methods of plugins."""

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
    """A Node object, its usage by pods, and its pods. Read-only, of one snapshot version."""

    __slots__ = ("_node", "_pods", "_table", "_usage", "generation", "index")

    def __init__(
        self,
        node: Node,
        index: int,
        usage: NodeUsage,
        generation: int,
        table: NodeTable,
    ) -> None:
        self._node = node
        self.index = index
        self._usage = usage
        self.generation = generation
        self._table = table
        self._pods: tuple[Pod, ...] | None = None

    @property
    def node(self) -> Node:
        """The node's record."""
        return self._node

    @property
    def usage(self) -> NodeUsage:
        """The node's usage by pods."""
        return self._usage

    @property
    def name(self) -> str:
        """metadata.name."""
        return self._node.name

    @property
    def labels(self) -> Mapping[str, str]:
        """metadata.labels."""
        return self._node.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        """metadata.annotations."""
        return self._node.annotations

    @property
    def taints(self) -> tuple[Taint, ...]:
        """spec.taints, in order."""
        return self._node.taints

    @property
    def unschedulable(self) -> bool:
        """spec.unschedulable."""
        return self._node.unschedulable

    @property
    def allocatable(self) -> Mapping[str, int]:
        """status.allocatable: cpu in milli, all else in base units."""
        return self._node.allocatable

    @property
    def requested(self) -> Mapping[str, int]:
        """Requests of the pods on the node: cpu in milli, all else in base units."""
        return self._usage.requested

    @property
    def non_zero_requested(self) -> Mapping[str, int]:
        """cpu (milli) and memory (bytes), with defaults for containers that request nothing."""
        return self._usage.non_zero_requested

    @property
    def pod_count(self) -> int:
        """Pods on the node, reserved ones included."""
        return self._usage.pod_count

    @property
    def host_ports(self) -> frozenset[HostPort]:
        """Host ports in use."""
        return self._usage.host_ports

    @property
    def object(self) -> KubeObject | None:
        """The Node's JSON (`Need.node_objects()`). None in a table that was made without the objects."""
        return self._node.object

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods on the node, reserved ones included (`Need.pods()`)."""
        if self._pods is None:
            self._pods = tuple(self._table.pods.on_node(self.index))
        return self._pods

    def with_pods(self, pods: tuple[Pod, ...], usage: NodeUsage | None = None) -> NodeView:
        """Return the same node with other pods. `usage` None: unchanged."""
        view = type(self)(self._node, self.index, usage or self._usage, self.generation, self._table)
        view._pods = pods
        return view

    def __repr__(self) -> str:
        return f"NodeView({self.name})"
