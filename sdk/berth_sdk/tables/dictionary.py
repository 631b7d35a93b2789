"""Dictionary encoding: values <-> small integers. Used by every encoded column.

Code 0 always means "absent", so a new row needs no special value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Set
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

V = TypeVar("V", bound=Hashable)


class Dictionary(Generic[V]):
    """Values and their codes. It only grows: a value keeps its code for the life of the table."""

    __slots__ = ("_codes", "_numbers", "values")

    def __init__(self) -> None:
        self._codes: dict[V, int] = {}
        self.values: list[V | None] = [None]
        self._numbers: tuple[NDArray[np.int64], NDArray[np.bool_]] | None = None

    def encode(self, value: V) -> int:
        """Return the code of `value`, at least 1. The first call for a value makes its code."""
        code = self._codes.get(value)
        if code is None:
            code = self._codes[value] = len(self.values)
            self.values.append(value)
        return code

    def find(self, value: V) -> int:
        """Return the code of `value`, or -1 (equal to no code) if it never appeared."""
        return self._codes.get(value, -1)

    def where(self, test: Callable[[V], bool]) -> NDArray[np.bool_]:
        """Return bool[number of codes]: the values that pass `test`. Code 0 (absent) does not pass.

        Index the result with a column of codes: every row is tested at the cost of one test per value.
        """
        passed = np.zeros(len(self.values), dtype=np.bool_)
        for code, value in enumerate(self.values):
            if code and test(value):  # type: ignore[arg-type]  # None stands at code 0 alone
                passed[code] = True
        return passed

    def members(self, values: Iterable[V]) -> NDArray[np.bool_]:
        """Return bool[number of codes]: the codes of `values`."""
        passed = np.zeros(len(self.values), dtype=np.bool_)
        if isinstance(values, Set) and len(values) > len(self.values):
            values = self._codes.keys() & values
        for value in values:
            code = self._codes.get(value)
            if code is not None:
                passed[code] = True
        return passed

    def numbers(self, read: Callable[[V], int | None]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return int64 and bool[number of codes]: the numbers that `read` finds in the values, each read
        once, and the values that have one. Code 0 has none. `read`: always the same function.
        """
        known = self._numbers
        begin = 1 if known is None else len(known[0])
        if known is None or begin < len(self.values):
            found = [read(value) for value in self.values[begin:]]  # type: ignore[arg-type]  # as in `where`
            if known is None:
                known = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.bool_)
            more = np.array([0 if number is None else number for number in found], dtype=np.int64)
            are = np.array([number is not None for number in found], dtype=np.bool_)
            known = self._numbers = np.concatenate([known[0], more]), np.concatenate([known[1], are])
        return known

    def __len__(self) -> int:
        return len(self.values)
