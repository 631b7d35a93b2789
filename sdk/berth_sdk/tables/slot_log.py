"""Logs of limited length that several readers follow, each from a position of its own.

`SlotLog`: the slots of a table that changed.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

T = TypeVar("T")
LIMIT: Final = 4096
"""The number of changes that a log always keeps. A reader that is further behind must read everything."""


class RecentLog(Generic[T]):
    """Entries in the order in which they were added, repeats included. A reader keeps a `position` of its
    own.
    """

    __slots__ = ("_entries", "_first", "_limit", "position")

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._entries: list[T] = []
        self._first = 0
        self.position = 0
        """The position of a reader that has read everything; written by the log alone."""

    def add(self, entry: T) -> None:
        """Add the newest entry. Drops the oldest entries when there are too many."""
        self._entries.append(entry)
        self.position += 1
        if len(self._entries) > 2 * self._limit:
            del self._entries[: self._limit]
            self._first += self._limit

    def since(self, position: int) -> list[T] | None:
        """Return the entries after `position`. None: the log no longer has all of them."""
        if position < self._first:
            return None
        return self._entries[position - self._first :]

    def forget(self) -> None:
        """Drop all entries after a change that is not in the log: every reader must read everything."""
        self.position += 1
        self._first = self.position
        self._entries.clear()


class SlotLog(RecentLog[int]):
    """Slots in the order in which they changed."""

    __slots__ = ()
