"""`Snapshot`: the state of the cluster that one cycle reads, copied from the cache row by row.

The scheduler updates the snapshot with the changes at the start of a cycle (and while idle). It does not
change until the cycle releases it. Plugins read it as `NodeTable`. `RowLog` says when each part of
each row last changed, and which rows were removed; `ChangeLog` reads it.
Source: kube-scheduler `backend/cache/snapshot.go` and `cache.go` (UpdateSnapshot), v1.36.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

import numpy as np
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeColumns, NodeTable, ObjectStore, PodTable, StateVersion
from berth_sdk.tables.generation_log import GenerationLog
from numpy.typing import NDArray

from berth_host.cache.cache import Cache
from berth_host.cache.node_info import NodeInfo
from berth_host.cache.objects import ObjectStores
from berth_host.errors.state import InvariantError


class RowParts:
    """The generations of one row's last changes. `incarnation`: the cache's `NodeInfo.born` of its node."""

    __slots__ = ("born", "incarnation", "object", "summary", "usage")

    def __init__(self, incarnation: int, generation: int) -> None:
        self.incarnation = incarnation
        self.born = self.summary = self.object = self.usage = generation


class RowLog:
    """The records of the slots in use, and the logs of changed slots, removed slots and removed pods."""

    __slots__ = ("_rows", "moved", "removed", "removed_pods")

    def __init__(self) -> None:
        self._rows: dict[int, RowParts] = {}
        self.moved: GenerationLog[int] = GenerationLog()
        """The slots in which anything changed, with repetitions, by the version with the change."""
        self.removed: GenerationLog[int] = GenerationLog()
        """The slots of removed nodes."""
        self.removed_pods: GenerationLog[tuple[int, str]] = GenerationLog()
        """Slot and uid of pods that were removed from an existing node."""

    def row(self, slot: int) -> RowParts:
        """Return the record of a slot in use."""
        return self._rows[slot]

    def add(self, slot: int, incarnation: int, generation: int) -> None:
        """Create the record of a slot that a node got."""
        self._rows[slot] = RowParts(incarnation, generation)

    def remove(self, slot: int, generation: int) -> None:
        """Remove the record of a slot whose node was removed."""
        del self._rows[slot]
        self.removed.add(generation, slot)


_EPOCHS: Final = 2**53 - 1
"""The number of possible epochs; a decoder that uses floating point numbers reads each one exactly."""


class Snapshot:
    """One set of columns, changed in place by `update`, and never while a cycle holds it.

    `epoch`: random, so that generations of another host or of another term as leader are not taken for this
    one's. `confirmed_generation`: returns the oldest version that a copy of the snapshot may have; None:
    there are no copies. A removed node's slot is used again only after all copies have a newer version.
    """

    def __init__(self, objects: ObjectStores | None = None) -> None:
        self.epoch = _new_epoch()
        self.generation = 0
        self.columns = NodeColumns()
        self.pods = PodTable()
        self.columns.pods = self.pods
        self.log = RowLog()
        self.confirmed_generation: Callable[[], int] | None = None
        self._live_objects = objects
        self._objects: dict[str, ObjectStore] = {}
        self._names: list[str] = []
        self._order: NDArray[np.intp] | None = None
        self._held = False
        self._on_release: list[Callable[[], None]] = []

    # --- reading -----------------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """Begin a new epoch, for a new term: every copy must be sent whole again.

        Raises InvariantError if the snapshot is held.
        """
        if self._held:
            raise InvariantError(f"the snapshot is held by a cycle at {self.version}: its epoch cannot end")
        self.epoch = _new_epoch()

    @property
    def version(self) -> StateVersion:
        """The epoch and the generation."""
        return StateVersion(self.epoch, self.generation)

    @property
    def nodes(self) -> NodeTable:
        """The table of all nodes; the same object until the snapshot changes."""
        return NodeTable.of(self.columns)

    def has_node(self, node_name: str) -> bool:
        """Return True if the snapshot has this node."""
        return node_name in self.columns.index_of

    def pod_on_node(self, node_name: str, uid: str) -> Pod | None:
        """Return the pod with this uid on that node; None if it is not there."""
        slot = self.columns.index_of.get(node_name)
        if slot is None:
            return None
        return next((pod for pod in self.pods.on_node(slot) if pod.uid == uid), None)

    @property
    def order(self) -> NDArray[np.intp]:
        """Positions in `nodes` in the order in which kube-scheduler visits them (intp[n]).

        Recomputed only when nodes are added or removed: a node that changed its zone keeps its place until
        then.
        """
        if self._order is None:
            slots = np.fromiter((self.columns.index_of[name] for name in self._names), dtype=np.intp)
            self._order = np.searchsorted(self.columns.live_slots(), slots)
            self._order.flags.writeable = False
        return self._order

    def objects_of_kind(self, kind: str) -> ObjectStore:
        """Return the objects of a kind in this version."""
        store = self._objects.get(kind)
        if store is None:
            store = self._objects[kind] = ObjectStore()
        return store

    # --- holding -----------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """True while a cycle reads the snapshot."""
        return self._held

    def hold(self) -> None:
        """Hold the snapshot for a cycle: `update` raises until `release`. Raises InvariantError if held."""
        if self._held:
            raise InvariantError("the snapshot is held by a cycle, so a second one cannot hold it")
        self._held = True

    def release(self) -> None:
        """Release the snapshot at the end of a cycle; has no effect if it is not held."""
        self._held = False
        waiting, self._on_release = self._on_release, []
        for act in waiting:
            act()

    def when_released(self, act: Callable[[], None]) -> None:
        """Call `act` once while no cycle holds the snapshot: now, or at the next `release`."""
        if self._held:
            self._on_release.append(act)
        else:
            act()

    # --- updating ----------------------------------------------------------------------------

    def update(self, cache: Cache) -> None:
        """Apply the changes of the cache and the object stores. Raises InvariantError if held."""
        if self._held:
            raise InvariantError(f"the snapshot is held by a cycle at {self.version}, so it cannot move")
        target = cache.generations.last
        if target == self.generation:
            return
        columns = self.columns
        if columns.has_freed:
            columns.reclaim(None if self.confirmed_generation is None else self.confirmed_generation())
        columns.begin_update()
        new: list[NodeInfo] = []
        moved = False
        for info in cache.changed_since(self.generation):
            if info.name in columns.index_of:
                moved = moved or info.node is None
                self._copy(info, cache, target)
            elif info.node is not None:
                new.append(info)
        # New nodes in the order of their addition, so that slots do not depend on the nodes' pods.
        for info in sorted(new, key=lambda info: info.born) if new else ():
            self._copy(info, cache, target)
            moved = True
        if len(columns) != cache.node_count:
            self._drop_vanished(cache, target)
            moved = True
        if moved:
            self._names = cache.node_tree.names()
            self._order = None
        if len(columns) != cache.node_count or len(self._names) != len(columns):
            raise InvariantError(
                f"the cache has {cache.node_count} nodes and {len(self._names)} in its order,"
                f" the snapshot {len(columns)}"
            )
        self._update_objects(target)
        self.generation = target

    def _copy(self, info: NodeInfo, cache: Cache, target: int) -> None:
        columns, log = self.columns, self.log
        slot = columns.index_of.get(info.name)
        if slot is not None and (info.node is None or log.row(slot).incarnation != info.born):
            self._drop(slot, target)
            slot = None
        if info.node is None:
            return
        is_new = slot is None
        if slot is None:
            slot = columns.add(info.node)
            log.add(slot, info.born, info.generation)
        row = log.row(slot)
        if info.node_generation > self.generation and not is_new:
            old = columns.nodes[slot]
            if old is not info.node:
                columns.set_node(slot, info.node)
                row.object = info.generation
                if old is None or not _same_summary(old, info.node):
                    row.summary = info.generation
        if info.usage_generation > self.generation or is_new:
            usage = info.usage()
            if usage != columns.usages[slot]:
                columns.set_usage(slot, usage)
                row.usage = info.generation
            gone = self.pods.set_node_pods(slot, info.pods, cache.assumed_uids, info.generation)
            for uid in gone:
                log.removed_pods.add(info.generation, (slot, uid))
        columns.touch(slot, info.generation)
        log.moved.add(target, slot)

    def _drop(self, slot: int, target: int) -> None:
        self.columns.remove(slot, target)
        self.log.remove(slot, target)
        self._order = None

    def _drop_vanished(self, cache: Cache, target: int) -> None:
        for name, slot in list(self.columns.index_of.items()):
            info = cache.node_info(name)
            if info is None or info.node is None:
                self._drop(slot, target)

    # --- objects of other kinds ----------------------------------------------------------------

    def _update_objects(self, target: int) -> None:
        if self._live_objects is None or self._live_objects.changed_at <= self.generation:
            return
        for kind, live in self._live_objects.by_kind():
            mine = self.objects_of_kind(kind)
            removed = live.removed.since(self.generation)
            if removed is None:
                gone = [item.ref for item in mine.changed_since(0)]
            else:
                gone = [ref for _, ref in removed]
            for ref in gone:
                if live.find(ref.namespace, ref.name) is None:
                    mine.remove(ref.namespace, ref.name, target)
            for item in live.changed_since(self.generation):
                mine.put(item.ref, item.object, item.generation)


def _same_summary(old: Node, new: Node) -> bool:
    return (
        old.labels == new.labels
        and old.annotations == new.annotations
        and old.taints == new.taints
        and old.unschedulable == new.unschedulable
        and old.allocatable == new.allocatable
        and old.images == new.images
        and old.declared_features == new.declared_features
    )


def _new_epoch() -> int:
    return secrets.randbelow(_EPOCHS) + 1
