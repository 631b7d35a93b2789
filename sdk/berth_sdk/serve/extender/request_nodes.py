"""The nodes of requests: Node objects as tables, and names as tables with nothing but names.

The scheduler sends every node again with every request. `NodeCache` parses an object when its text is new,
and makes a record of it when its uid or resource version is new.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn, cast

from berth_sdk.errors import BerthError, ObjectError
from berth_sdk.json.bounded import MAX_DEPTH, is_nested_deeper
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.serve.extender.asked import Found
from berth_sdk.serve.extender.messages import BadRequestError, Json, SentNode
from berth_sdk.tables import NodeColumns, NodeTable
from berth_sdk.tables.node_columns import NodeUsage
from berth_sdk.undeclared import Undeclared

MAX_NODES: Final = 20_000
"""Nodes that the cache holds; the one that was asked about the longest ago leaves."""
_ITEMS: Final = '"Nodes":{"metadata":{},"items":['
"""The beginning of the nodes, as Go writes it. In a string of JSON its quotes would have backslashes."""
_NAME: Final = '{"metadata":{"name":"'
"""The beginning of a Node, as Go writes it."""
_DECODER: Final = json.JSONDecoder()


class PodsUnknownError(BerthError):
    """A plugin read the usage of nodes by pods, and the server knows no pods."""


class NodeCache:
    """The Node objects of earlier requests. One thread at a time uses it. `reads`: objects read so far."""

    def __init__(self, *, with_objects: bool) -> None:
        """`with_objects`: the plugin declared Need.node_objects()."""
        self._with_objects = with_objects
        self._known: OrderedDict[str, SentNode] = OrderedDict()
        self._last: tuple[tuple[SentNode, ...], NodeTable] | None = None
        self.reads = 0

    def found(self, nodes: tuple[SentNode, ...]) -> Found:
        """Return the nodes of a request as a table."""
        last = self._last
        # The records are the cache's own, so the same records are the same table.
        if last is None or last[0] != nodes:
            last = self._last = (nodes, _table([one.node for one in nodes]))
        return Found(last[1], last[1].slots)

    def known(self, names: Sequence[str]) -> Found:
        """Return the nodes as earlier requests had them. A request of preempt has only their names."""
        table = _table([self._known[name].node for name in names if name in self._known])
        return Found(table, table.slots, tuple(name for name in names if name not in self._known))

    def split(self, text: str) -> tuple[str, list[SentNode]] | None:
        """Return a request without its Node objects, and these; None: all of it has to be parsed.

        An object with the same text as before is not parsed: most nodes of a cluster do not change from one
        request to the next. Raises BadRequestError for a malformed Node.
        """
        begin = text.find(_ITEMS)
        if begin < 0 or text.find(_ITEMS, begin + 1) >= 0:
            return None
        at = begin = begin + len(_ITEMS)
        sent: list[SentNode] = []
        while not text.startswith("]", at):
            if sent:
                if not text.startswith(",", at):
                    return None
                at += 1
            one = self._same(text, at)
            if one is None:
                try:
                    item, end = _DECODER.raw_decode(text, at)
                except (ValueError, RecursionError):
                    return None
                part = text[at:end]
                if not _is_named(item) or is_nested_deeper(part, MAX_DEPTH):
                    return None
                one = self.read(item, part)
            sent.append(one)
            at += len(one.text)
        return f"{text[:begin]}{text[at:]}", sent

    def read(self, item: Json, text: str = "") -> SentNode:
        """Return a node, which has a name. `text`: its JSON; empty: not known. Raises BadRequestError."""
        metadata = cast("Mapping[str, Any]", item["metadata"])
        name, uid, version = metadata["name"], metadata.get("uid"), metadata.get("resourceVersion")
        known = self._known.get(name)
        is_known = known is not None and uid and version
        if known is not None and is_known and (known.uid, known.resource_version) == (uid, version):
            node = known.node
        else:
            node = self._node(name, item)
        text = text or json.dumps(item, separators=(",", ":"))
        if known is not None and known.node is node and known.text == text:
            return self._used(known)
        return self._used(SentNode(uid or "", version or "", node, text))

    def _same(self, text: str, at: int) -> SentNode | None:
        """Return the node whose text begins at `at`, if it is known with this text."""
        if not text.startswith(_NAME, at):
            return None
        begin = at + len(_NAME)
        known = self._known.get(text[begin : text.find('"', begin)])
        return self._used(known) if known is not None and text.startswith(known.text, at) else None

    def _node(self, name: str, item: Json) -> Node:
        try:
            node = Node.from_object(KubeObject("v1", "Node", parsed=item))
        except ObjectError as err:
            raise BadRequestError(f"node {name}: {err}") from err
        self.reads += 1
        if not self._with_objects:
            return replace(node, object=None)
        if node.object is not None:
            node.object.release()
        return node

    def _used(self, one: SentNode) -> SentNode:
        self._known[one.node.name] = one
        self._known.move_to_end(one.node.name)
        if len(self._known) > MAX_NODES:
            self._known.popitem(last=False)
        return one


def _is_named(item: Any) -> bool:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return isinstance(name, str) and bool(name)


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
