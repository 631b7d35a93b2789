"""`SlotLog`: which slots of a table moved since a reader looked last, as far as it remembers."""

from __future__ import annotations

from typing import Final

LIMIT: Final = 4096
"""Changes that a log surely remembers; a reader that lags further behind looks at everything."""


class SlotLog:
    """Slots in the order in which they moved, repeats included. A reader keeps a `position` of its own."""

    __slots__ = ("_first", "_limit", "_slots")

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._slots: list[int] = []
        self._first = 0

    @property
    def position(self) -> int:
        """Where a reader stands that has seen everything."""
        return self._first + len(self._slots)

    def add(self, slot: int) -> None:
        """The slot has moved."""
        self._slots.append(slot)
        if len(self._slots) > 2 * self._limit:
            del self._slots[: self._limit]
            self._first += self._limit

    def since(self, position: int) -> list[int] | None:
        """What moved after `position`; None: the log does not reach back so far."""
        if position < self._first:
            return None
        return self._slots[position - self._first :]
