"""`ResourceRows`: amounts by resource and node, for the resources that somebody reads.

One node may offer tens of thousands of resources, and one pod may request as many. So a resource gets its
row at the first read, and only a bounded number of rows is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from berth_sdk.tables.read_only import extended

MAX_ROWS: Final = 512
"""The number of rows that are kept. Further ones are built at each read."""
_CARRIED: Final = 128
"""The number of rows that stay, the oldest first, where an update finds twice as many."""
_FIRST_ROWS: Final = 8
_MOST_SETS: Final = 256
_NOTHING: Final = 0
"""The row of zeros, which stands for all resources that no node has."""
Amounts = Mapping[str, int]


class ResourceRows:
    """int64 amounts. `amounts`: returns (slot, amounts) of every node that has any. `names`: the resources
    whose rows are made at once.
    """

    def __init__(self, names: Iterable[str], amounts: Callable[[], Iterable[tuple[int, Amounts]]]) -> None:
        self._amounts = amounts
        self._known: set[str] = set()
        """The resources that some node has, or had."""
        self._most_known = 0
        """The number of `_known` above which an update counts them anew."""
        self.has_new = False
        """True if names or rows may have come since the last `begin_update`: it has something to look at."""
        self._sets: dict[tuple[str, ...], slice | NDArray[np.intp]] = {}
        self._rows: dict[str, int] = {}
        self.matrix: NDArray[np.int64] = np.zeros((_FIRST_ROWS, 0), dtype=np.int64)
        """int64[rows, slots]; see `rows`."""
        for name in names:
            self._rows[name] = len(self._rows) + 1

    # --- reading -----------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Return False if no node has the resource."""
        return name in self._rows or name in self._known

    def column(self, name: str) -> NDArray[np.int64]:
        """Return int64[slots]: the amounts of one resource, 0 where a node has none of it."""
        row = self._row(name)
        return self._built(name) if row is None else self.matrix[row]

    def rows(self, names: tuple[str, ...]) -> slice | NDArray[np.intp] | None:
        """Return the lines of k resources in `matrix`: a slice where they are adjacent, else intp[k].

        None: a resource has no row.
        """
        known = self._sets.get(names)
        if known is not None:
            return known
        found = []
        for name in names:
            row = self._row(name)
            if row is None:
                return None
            found.append(row)
        lines: slice | NDArray[np.intp] = np.asarray(found, dtype=np.intp)
        if found and found == list(range(found[0], found[0] + len(found))):
            lines = slice(found[0], found[0] + len(found))
        if _NOTHING not in found and len(self._sets) < _MOST_SETS:
            self._sets[names] = lines
        return lines

    def _row(self, name: str) -> int | None:
        """Return the row of a resource. None: there is none, and no room for one more."""
        row = self._rows.get(name)
        if row is not None:
            return row
        if name not in self._known:
            return _NOTHING
        row = len(self._rows) + 1
        if row > MAX_ROWS:
            return None
        if row == len(self.matrix):
            self.matrix = np.concatenate([self.matrix, np.zeros_like(self.matrix)])
        self.matrix[row] = self._built(name)
        self._rows[name] = row
        self.has_new = True
        return row

    def _built(self, name: str) -> NDArray[np.int64]:
        column = np.zeros(self.matrix.shape[1], dtype=np.int64)
        for slot, amounts in self._amounts():
            amount = amounts.get(name)
            if amount:
                column[slot] = amount
        return column

    # --- writing -----------------------------------------------------------------------------

    def set(self, slot: int, amounts: Amounts, before: Amounts) -> None:
        """Set the amounts of a node. `before`: the amounts that it had."""
        for name, amount in amounts.items():
            row = self._rows.get(name)
            if row is None:
                self._known.add(name)
                self.has_new = True
            else:
                self.matrix[row, slot] = amount
        if before and before.keys() != amounts.keys():
            for name in before.keys() - amounts.keys():
                if (row := self._rows.get(name)) is not None:
                    self.matrix[row, slot] = 0

    def begin_update(self) -> None:
        """Drop the newest of very many rows, and the names that no node has any more."""
        self.has_new = False
        if len(self._known) > self._most_known:
            self._known = {name for _, amounts in self._amounts() for name in amounts}
            self._most_known = 2 * len(self._known) + MAX_ROWS
        if len(self._rows) > 2 * _CARRIED:
            for name in list(self._rows)[_CARRIED:]:
                del self._rows[name]
                self._known.add(name)
            self._sets.clear()
            self.matrix = self.matrix[: _CARRIED + 1].copy()

    def grow(self, more: int) -> None:
        """Make room for `more` slots."""
        self.matrix = extended(self.matrix, more)
