"""The rows with the highest total, kept from pod to pod and put right where a total changed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from berth_sdk.tables.read_only import read_only
from numpy.typing import NDArray

Rows = NDArray[np.intp]


class Leaders:
    """Found anew only when the last of them has lost its place, or much has changed."""

    __slots__ = ("_highest", "_rows")

    def __init__(self) -> None:
        self._highest = 0
        self._rows: Rows | None = None

    def forget(self) -> None:
        """The totals are others now."""
        self._rows = None

    def of(self, total: NDArray[np.int64]) -> Rows:
        """The rows with the highest total, ascending, of at least one; read-only, and never changed."""
        if self._rows is None:
            highest = np.maximum.reduce(total)
            self._highest = int(highest)
            self._rows = read_only(np.equal(total, highest).nonzero()[0])
        return self._rows

    def change(self, positions: Iterable[int], total: NDArray[np.int64]) -> None:
        """The totals of these rows changed."""
        for row in positions:
            rows, value = self._rows, total.item(row)
            if rows is None:
                return
            if value > self._highest:
                self._highest = value
                self._rows = read_only(np.array([row], dtype=np.intp))
                continue
            at = int(rows.searchsorted(row))
            leads = at < len(rows) and rows.item(at) == row
            if leads and value < self._highest:
                self._rows = read_only(np.concatenate((rows[:at], rows[at + 1 :]))) if len(rows) > 1 else None
            elif not leads and value == self._highest:
                self._rows = read_only(np.concatenate((rows[:at], (row,), rows[at:])))
