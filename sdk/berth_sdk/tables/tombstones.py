"""`Tombstones`: what was removed, and when, as far back as a bounded log reaches."""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

T = TypeVar("T")
LIMIT: Final = 4096
"""Removals that a log remembers; who lags further behind starts anew."""


class Tombstones(Generic[T]):
    """Removals in order of generation. `floor`: nothing is missing after this generation."""

    __slots__ = ("_limit", "_removed", "floor")

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._removed: deque[tuple[int, T]] = deque()
        self.floor = 0

    def add(self, generation: int, item: T) -> None:
        """`item` went away at `generation`, which is never below an earlier one."""
        self._removed.append((generation, item))
        if len(self._removed) > self._limit:
            self.floor = self._removed.popleft()[0]

    def since(self, generation: int) -> list[tuple[int, T]] | None:
        """Removals after `generation`, oldest first; None: the log does not reach back so far."""
        if generation < self.floor:
            return None
        found: list[tuple[int, T]] = []
        for entry in reversed(self._removed):
            if entry[0] <= generation:
                break
            found.append(entry)
        found.reverse()
        return found

    def clear(self, floor: int) -> None:
        """Forget all; the log begins after `floor`."""
        self._removed.clear()
        self.floor = floor
