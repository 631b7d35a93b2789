"""`NominatedPods`: the nominated pods that count in the Filter passes of one cycle.

Made by the scheduler, read by `filtering` and by the preemption evaluator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeTable, PodChanges, PodTable
from berth_sdk.tables.few import FEW
from numpy.typing import NDArray


class NominatedPods:
    """The nominated pods of a cycle with n nodes: k rows of `table`.

    `pods`: the rows, intp[k]. `positions`: the position of each pod's node among the cycle's nodes, intp[k].
    `rows`: bool[n], True for nodes with nominated pods. `marks`: int64[n], equal for a node whenever the same
    pods count, 0 without pods; an empty array if no node has any; None if unknown.
    """

    __slots__ = ("_changes", "_pods", "_positions", "_table", "marks", "rows")

    def __init__(
        self,
        table: PodTable,
        pods: NDArray[np.intp],
        positions: NDArray[np.intp],
        rows: NDArray[np.bool_],
        marks: NDArray[np.int64] | None,
    ) -> None:
        self.rows = rows
        self.marks = marks
        self._table = table
        self._pods = pods
        self._positions = positions
        self._changes: PodChanges | None = None

    @classmethod
    def of(cls, nodes: NodeTable, by_node: Mapping[str, Sequence[Pod]]) -> NominatedPods:
        """Return the nominated pods from a map by node name; for a framework without a scheduler."""
        if not by_node:
            return NOBODY
        added = PodChanges.of([by_node.get(name, ()) for name in nodes.names])
        return cls(added.table, added.rows, added.row_of, added.counts() > 0, None)

    def added(self, rows: NDArray[np.intp]) -> PodChanges:
        """Return the pods nominated to the nodes in `rows`, in the order of `rows`."""
        if len(rows) <= FEW:
            # For few nodes, such as those that changed, sorting all pods would cost more.
            of_row = [self._pods[self._positions == row] for row in rows.tolist()]
            starts = np.array([0, *accumulate(map(len, of_row))], dtype=np.intp)
            return PodChanges(self._table, np.concatenate(of_row or [self._pods[:0]]), starts)
        if self._changes is None:
            order = self._positions.argsort(kind="stable")
            starts = np.zeros(len(self.rows) + 1, dtype=np.intp)
            np.bincount(self._positions, minlength=len(self.rows)).cumsum(out=starts[1:])
            self._changes = PodChanges(self._table, self._pods.take(order), starts)
        return self._changes.take(rows)

    def __bool__(self) -> bool:
        return len(self._pods) > 0


_NONE: Final = np.zeros(0, dtype=np.intp)
NOBODY: Final = NominatedPods(
    PodTable(), _NONE, _NONE, np.zeros(0, dtype=np.bool_), np.zeros(0, dtype=np.int64)
)
