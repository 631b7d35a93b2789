"""`GenerationLog`: changes and removals in order, in a log of limited length."""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

T = TypeVar("T")
LIMIT: Final = 4096
"""The number of entries that a log keeps. A reader that is further behind must read everything."""


class GenerationLog(Generic[T]):
    """Entries in order of generation. `floor`: the log has every entry after this generation."""

    __slots__ = ("_entries", "_limit", "floor")

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._entries: deque[tuple[int, T]] = deque()
        self.floor = 0

    def add(self, generation: int, item: T) -> None:
        """Add an entry for `item` at `generation`, which must not be below an earlier one."""
        self._entries.append((generation, item))
        if len(self._entries) > self._limit:
            self.floor = self._entries.popleft()[0]

    def since(self, generation: int) -> list[tuple[int, T]] | None:
        """Return the entries after `generation`, oldest first. None: the log no longer has all of them."""
        if generation < self.floor:
            return None
        found: list[tuple[int, T]] = []
        for entry in reversed(self._entries):
            if entry[0] <= generation:
                break
            found.append(entry)
        found.reverse()
        return found

    def clear(self, floor: int) -> None:
        """Remove all entries. The log begins after `floor`."""
        self._entries.clear()
        self.floor = floor
