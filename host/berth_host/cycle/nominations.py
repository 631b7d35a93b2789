"""The queue's nominated pods -> the nominated pods that count for the cycle's pod, by rows of its snapshot.

Called by the scheduling cycle. The cost per cycle grows with the number of nominations that count. They are
kept as columns. Node names are looked up again only after a nomination, or when nodes come or go.
The nominations of a hold do not count for the pods that the hold lets in (`model.hold`).
Source: kube-scheduler `framework/runtime/framework.go` (addGENominatedPods), v1.36; holds are berth's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.model.hold import Hold
from berth_host.model.nominated_pods import NOBODY, NominatedPods
from berth_host.queue.nominated_columns import NominatedColumns

_WITHOUT_HOLD: Final = 1 << 62
"""Makes the mark of a node on which the hold's pods do not count differ from that of all pods there."""


class Nominations:
    """The nominated pods of one scheduler. `now_s`: returns Unix seconds."""

    def __init__(self, columns: NominatedColumns, now_s: Callable[[], float]) -> None:
        self._columns = columns
        self._now_s = now_s
        self._slot_of: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._names_version: int | None = None
        self._of_hold: tuple[Hold, int, NDArray[np.intp]] | None = None

    def counted_for(self, pod: Pod, nodes: NodeTable) -> NominatedPods:
        """Return the nominated pods of equal or higher priority, without `pod`.

        `nodes`: the whole snapshot, or those of a placement in the order of their slots; pods that are
        nominated to other nodes do not count. The result does not change until `release`.
        """
        pods = self._columns.hold()
        if not len(pods):
            return NOBODY
        counted = pods.priority >= pod.priority
        own = pods.position(pod.uid)
        if own is not None:
            counted[own] = False
        left_out = self._left_out_for(pod)
        if left_out is not None:
            counted[left_out] = False
        rows = counted.nonzero()[0]
        codes = pods.node_index.take(rows)
        slots = self._slots(nodes).take(codes)
        known = slots >= 0
        if np.count_nonzero(known) < len(known):
            rows, codes, slots = rows[known], codes[known], slots[known]
        positions = nodes.positions_of_slots(slots)
        if not nodes.is_whole:
            here = nodes.slots.take(positions, mode="clip") == slots
            rows, codes, positions = rows[here], codes[here], positions[here]
        if not len(rows):
            return NOBODY
        versions = self._columns.versions.take(codes)
        if left_out is not None:
            held = np.isin(codes, pods.node_index.take(left_out))
            versions = np.where(held, versions | _WITHOUT_HOLD, versions)
        if own is not None:
            # The mark must differ from that of all pods there, and from that without another pod.
            here = codes == pods.node_index[own]
            if np.count_nonzero(here):
                beside = hash((int(versions[here][0]), pod.uid)) | np.iinfo(np.int64).min
                versions = np.where(here, beside, versions)
        marks = np.zeros(len(nodes), dtype=np.int64)
        marks[positions] = versions
        return NominatedPods(pods, rows, positions, marks != 0, marks)

    def slots(self, nodes: NodeTable) -> NDArray[np.intp]:
        """Return the slots of all nodes that pods are nominated to. `nodes`: the whole snapshot."""
        pods = self._columns.pods
        if not len(pods):
            return np.zeros(0, dtype=np.intp)
        slots = self._slots(nodes).take(np.unique(pods.node_index))
        return slots[slots >= 0]

    def release(self) -> None:
        """Allow changes of the columns again, at the end of the search for a node."""
        self._columns.release()

    def _left_out_for(self, pod: Pod) -> NDArray[np.intp] | None:
        """Return the rows of the pods of the hold that lets `pod` in; None: no pod is left out."""
        hold = self._columns.room
        if hold is None or not hold.lets_in(pod, self._now_s()):
            return None
        known, generation = self._of_hold, self._columns.generation
        if known is None or known[0] is not hold or known[1] != generation:
            found = [self._columns.pods.position(uid) for uid in hold.nodes]
            rows = np.asarray([row for row in found if row is not None], dtype=np.intp)
            self._of_hold = known = hold, generation, rows
        return known[2] if len(known[2]) else None

    def _slots(self, nodes: NodeTable) -> NDArray[np.intp]:
        names = self._columns.names
        renamed = self._columns.take_renamed()
        if nodes.names_version != self._names_version:
            self._names_version = nodes.names_version
            self._slot_of = np.asarray(nodes.slots_of(names), dtype=np.intp)
        elif renamed:
            more = len(names) - len(self._slot_of)
            if more:
                self._slot_of = np.concatenate([self._slot_of, np.full(more, -1, dtype=np.intp)])
            codes = list(renamed)
            self._slot_of[codes] = nodes.slots_of(names[code] for code in codes)
        return self._slot_of
