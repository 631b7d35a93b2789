"""Topology domains for PodTopologySpread: the nodes that count for a constraint, and the domain of each.

Data that depends only on Node objects is cached until one of them changes, so a cycle only adds up the counts
of pods. Columns here are by slot (`NodeTable.slots`), as in `NodeTable.pod_counts`.

Source: `pkg/scheduler/framework/plugins/podtopologyspread/common.go`, v1.36.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from berth_sdk.node_selectors import RequiredNodeAffinity
from berth_sdk.pod import Toleration
from berth_sdk.tables import NodeTable, Tally
from numpy.typing import NDArray

from berth_plugins.objects.tolerations import first_untolerated

Column = NDArray[np.int64]
MAX_AREAS: Final = 256
"""The number of cached areas. The least recently used is dropped first. An area takes about 60 kB at 5000
nodes.
"""


@dataclass(frozen=True, slots=True)
class AreaKey:
    """The inputs of an area, beside the nodes.

    A node counts if it has all of `keys` as labels, `affinity` matches it, and `tolerations` cover its
    taints. None: not required. `compare`: tolerations may have the operators Lt and Gt.
    """

    topology_key: str
    keys: tuple[str, ...]
    affinity: RequiredNodeAffinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    compare: bool = False


class Area:
    """The nodes that count, and their domains, as codes of the label `key.topology_key`.

    - `labels` (int32[slots]): each node's code, 0: the node lacks the label.
    - `codes`: the same, but a node without the label has the code of the empty value, if any node has that
      value.
    - `size`: all codes are below it.
    - `present`: the codes of domains with a node that counts. `count`: the number of domains of all nodes.
    - `lacking`: some node lacks the label.
    """

    __slots__ = ("_among", "_version", "codes", "count", "key", "labels", "lacking", "present", "size")

    def __init__(self, key: AreaKey) -> None:
        self.key = key
        self._version: Hashable = None
        self._among: NDArray[np.bool_] | None = None
        self.labels: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self.codes: NDArray[np.int32] = self.labels
        self.present: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self.size = 1
        self.count = 0
        self.lacking = False

    def catch_up(self, whole: NodeTable) -> None:
        """Update the area if any node has changed. `whole`: every node of the snapshot."""
        version = whole.node_version
        if version == self._version:
            return
        self._version = version
        labels, values = whole.label(self.key.topology_key)
        self.size = len(values)
        self.lacking = not labels.all()
        codes = labels
        empty = values.find("")
        if self.lacking and empty > 0:
            codes = np.where(labels == 0, np.int32(empty), labels)
        takes_part = self._taking_part(whole)
        self.present = np.flatnonzero(np.bincount(codes[takes_part], minlength=self.size))
        self.count = int(np.count_nonzero(np.bincount(codes)))
        slots = whole.slot_count
        self.labels = _scattered(labels, whole.slots, slots)
        self.codes = self.labels if codes is labels else _scattered(codes, whole.slots, slots)
        self._among = None if takes_part.all() else _scattered(takes_part, whole.slots, slots)
        if self._among is not None:
            self._among.flags.writeable = False

    def sums(self, whole: NodeTable, tally: Tally) -> Column:
        """Return int64[size]: the pods of `tally` on the nodes that count, by domain; read-only. Call
        `catch_up` first.
        """
        sums = whole.pod_counts.by_domain(tally, self.key.topology_key, self._among)
        if self.codes is self.labels:
            return sums
        # Nodes without the label count in the domain of the empty value.
        others = (self.labels != self.codes) if self._among is None else self._among & (self.labels == 0)
        sums = sums.copy()
        sums[self.codes[others]] += whole.pod_counts.column(tally)[others].sum()
        return sums

    def takes_part(self, slots: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return bool[m]: True if the node in the slot, which must have the label, counts."""
        if self._among is None:
            return np.ones(len(slots), dtype=np.bool_)
        return self._among.take(slots)

    def _taking_part(self, whole: NodeTable) -> NDArray[np.bool_]:
        mask = np.ones(len(whole), dtype=np.bool_)
        for key in self.key.keys:
            mask &= whole.label(key)[0] != 0
        if self.key.affinity is not None:
            # Unreadable terms match no node.
            mask &= self.key.affinity.over(whole)
        tolerations = self.key.tolerations
        if tolerations is not None and len(whole.taint_sets) > 1:
            bad = whole.taint_sets.where(
                lambda taints: first_untolerated(taints, tolerations, compare=self.key.compare) is not None
            )
            mask &= ~bad.take(whole.taint_set)
        return mask


class Areas:
    """Areas by their inputs, for one table of nodes at a time, limited in number."""

    def __init__(self, max_areas: int = MAX_AREAS) -> None:
        self._max = max_areas
        self._areas: OrderedDict[AreaKey, Area] = OrderedDict()

    def __len__(self) -> int:
        return len(self._areas)

    def area(self, key: AreaKey) -> Area:
        """Return the area of `key`. `Area.catch_up` updates it to a version of the nodes."""
        area = self._areas.get(key)
        if area is None:
            area = self._areas[key] = Area(key)
            if len(self._areas) > self._max:
                self._areas.popitem(last=False)
        else:
            self._areas.move_to_end(key)
        return area


def _scattered(values: NDArray[Any], rows: NDArray[np.intp], slots: int) -> NDArray[Any]:
    """Return `values` (by row) by slot; 0 elsewhere."""
    column = np.zeros(slots, dtype=values.dtype)
    column[rows] = values
    return column
