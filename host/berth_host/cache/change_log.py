"""`ChangeLog`: the changes in the snapshot since the version of a copy.

Called once per call that carries state, so its cost must grow with the changes, not with the cluster. It
reads the bounded logs of the snapshot's `RowLog`, and the rows' generations for a copy that is older than
these logs. It stores no history.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.selection import StateSelection
from berth_sdk.tables import NodeUsage, StateVersion
from berth_sdk.tables.object_store import StoredObject

from berth_host.cache.snapshot import Snapshot
from berth_host.errors.state import InvariantError
from berth_host.model.resources import kind_of
from berth_host.model.state_changes import Lazy, NodeChange, ObjectChange, StateChanges

_MODULUS = 2**53


class ChangeLog:
    """The changes of one snapshot up to its current version."""

    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def version(self) -> StateVersion:
        """The snapshot's version."""
        return self._snapshot.version

    def changes_since(self, base: StateVersion | None, selection: StateSelection) -> StateChanges | None:
        """Return the changes since `base`; everything for None.

        Returns None if the changes since `base` are unknown (another epoch, or too old). The copy then needs
        everything.
        """
        snapshot = self._snapshot
        if base is None:
            return self._everything(selection)
        if base.epoch != snapshot.epoch or base.generation > snapshot.generation:
            return None
        since = base.generation
        removed = snapshot.log.removed.since(since)
        removed_pods = snapshot.log.removed_pods.since(since)
        objects = self._changed_objects(since, selection)
        if removed is None or removed_pods is None or objects is None:
            return None
        left: dict[int, list[str]] = {}
        for _, (slot, uid) in removed_pods:
            left.setdefault(slot, []).append(uid)
        nodes = [
            self._changed_node(slot, since, left.get(slot, ()), selection)
            for slot in self._moved_since(since)
        ]
        slots = sorted({slot for _, slot in removed})
        pods = self._snapshot.pods
        assumed = frozenset(pod.uid for node in nodes for pod in node.pods if pods.is_assumed(pod.uid))
        return self._changes(base, nodes, slots, objects, selection, assumed)

    # --- nodes -------------------------------------------------------------------------------

    def _moved_since(self, since: int) -> list[int]:
        """Return the slots in use that changed after `since`, ascending."""
        generation = self._snapshot.columns.generation
        moved = self._snapshot.log.moved.since(since)
        if moved is None:
            found: list[int] = np.flatnonzero(generation > since).tolist()
            return found
        return sorted({slot for _, slot in moved if generation.item(slot) > since})

    def _changed_node(
        self, slot: int, since: int, left: Sequence[str], selection: StateSelection
    ) -> NodeChange:
        columns, pods = self._snapshot.columns, self._snapshot.pods
        row = self._snapshot.log.row(slot)
        if row.born > since:
            return self._whole_node(slot, selection)
        node = columns.nodes[slot]
        if node is None:
            raise InvariantError(f"slot {slot} has generation {columns.generation[slot]} and no node")
        changed: Sequence[Pod] = ()
        removed: Sequence[str] = ()
        if selection.pods:
            here = pods.pods_of(slot)
            changed = [pod for pod in here if pods.generation_of(pod.uid) > since]
            if left:
                present = {pod.uid for pod in here}
                removed = [uid for uid in dict.fromkeys(left) if uid not in present]
        return NodeChange(
            index=slot,
            generation=int(columns.generation[slot]),
            node=node,
            is_new=False,
            summary=row.summary > since,
            object=row.object > since,
            usage=columns.usages[slot] if row.usage > since else None,
            pods=changed,
            removed_pods=removed,
        )

    def _whole_node(self, slot: int, selection: StateSelection) -> NodeChange:
        columns, pods = self._snapshot.columns, self._snapshot.pods
        node = columns.nodes[slot]
        if node is None:
            raise InvariantError(f"slot {slot} is in use and has no node")
        here = pods.pods_of(slot) if selection.pods else ()
        return _whole(slot, int(columns.generation[slot]), node, columns.usages[slot], here, selection)

    # --- objects -----------------------------------------------------------------------------

    def _changed_objects(self, since: int, selection: StateSelection) -> list[ObjectChange] | None:
        changes: list[ObjectChange] = []
        for resource, _ in selection.resources:
            store = self._snapshot.objects_of_kind(kind_of(resource))
            removed = store.removed.since(since)
            if removed is None:
                return None
            gone = {(ref.namespace, ref.name): (generation, ref) for generation, ref in removed}
            changes += (
                ObjectChange(resource=resource, generation=generation, ref=ref, object=None)
                for key, (generation, ref) in gone.items()
                if store.find(*key) is None
            )
            changes += (
                ObjectChange(resource=resource, generation=item.generation, ref=item.ref, object=item.object)
                for item in store.changed_since(since)
            )
        return changes

    # --- the whole ---------------------------------------------------------------------------

    def _everything(self, selection: StateSelection) -> StateChanges:
        """Return the whole state, captured now.

        The records are made one by one when they are read: making all records of a large cluster at once
        would block the event loop, and the snapshot may change meanwhile.
        """
        snapshot = self._snapshot
        columns = snapshot.columns
        nodes, usages, generation = columns.nodes.copy(), columns.usages.copy(), columns.generation.copy()
        on_node, assumed = snapshot.pods.captured()

        def whole(slot: int) -> NodeChange:
            node = nodes[slot]
            if node is None:
                raise InvariantError(f"slot {slot} is in use and has no node")
            pods: Sequence[Pod] = on_node[slot] if selection.pods and slot < len(on_node) else ()
            return _whole(slot, int(generation[slot]), node, usages[slot], pods, selection)

        def item(found: tuple[str, StoredObject]) -> ObjectChange:
            resource, stored = found
            return ObjectChange(
                resource=resource, generation=stored.generation, ref=stored.ref, object=stored.object
            )

        objects = [
            (resource, stored)
            for resource, _ in selection.resources
            for stored in snapshot.objects_of_kind(kind_of(resource)).changed_since(0)
        ]
        return self._changes(
            None,
            Lazy(columns.live_slots(), lambda slot: whole(int(slot))),
            (),
            Lazy(objects, item),
            selection,
            assumed,
        )

    def _changes(
        self,
        base: StateVersion | None,
        nodes: Sequence[NodeChange],
        removed: Sequence[int],
        objects: Sequence[ObjectChange],
        selection: StateSelection,
        assumed: frozenset[str],
    ) -> StateChanges:
        snapshot = self._snapshot
        stores = [snapshot.objects_of_kind(kind_of(resource)) for resource, _ in selection.resources]
        total = snapshot.columns.generation_sum + sum(store.generation_sum for store in stores)
        return StateChanges(
            base=base,
            target=snapshot.version,
            nodes=nodes,
            removed=removed,
            objects=objects,
            assumed=assumed,
            node_count=len(snapshot.columns),
            object_count=sum(map(len, stores)),
            generation_sum=total % _MODULUS,
        )


def _whole(
    slot: int,
    generation: int,
    node: Node,
    usage: NodeUsage,
    pods: Sequence[Pod],
    selection: StateSelection,
) -> NodeChange:
    return NodeChange(
        index=slot,
        generation=generation,
        node=node,
        is_new=True,
        summary=True,
        object=True,
        usage=usage,
        pods=pods,
        pods_complete=selection.pods,
    )
