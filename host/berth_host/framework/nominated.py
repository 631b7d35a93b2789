"""Pods that are promised a node, as the Filter passes of one cycle count them.

Made by the scheduler, read by `filtering` and by the preemption evaluator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeTable, PodChanges, PodTable
from numpy.typing import NDArray


class NominatedPods:
    """`added`: per row of the cycle's nodes the pods that are nominated to it and count for its pod;
    None: there are none. `rows`: bool[n], where there are any. `marks`: int64[n], equal for a node whenever
    the same pods count, 0 where none do (empty: nowhere do any); None: nobody knows.
    """

    __slots__ = ("added", "marks", "rows")

    def __init__(self, added: PodChanges | None, marks: NDArray[np.int64] | None) -> None:
        self.added = added
        self.marks = marks
        self.rows: NDArray[np.bool_] = (
            np.zeros(0, dtype=np.bool_) if added is None else np.greater(added.counts(), 0)
        )

    @classmethod
    def at(
        cls,
        table: PodTable,
        rows: NDArray[np.intp],
        positions: NDArray[np.intp],
        count: int,
        marks: NDArray[np.int64] | None = None,
    ) -> NominatedPods:
        """The pods in `rows` of `table`; each is nominated to the node in its position, of `count` nodes."""
        order = positions.argsort(kind="stable")
        starts = np.zeros(count + 1, dtype=np.intp)
        np.bincount(positions, minlength=count).cumsum(out=starts[1:])
        return cls(PodChanges(table, rows.take(order), starts), marks)

    @classmethod
    def of(cls, nodes: NodeTable, by_node: Mapping[str, Sequence[Pod]]) -> NominatedPods:
        """The same from names; for a framework that is used alone."""
        if not by_node:
            return NOBODY
        return cls(PodChanges.of([by_node.get(name, ()) for name in nodes.names]), None)

    def __bool__(self) -> bool:
        return self.added is not None


NOBODY: Final = NominatedPods(None, np.zeros(0, dtype=np.int64))
