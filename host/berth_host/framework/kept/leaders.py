"""The rows with the highest total, kept from pod to pod and updated where a total changes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from berth_sdk.tables.read_only import read_only
from numpy.typing import NDArray

Rows = NDArray[np.intp]


class Leaders:
    """The rows with the highest total. Searched again only after the last of them lost its place, or after
    many changes.
    """

    __slots__ = ("_highest", "_rows")

    def __init__(self) -> None:
        self._highest = 0
        self._rows: Rows | None = None

    def forget(self) -> None:
        """Drop the rows: all totals may have changed."""
        self._rows = None

    def of(self, total: NDArray[np.int64]) -> Rows:
        """Return the rows with the highest total, ascending; read-only. `total` has at least one row."""
        if self._rows is None:
            highest = np.maximum.reduce(total)
            self._highest = int(highest)
            self._rows = read_only(np.equal(total, highest).nonzero()[0])
        return self._rows

    def change(self, positions: Iterable[int], total: NDArray[np.int64]) -> None:
        """Update the rows after the totals of these rows changed."""
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
