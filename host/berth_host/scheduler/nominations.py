"""The queue's nominated pods -> the nominated pods that count for the cycle's pod, by rows of its snapshot.

Called by the scheduling cycle. The cost per cycle grows with the number of nominations that count. They are
kept as columns. Node names are looked up again only after a nomination, or when nodes come or go.
Source: kube-scheduler `framework/runtime/framework.go` (addGENominatedPods), v1.36.
"""

from __future__ import annotations

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.model.nominated_pods import NOBODY, NominatedPods
from berth_host.queue.nominated_columns import NominatedColumns


class Nominations:
    """The nominated pods of one scheduler."""

    def __init__(self, columns: NominatedColumns) -> None:
        self._columns = columns
        self._slot_of: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._names_version: int | None = None

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
        if own is not None:
            # The mark must differ from that of all pods there, and from that without another pod.
            here = codes == pods.node_index[own]
            if np.count_nonzero(here):
                beside = hash((int(versions[here][0]), pod.uid)) | np.iinfo(np.int64).min
                versions = np.where(here, beside, versions)
        marks = np.zeros(len(nodes), dtype=np.int64)
        marks[positions] = versions
        return NominatedPods(pods, rows, positions, marks != 0, marks)

    def release(self) -> None:
        """Allow changes of the columns again, at the end of the search for a node."""
        self._columns.release()

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
