"""Answers of `pure` per-node plugins, kept by (pod signature, node generation). Used by `_runtime`.

A row's generation moves whenever anything about the node changes, so an answer given at a generation
holds as long as that generation stands. Bounded: the pod signatures used least recently are dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from berth_sdk.status import SUCCESS, Status
from berth_sdk.tables import NodeTable

MAX_SIGNATURES: Final = 64
_MAX_STATUSES: Final = 4096


class MemoColumn:
    """What is known for one pod signature: by slot a number, and at which generation it was given.

    The number is a score, or the code of a status (`encode`); code 0 is success.
    """

    __slots__ = ("_codes", "_generations", "_numbers", "statuses")

    def __init__(self) -> None:
        self._generations: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._numbers: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._codes: dict[Status, int] = {SUCCESS: 0}
        self.statuses: list[Status] = [SUCCESS]

    def encode(self, status: Status) -> int:
        """The code of a status; its position in `statuses`."""
        code = self._codes.get(status)
        if code is None:
            code = self._codes[status] = len(self.statuses)
            self.statuses.append(status)
        return code

    def find(self, nodes: NodeTable) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Numbers (int64[n], 0 where unknown) and the positions of the unknown rows.

        Generation 0 means that generations are not tracked: such a row is never known.
        """
        generation = nodes.generation
        if not len(self._generations):
            return np.zeros(len(nodes), dtype=np.int64), np.arange(len(nodes))
        within = nodes.rows < len(self._generations)
        slots = np.where(within, nodes.rows, 0)
        known = within & (generation > 0) & (self._generations[slots] == generation)
        return np.where(known, self._numbers[slots], 0), np.flatnonzero(~known)

    def keep(self, nodes: NodeTable, numbers: NDArray[np.int64], positions: NDArray[np.intp]) -> None:
        """Remember the numbers at `positions` of `nodes`."""
        if not len(positions):
            return
        slots = nodes.rows[positions]
        needed = int(slots.max()) + 1
        if needed > len(self._generations):
            self._generations = _longer(self._generations, needed)
            self._numbers = _longer(self._numbers, needed)
        self._generations[slots] = nodes.generation[positions]
        self._numbers[slots] = numbers[positions]


class Memo:
    """Columns by pod signature, for one table of nodes at a time."""

    def __init__(self, max_signatures: int = MAX_SIGNATURES) -> None:
        self._max = max_signatures
        self._columns: OrderedDict[bytes, MemoColumn] = OrderedDict()
        self._table: object = None

    def __len__(self) -> int:
        return len(self._columns)

    def column(self, signature: bytes, nodes: NodeTable) -> MemoColumn:
        """What is known for a pod signature on the table that `nodes` is part of."""
        if self._table is not nodes._columns:
            # Another table, such as a copy built anew: its generations may repeat the old ones.
            self._columns.clear()
            self._table = nodes._columns
        column = self._columns.get(signature)
        if column is None or len(column.statuses) > _MAX_STATUSES:
            column = self._columns[signature] = MemoColumn()
        self._columns.move_to_end(signature)
        while len(self._columns) > self._max:
            self._columns.popitem(last=False)
        return column


def _longer(array: NDArray[Any], length: int) -> NDArray[Any]:
    longer = np.zeros(length, dtype=array.dtype)
    longer[: len(array)] = array
    return longer
