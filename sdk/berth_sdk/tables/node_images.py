"""The images on each node, and the number of nodes with an image when a row was last copied.

Part of `NodeColumns`. kube-scheduler copies the number of nodes into a node's snapshot when that node
changes, and leaves the copies of other nodes unchanged. Scores depend on these numbers exactly.

Source: `backend/cache/cache.go` (imageStates, createImageStateSummary), v1.36.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from berth_sdk.node import NodeImage

if TYPE_CHECKING:
    from berth_sdk.tables.node_columns import NodeColumns

_LONG_HISTORY: Final = 32


class _Image:
    __slots__ = ("_rows", "counts", "nodes", "size_bytes", "updates")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.nodes: set[int] = set()
        self._rows: NDArray[np.intp] | None = None
        self.updates: list[int] = []  # ascending update numbers
        self.counts: list[int] = []  # the number of nodes after each update

    @property
    def rows(self) -> NDArray[np.intp]:
        """The slots of `nodes`, made again only after a change: reads are frequent, changes rare."""
        if self._rows is None:
            self._rows = np.fromiter(self.nodes, dtype=np.intp, count=len(self.nodes))
        return self._rows

    def record(self, update: int) -> None:
        self._rows = None
        if self.updates and self.updates[-1] == update:
            self.counts[-1] = len(self.nodes)
        else:
            self.updates.append(update)
            self.counts.append(len(self.nodes))

    def counts_at(self, updates: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of nodes as of each of `updates`; 0 before the first."""
        position = np.searchsorted(np.asarray(self.updates, dtype=np.int64), updates, side="right")
        return np.asarray([0, *self.counts], dtype=np.int64).take(position)

    def forget_before(self, update: int) -> None:
        """Drop the counts that only rows older than `update` would read."""
        position = bisect_right(self.updates, update) - 1
        if position > 0:
            del self.updates[:position]
            del self.counts[:position]


class NodeImages:
    """The images of all rows. `update` counts the snapshot's updates; a row shows the counts of the update
    that last copied it.
    """

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._images: dict[str, _Image] = {}
        self._copied: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._recorded = 0
        self.update = 0

    @property
    def kept_count(self) -> int:
        """The number of stored counts of all images: current ones, and older ones that a row may still
        show.
        """
        return sum(len(image.updates) for image in self._images.values())

    def begin_update(self) -> None:
        """Begin a new snapshot update: rows copied from now on show the current counts."""
        self.update += 1

    def set_row(self, slot: int, old: tuple[NodeImage, ...], new: tuple[NodeImage, ...]) -> None:
        """Replace the images of one row."""
        if old is not new and old != new:
            for image in old:
                for name in image.names:
                    self._leave(name, slot)
            for image in new:
                for name in image.names:
                    self._join(name, slot, image.size_bytes)
        self.refresh_row(slot)

    def refresh_row(self, slot: int) -> bool:
        """Mark the row as copied in this update. Returns True if a count may have changed since its last
        copy.
        """
        stale = self._copied.item(slot) < self._recorded
        self._copied[slot] = self.update
        return stale

    def has(self, name: str) -> bool:
        """Return True if any node holds the image."""
        return name in self._images

    def column(self, name: str) -> tuple[NDArray[np.int64], int]:
        """Return int64[capacity] numbers of nodes with the image as each row shows them (0: not on that
        node), and the size in bytes.
        """
        counts = np.zeros(self._columns.capacity, dtype=np.int64)
        image = self._images.get(name)
        if image is None:
            return counts, 0
        rows = image.rows
        seen = self._copied[rows]
        if len(image.updates) == 1 or (seen >= image.updates[-1]).all():
            counts[rows] = image.counts[-1]
        else:
            counts[rows] = image.counts_at(seen)
        return counts, image.size_bytes

    def grow(self, more: int) -> None:
        """Make room for `more` slots."""
        self._copied = np.concatenate([self._copied, np.zeros(more, dtype=np.int64)])

    def _join(self, name: str, slot: int, size_bytes: int) -> None:
        image = self._images.get(name)
        if image is None:
            image = self._images[name] = _Image(size_bytes)
        image.nodes.add(slot)
        self._record(image)

    def _leave(self, name: str, slot: int) -> None:
        image = self._images.get(name)
        if image is None:
            return
        image.nodes.discard(slot)
        if image.nodes:
            self._record(image)
        else:
            del self._images[name]

    def _record(self, image: _Image) -> None:
        self._recorded = self.update
        image.record(self.update)
        if len(image.updates) > _LONG_HISTORY and len(image.updates) & (len(image.updates) - 1) == 0:
            image.forget_before(int(self._copied[image.rows].min()))
