"""The nodes of requests: Node objects as tables, and names as tables with nothing but names.

The scheduler sends every node again with every request. `NodeCache` reads an object once, and again when its
uid or resource version is another.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, NoReturn, cast

from berth_sdk.errors import BerthError, ObjectError
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.serve.extender.asked import Found
from berth_sdk.serve.extender.messages import BadRequestError, Json
from berth_sdk.tables import NodeColumns, NodeTable
from berth_sdk.tables.node_columns import NodeUsage
from berth_sdk.undeclared import Undeclared

MAX_NODES: Final = 20_000
"""Nodes that the cache holds; the one that was asked about the longest ago leaves."""


class PodsUnknownError(BerthError):
    """A plugin read the usage of nodes by pods, and the server knows no pods."""


class _Known(NamedTuple):
    uid: str
    resource_version: str
    node: Node
    raw: bytes


class NodeCache:
    """The Node objects of earlier requests. One thread at a time uses it. `reads`: objects read so far."""

    def __init__(self, *, with_objects: bool) -> None:
        """`with_objects`: the plugin declared Need.node_objects()."""
        self._with_objects = with_objects
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._last: tuple[tuple[Node, ...], NodeTable] | None = None
        self.reads = 0

    def found(self, items: Sequence[Json]) -> Found:
        """Return the nodes of a request. Raises BadRequestError for a malformed Node."""
        nodes = tuple(self._read(item).node for item in items)
        last = self._last
        # The records are the cache's own, so the same records are the same table.
        if last is None or list(map(id, last[0])) != list(map(id, nodes)):
            last = self._last = (nodes, _table(nodes))
        return Found(last[1], last[1].slots)

    def known(self, names: Sequence[str]) -> Found:
        """Return the nodes as earlier requests had them. A request of preempt has only their names."""
        nodes = [self._known[name].node for name in names if name in self._known]
        table = _table(nodes)
        return Found(table, table.slots, tuple(name for name in names if name not in self._known))

    def raw(self, item: Json) -> bytes:
        """Return the JSON of a Node of a request."""
        metadata = item["metadata"]
        # Without both, nothing tells whether an object that was read is the same.
        is_known_again = metadata.get("uid") and metadata.get("resourceVersion")
        return self._read(item).raw if is_known_again else _dumped(item)

    def _read(self, item: Json) -> _Known:
        metadata = cast("Mapping[str, Any]", item["metadata"])
        name, uid = metadata["name"], metadata.get("uid")
        version = metadata.get("resourceVersion")
        known = self._known.get(name)
        if known is not None and uid and version and (known.uid, known.resource_version) == (uid, version):
            self._known.move_to_end(name)
            return known
        try:
            raw = _dumped(item)
            node = Node.from_object(KubeObject("v1", "Node", raw=raw, parsed=item))
        except ObjectError as err:
            raise BadRequestError(f"node {name}: {err}") from err
        self.reads += 1
        if self._with_objects and node.object is not None:
            node.object.release()
        else:
            node = replace(node, object=None)
        known = self._known[name] = _Known(uid or "", version or "", node, raw)
        self._known.move_to_end(name)
        if len(self._known) > MAX_NODES:
            self._known.popitem(last=False)
        return known


def _dumped(item: Json) -> bytes:
    return json.dumps(item, separators=(",", ":")).encode()


def named(names: Sequence[str]) -> Found:
    """Return nodes with nothing but their names, for a plugin that needs no more."""
    columns = NodeColumns()
    for name in names:
        columns.add(Node(name=name))
    table = NodeTable(columns)
    return Found(table, table.slots)


class _Unknown(Undeclared):
    """The stand-in for the usage of a node by pods that the server does not know."""

    __slots__ = ()

    def refuse(self, part: str = "") -> NoReturn:
        """Raise PodsUnknownError."""
        raise PodsUnknownError(
            "the plugin reads the usage of nodes by pods, and an extender gets none in its requests: start"
            " `berth-sdk serve --extender` with --server or --in-cluster, and it watches the pods"
        )


def _table(nodes: Sequence[Node]) -> NodeTable:
    """Return a table of these nodes. Reading their usage by pods raises PodsUnknownError."""
    columns = NodeColumns()
    for node in nodes:
        columns.add(node)
    unknown: Any = _Unknown("usage", "")
    nothing_known = NodeUsage(
        requested=unknown, non_zero_requested=unknown, pod_count=unknown, host_ports=unknown
    )
    columns.usages = [nothing_known] * columns.capacity
    columns.requested = columns.non_zero = columns.pod_count = columns.port_users = unknown
    return NodeTable.of(columns)
