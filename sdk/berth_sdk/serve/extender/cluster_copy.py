"""`ClusterCopy`: the nodes of a cluster, and the pods on them, as tables that follow lists and watches.

The thread that watches writes changes into a `Feed` for each kind. The thread that answers requests applies
them between two requests, so that a table does not change while a plugin reads it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from berth_sdk.clocks import monotonic_s
from berth_sdk.errors import ObjectError
from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import Need, NeedKind
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.serve.extender.asked import Found
from berth_sdk.serve.extender.messages import Json
from berth_sdk.tables import NodeColumns, NodeTable, PodTable
from berth_sdk.tables.node_columns import NodeUsage, changed_usage

LOG: Final = logging.getLogger("berth_sdk.serve.extender")
NEW_NODE_S: Final = 1.0
"""Seconds to wait for a node of a request that the watch has not shown yet."""
_OF_PODS: Final = frozenset({NeedKind.NODE_SUMMARY, NeedKind.POD_SUMMARY, NeedKind.POD_OBJECT})
"""The needs that pods on nodes meet: the usage of a node is the sum over its pods."""


class Feed:
    """The changes to the objects of one kind since they were last taken, by key. Safe for two threads.

    Only the last change of each object is kept, so the size is bounded by the number of objects.
    """

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._whole: dict[str, Json] | None = None
        self._changes: dict[str, Json | None] = {}
        self.is_synced = False
        """True once the objects were listed."""

    def replace(self, items: Mapping[str, Json]) -> None:
        """Replace all objects, after a list."""
        with self._changed:
            self._whole, self._changes = dict(items), {}
            self.is_synced = True
            self._changed.notify_all()

    def put(self, key: str, item: Json | None) -> None:
        """Add or replace one object; None: remove it."""
        with self._changed:
            self._changes[key] = item
            self._changed.notify_all()

    def take(self) -> tuple[dict[str, Json] | None, dict[str, Json | None]]:
        """Return (all objects after a list, or None; later changes), and forget them."""
        with self._changed:
            whole, changes = self._whole, self._changes
            self._whole, self._changes = None, {}
        return whole, changes


class ClusterCopy:
    """The copy. One thread at a time calls `find` and `pods_of`; any thread writes to the feeds.

    `pods`: None for a plugin whose needs have neither pods nor the usage of nodes.
    """

    def __init__(self, needs: Iterable[Need]) -> None:
        kinds = {need.kind for need in needs}
        self._changed = threading.Condition()
        self.nodes = Feed(self._changed)
        self.pods = Feed(self._changed) if kinds & _OF_PODS else None
        self._with_node_objects = NeedKind.NODE_OBJECT in kinds
        self._with_pod_objects = NeedKind.POD_OBJECT in kinds
        self._columns = NodeColumns()
        self._table = PodTable() if self.pods is not None else None
        self._columns.pods = self._table
        self._pods: dict[str, Pod] = {}
        self._on_node: dict[str, dict[str, Pod]] = {}
        self._generation = 0
        self._in_vain: frozenset[str] = frozenset()
        """The nodes that the last request waited for and that did not come."""

    @property
    def is_synced(self) -> bool:
        """True once all objects were listed."""
        return self.nodes.is_synced and (self.pods is None or self.pods.is_synced)

    def find(self, names: Sequence[str], wait_s: float = NEW_NODE_S) -> Found:
        """Return the nodes of a request, as of now. Waits `wait_s` at most for nodes that are not there.

        Does not wait again for a node that the request before waited for.
        """
        ends_s = monotonic_s() + wait_s
        self.catch_up()
        while (unknown := self._unknown(names)) - self._in_vain and (left_s := ends_s - monotonic_s()) > 0:
            with self._changed:
                self._changed.wait(left_s)
            self.catch_up()
        self._in_vain = unknown
        whole = NodeTable.of(self._columns)
        slots = sorted(self._columns.index_of[name] for name in names if name in self._columns.index_of)
        rows = whole.positions_of_slots(np.asarray(slots, dtype=np.intp))
        return Found(whole, rows, tuple(name for name in names if name in unknown))

    def _unknown(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in names if name not in self._columns.index_of)

    def snapshot(self) -> NodeTable:
        """Return all nodes, as of the last request."""
        return NodeTable.of(self._columns)

    def pods_of(self, uids: Iterable[str]) -> tuple[Pod, ...]:
        """Return the pods on nodes with these uids, without those that the copy lacks."""
        return tuple(pod for uid in uids if (pod := self._pods.get(uid)) is not None)

    # --- changes ---------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Apply the changes since the last call."""
        whole_nodes, nodes = self.nodes.take()
        whole_pods, pods = (None, {}) if self.pods is None else self.pods.take()
        if whole_nodes is None and whole_pods is None and not nodes and not pods:
            return
        self._generation += 1
        self._columns.begin_update()
        touched: set[str] = set()
        if whole_nodes is not None:
            nodes = {
                **dict.fromkeys(self._columns.index_of.keys() - whole_nodes.keys()),
                **whole_nodes,
                **nodes,
            }
        for name, item in nodes.items():
            if self._put_node(name, item):
                touched.add(name)
        if whole_pods is not None:
            pods = {**dict.fromkeys(self._pods.keys() - whole_pods.keys()), **whole_pods, **pods}
        for uid, item in pods.items():
            touched |= self._put_pod(uid, item)
        for name in touched:
            self._count(name)
        self._columns.reclaim()

    def _put_node(self, name: str, item: Json | None) -> bool:
        """Add, replace or remove a node; return True if its pods have to be counted again."""
        slot = self._columns.index_of.get(name)
        node = None if item is None else self._node(name, item)
        if node is None:
            if slot is not None:
                self._columns.remove(slot, self._generation)
            return False
        if slot is None:
            slot = self._columns.add(node)
        else:
            self._columns.set_node(slot, node)
        self._columns.touch(slot, self._generation)
        return True

    def _put_pod(self, uid: str, item: Json | None) -> set[str]:
        """Add, replace or remove a pod on a node; return the names of the nodes that it concerns."""
        before = self._pods.pop(uid, None)
        after = None if item is None else self._pod(item)
        names = set()
        if before is not None:
            names.add(before.node_name)
            # Replaced in its place: plugins see pods in the order in which they came.
            if after is None or after.node_name != before.node_name:
                del self._on_node[before.node_name][uid]
        if after is not None:
            names.add(after.node_name)
            self._pods[uid] = after
            self._on_node.setdefault(after.node_name, {})[uid] = after
        for name in names:
            if not self._on_node[name]:
                del self._on_node[name]
        return names

    def _count(self, name: str) -> None:
        slot = self._columns.index_of.get(name)
        if slot is None or self._table is None:
            return
        pods = tuple(self._on_node.get(name, {}).values())
        self._table.set_node_pods(slot, pods, (), self._generation)
        self._columns.touch(slot, self._generation, changed_usage(NodeUsage(), (), pods))

    def _node(self, name: str, item: Json) -> Node | None:
        try:
            node = Node.from_object(KubeObject("v1", "Node", parsed=item))
        except ObjectError as err:
            LOG.warning("node %s is left out, it cannot be read: %s", name, err)
            return None
        if not self._with_node_objects:
            return replace(node, object=None)
        if node.object is not None:
            node.object.release()
        return node

    def _pod(self, item: Json) -> Pod | None:
        """Return a pod that is on a node and has not ended; None for others."""
        phase: Any = (item.get("status") or {}).get("phase")
        try:
            pod = Pod.from_object(KubeObject("v1", "Pod", parsed=item))
        except ObjectError as err:
            LOG.warning("a pod is left out, it cannot be read: %s", err)
            return None
        if not pod.node_name or phase in ("Succeeded", "Failed"):
            return None
        if not self._with_pod_objects:
            return replace(pod, object=None)
        if pod.object is not None:
            pod.object.release()
        return pod
