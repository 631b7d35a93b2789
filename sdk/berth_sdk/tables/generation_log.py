"""`GenerationLog`: changes and removals in order, as far back as a bounded log reaches."""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

T = TypeVar("T")
LIMIT: Final = 4096
"""Entries that a log remembers; a reader that lags further behind looks at everything."""


class GenerationLog(Generic[T]):
    """Entries in order of generation. `floor`: nothing is missing after this generation."""

    __slots__ = ("_entries", "_limit", "floor")

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._entries: deque[tuple[int, T]] = deque()
        self.floor = 0

    def add(self, generation: int, item: T) -> None:
        """Something happened to `item` at `generation`, which is never below an earlier one."""
        self._entries.append((generation, item))
        if len(self._entries) > self._limit:
            self.floor = self._entries.popleft()[0]

    def since(self, generation: int) -> list[tuple[int, T]] | None:
        """Entries after `generation`, oldest first; None: the log does not reach back so far."""
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
        """Forget all; the log begins after `floor`."""
        self._entries.clear()
        self.floor = floor
