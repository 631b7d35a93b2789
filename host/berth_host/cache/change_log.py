"""`ChangeLog`: what moved in the snapshot since a version that some copy holds.

Asked once per call that carries state, so an answer costs what changed, not what there is: rows by their
generation, parts of a row by `RowLog`, removals by bounded logs. It keeps no history of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.tables import StateVersion

from berth_host.cache.resources import kind_of
from berth_host.cache.snapshot import Snapshot
from berth_host.errors.state import InvariantError
from berth_host.model.state_changes import NodeChange, ObjectChange, StateChanges, StateSelection

_MODULUS = 2**64


class ChangeLog:
    """Views of one snapshot; what it answers is of the snapshot's version at that moment."""

    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def version(self) -> StateVersion:
        """The snapshot's version now."""
        return self._snapshot.version

    def changes_since(self, base: StateVersion | None, selection: StateSelection) -> StateChanges | None:
        """What a holder of `base` lacks; everything for None.

        Answers None when the way from `base` is not known: another epoch, or too long ago. Then the
        holder needs everything.
        """
        snapshot = self._snapshot
        if base is None:
            return self._changes(
                None, self._all_nodes(selection), [], self._all_objects(selection), selection
            )
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
        dirty = np.flatnonzero(snapshot.columns.generation > since).tolist()
        nodes = [self._changed_node(slot, since, left.get(slot, ()), selection) for slot in dirty]
        slots = sorted({slot for _, slot in removed})
        return self._changes(base, nodes, slots, objects, selection)

    # --- nodes -------------------------------------------------------------------------------

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
        return NodeChange(
            index=slot,
            generation=int(columns.generation[slot]),
            node=node,
            is_new=True,
            summary=True,
            object=True,
            usage=columns.usages[slot],
            pods=pods.pods_of(slot) if selection.pods else (),
            pods_complete=selection.pods,
        )

    def _all_nodes(self, selection: StateSelection) -> list[NodeChange]:
        return [self._whole_node(slot, selection) for slot in self._snapshot.columns.live_rows().tolist()]

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

    def _all_objects(self, selection: StateSelection) -> list[ObjectChange]:
        return [
            ObjectChange(resource=resource, generation=item.generation, ref=item.ref, object=item.object)
            for resource, _ in selection.resources
            for item in self._snapshot.objects_of_kind(kind_of(resource)).changed_since(0)
        ]

    # --- the whole ---------------------------------------------------------------------------

    def _changes(
        self,
        base: StateVersion | None,
        nodes: list[NodeChange],
        removed: list[int],
        objects: list[ObjectChange],
        selection: StateSelection,
    ) -> StateChanges:
        snapshot = self._snapshot
        stores = [snapshot.objects_of_kind(kind_of(resource)) for resource, _ in selection.resources]
        total = int(snapshot.columns.generation.sum()) + sum(store.generation_sum for store in stores)
        return StateChanges(
            base=base,
            target=snapshot.version,
            nodes=nodes,
            removed=removed,
            objects=objects,
            assumed=frozenset(
                pod.uid for node in nodes for pod in node.pods if snapshot.pods.is_assumed(pod.uid)
            ),
            node_count=len(snapshot.columns),
            object_count=sum(map(len, stores)),
            generation_sum=total % _MODULUS,
        )
