"""Bounded logs that several readers follow, each from a position of its own.

`SlotLog`: which slots of a table moved since a reader looked last, as far as it remembers.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

T = TypeVar("T")
LIMIT: Final = 4096
"""Changes that a log surely remembers; a reader that lags further behind looks at everything."""


class RecentLog(Generic[T]):
    """Entries in the order in which they came, repeats included. A reader keeps a `position` of its own."""

    __slots__ = ("_entries", "_first", "_limit")

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._entries: list[T] = []
        self._first = 0

    @property
    def position(self) -> int:
        """The position of a reader that has seen everything."""
        return self._first + len(self._entries)

    def add(self, entry: T) -> None:
        """The newest entry; the oldest go when there are too many."""
        self._entries.append(entry)
        if len(self._entries) > 2 * self._limit:
            del self._entries[: self._limit]
            self._first += self._limit

    def since(self, position: int) -> list[T] | None:
        """The entries after `position`; None: the log does not reach back so far."""
        if position < self._first:
            return None
        return self._entries[position - self._first :]

    def forget(self) -> None:
        """Something came that is not in the log: a reader that lags behind has to look at everything."""
        self._first = self.position + 1
        self._entries.clear()


class SlotLog(RecentLog[int]):
    """Slots in the order in which they moved."""

    __slots__ = ()
