"""`KeyedHeap`: a priority queue with access by key.

Removal marks an entry as dead and leaves it in the heap until it comes first, or until dead entries outnumber
the live ones. Used for activeQ and both heaps of backoffQ.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_MIN_DEAD = 64


class _Entry(Generic[T]):
    __slots__ = ("item", "key", "live")

    def __init__(self, key: str, item: T) -> None:
        self.key = key
        self.item = item
        self.live = True


class KeyedHeap(Generic[T]):
    """A heap: smallest order first, equal orders in the order of pushing. At most one item per key."""

    def __init__(self) -> None:
        self._heap: list[tuple[Any, int, _Entry[T]]] = []
        self.by_key: dict[str, _Entry[T]] = {}
        """The entries in the heap that are alive; for others to read whether there are any."""
        self._sequence = itertools.count()

    def __len__(self) -> int:
        return len(self.by_key)

    def __contains__(self, key: str) -> bool:
        return key in self.by_key

    def push(self, key: str, order: Any, item: T) -> None:
        """Add an item; replace the one with the same key, if there is one."""
        if key in self.by_key:
            self.remove(key)
        entry = self.by_key[key] = _Entry(key, item)
        heapq.heappush(self._heap, (order, next(self._sequence), entry))

    def get(self, key: str) -> T | None:
        """Return the item with this key, or None."""
        entry = self.by_key.get(key)
        return None if entry is None else entry.item

    def remove(self, key: str) -> T | None:
        """Remove and return the item with this key; None if there is none."""
        entry = self.by_key.pop(key, None)
        if entry is None:
            return None
        entry.live = False
        if len(self._heap) > 2 * len(self.by_key) + _MIN_DEAD:
            self._heap = [item for item in self._heap if item[2].live]
            heapq.heapify(self._heap)
        return entry.item

    def peek(self) -> T | None:
        """Return the first item, or None."""
        if not self._heap:
            return None
        if not self._heap[0][2].live:
            self._drop_dead()
        return self._heap[0][2].item if self._heap else None

    def pop(self) -> T | None:
        """Remove and return the first item; None if there is none."""
        if self._heap and not self._heap[0][2].live:
            self._drop_dead()
        if not self._heap:
            return None
        _, _, entry = heapq.heappop(self._heap)
        del self.by_key[entry.key]
        return entry.item

    def __iter__(self) -> Iterator[T]:
        """Yield all items in order."""
        for _, _, entry in sorted(item for item in self._heap if item[2].live):
            yield entry.item

    def _drop_dead(self) -> None:
        while self._heap and not self._heap[0][2].live:
            heapq.heappop(self._heap)
