"""Topology domains for PodTopologySpread: the nodes that count for a constraint, and the domain of each.

Data that depends only on Node objects is cached until one of them changes, so a cycle only adds up the counts
of pods. Columns here are by slot (`NodeTable.slots`), as in `NodeTable.pod_counts`.

Source: `pkg/scheduler/framework/plugins/podtopologyspread/common.go`, v1.36.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from berth_sdk.node_selectors import RequiredNodeAffinity
from berth_sdk.pod import Toleration
from berth_sdk.slices import Work
from berth_sdk.tables import NodeTable, Tally
from numpy.typing import NDArray

from berth_plugins.objects.tolerations import first_untolerated

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Column = NDArray[np.int64]
Statuses = NDArray[np.int32]
MAX_AREAS: Final = 256
"""The number of cached areas. The least recently used is dropped first. An area takes about 60 kB at 5000
nodes.
"""
MAX_STATUSES: Final = 32
"""The number of kept columns of statuses, of all areas together. One takes 20 kB at 5000 nodes."""
_FEW_CODES: Final = 16
"""The most codes of an area whose columns of statuses are kept: more have too many combinations."""
_COLUMNS: Final = 16
"""The number of labels that are read as columns to find the nodes that have all labels of many."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions on a node that counts, beside the label of its domain.

    A node counts if it has all of `keys` as labels, `affinity` matches it, and `tolerations` cover its
    taints. None: not required. `compare`: tolerations may have the operators Lt and Gt.
    """

    keys: tuple[str, ...]
    affinity: RequiredNodeAffinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    compare: bool = False


class Participants:
    """The nodes that meet some conditions, read once for all constraints with these conditions.

    - `mask` (bool[rows of the snapshot]): these nodes. `among`: the same by slot, read-only; None: all nodes.
    """

    __slots__ = ("_version", "among", "conditions", "mask")

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions
        self._version: Hashable = None
        self.mask: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.among: NDArray[np.bool_] | None = None

    def catch_up(self, whole: NodeTable) -> Work[None]:
        """Update the nodes if any has changed. `whole`: every node of the snapshot."""
        version = whole.node_version
        if version == self._version:
            return
        mask = yield from self._read(whole)
        among = None if mask.all() else scattered(mask, whole.slots, whole.slot_count)
        if among is not None:
            among.flags.writeable = False
        self.mask, self.among, self._version = mask, among, version

    def _read(self, whole: NodeTable) -> Work[NDArray[np.bool_]]:
        conditions = self.conditions
        mask = np.ones(len(whole), dtype=np.bool_)
        for key in conditions.keys[:_COLUMNS]:
            mask &= whole.label(key)[0] != 0
            if not mask.any():
                return mask
            yield
        if more := frozenset(conditions.keys[_COLUMNS:]):
            # Few nodes are left that have so many labels.
            for row in np.flatnonzero(mask).tolist():
                mask[row] = whole.node(row).labels.keys() >= more
                yield
        if conditions.affinity is not None:
            # Unreadable terms match no node.
            mask &= yield from conditions.affinity.over_in_steps(whole)
        tolerations = conditions.tolerations
        if tolerations is not None and len(whole.taint_sets) > 1:
            bad = whole.taint_sets.where(
                lambda taints: first_untolerated(taints, tolerations, compare=conditions.compare) is not None
            )
            mask &= ~bad.take(whole.taint_set)
        return mask


class Area:
    """The domains of the label `topology_key`, and the nodes that count in them.

    - `labels` (int32[slots]): each node's code, 0: the node lacks the label.
    - `codes`: the same, but a node without the label has the code of the empty value, if any node has that
      value.
    - `size`: all codes are below it.
    - `present`: the codes of domains with a node that counts. `count`: the number of domains of all nodes.
    - `lacking`: some node lacks the label.
    """

    __slots__ = (
        "_by_slot",
        "_participants",
        "_topology_key",
        "_version",
        "codes",
        "count",
        "labels",
        "lacking",
        "present",
        "size",
    )

    def __init__(
        self,
        topology_key: str,
        participants: Participants,
        by_slot: OrderedDict[Hashable, Statuses] | None = None,
    ) -> None:
        """`by_slot`: keeps columns of statuses, with those of other areas; None: of this area alone."""
        self._topology_key = topology_key
        self._participants = participants
        self._by_slot = OrderedDict[Hashable, Statuses]() if by_slot is None else by_slot
        self._version: Hashable = None
        self.labels: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self.codes: NDArray[np.int32] = self.labels
        self.present: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self.size = 1
        self.count = 0
        self.lacking = False

    def catch_up(self, whole: NodeTable) -> Work[None]:
        """Update the area if any node has changed. `whole`: every node of the snapshot."""
        version = whole.node_version
        if version == self._version:
            return
        yield from self._participants.catch_up(whole)
        labels, values = whole.label(self._topology_key)
        self.size = len(values)
        self.lacking = not labels.all()
        codes = labels
        empty = values.find("")
        if self.lacking and empty > 0:
            codes = np.where(labels == 0, np.int32(empty), labels)
        counting = codes[self._participants.mask]
        self.present = np.flatnonzero(np.bincount(counting, minlength=self.size))
        self.count = int(np.count_nonzero(np.bincount(codes)))
        slots = whole.slot_count
        self.labels = scattered(labels, whole.slots, slots)
        self.codes = self.labels if codes is labels else scattered(codes, whole.slots, slots)
        self._version = version

    def sums(self, whole: NodeTable, tally: Tally) -> Column:
        """Return int64[size]: the pods of `tally` on the nodes that count, by domain; read-only. Call
        `catch_up` first.
        """
        among = self._participants.among
        sums = whole.pod_counts.by_domain(tally, self._topology_key, among)
        if self.codes is self.labels:
            return sums
        # Nodes without the label count in the domain of the empty value.
        others = (self.labels != self.codes) if among is None else among & (self.labels == 0)
        sums = sums.copy()
        sums[self.codes[others]] += whole.pod_counts.column(tally)[others].sum()
        return sums

    def statuses(self, by_code: Statuses, nodes: NodeTable) -> Statuses:
        """Return the status of each row of `nodes`: that of its node's code in `by_code`. Call `catch_up`
        first.

        With few domains the same statuses come again and again while pods are spread, so the column is kept:
        the look-up for each node is the largest part of a verdict about 50 000 nodes.
        """
        if len(by_code) > _FEW_CODES:
            return by_code.take(nodes.take_of(self.labels))
        key = (self, self._version, by_code.tobytes())
        column = _kept(self._by_slot, key, lambda: by_code.take(self.labels), MAX_STATUSES)
        return nodes.take_of(column)

    def takes_part(self, slots: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return bool[m]: True if the node in the slot, which must have the label, counts."""
        among = self._participants.among
        return np.ones(len(slots), dtype=np.bool_) if among is None else among.take(slots)


class Areas:
    """Areas and participants by their inputs, for one table of nodes at a time, limited in number."""

    def __init__(self, max_areas: int = MAX_AREAS) -> None:
        self._max = max_areas
        self._areas: OrderedDict[tuple[str, Participants], Area] = OrderedDict()
        self._participants: OrderedDict[Conditions, Participants] = OrderedDict()
        self.statuses: OrderedDict[Hashable, Statuses] = OrderedDict()
        """The kept columns of statuses of all areas."""

    def __len__(self) -> int:
        return len(self._areas)

    def participants(self, conditions: Conditions) -> Participants:
        """Return the nodes that meet `conditions`. `Participants.catch_up` updates them to a version."""
        return _kept(self._participants, conditions, lambda: Participants(conditions), self._max)

    def area(self, topology_key: str, participants: Participants) -> Area:
        """Return an area. `Area.catch_up` updates it to a version of the nodes."""
        key = (topology_key, participants)
        return _kept(self._areas, key, lambda: Area(topology_key, participants, self.statuses), self._max)


def _kept(known: OrderedDict[K, V], key: K, make: Callable[[], V], most: int) -> V:
    found = known.get(key)
    if found is None:
        found = known[key] = make()
        if len(known) > most:
            known.popitem(last=False)
    else:
        known.move_to_end(key)
    return found


def scattered(values: NDArray[Any], rows: NDArray[np.intp], slots: int) -> NDArray[Any]:
    """Return `values` (by row) by slot; 0 elsewhere."""
    column = np.zeros(slots, dtype=values.dtype)
    column[rows] = values
    return column
