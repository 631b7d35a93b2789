"""The slots of a table whose kept answers still hold.

Nearly all answers hold, so the few other slots are listed, and no mask is searched. `kept_answers` and the
host use it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

from berth_sdk.tables import NodeTable
from berth_sdk.tables.few import FEW
from berth_sdk.tables.read_only import extended

Rows = NDArray[np.intp]
MOST: Final = 512
"""The longest list of slots; if more slots are unknown, the mask is searched."""
NO_ROWS: Final[Rows] = np.zeros(0, dtype=np.intp)


class KnownSlots:
    """A set of slots, empty at first. Slots beyond the length given to `grow` are not in the set."""

    __slots__ = ("_mask", "_unknown")

    def __init__(self) -> None:
        self._mask: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        # All slots in use that are not known; None: too many for a list.
        self._unknown: set[int] | None = None

    def __len__(self) -> int:
        return len(self._mask)

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` slots."""
        if len(self._mask) < capacity:
            self._mask = extended(self._mask, capacity - len(self._mask))
            # The list lacks the nodes in the new slots.
            self._unknown = None

    def clear(self) -> None:
        """Remove all slots."""
        self._mask[:] = False
        self._unknown = None

    def forget(self, slots: Collection[int]) -> None:
        """Remove these slots; slots beyond the length are ignored."""
        length = len(self._mask)
        if len(slots) > FEW:
            moved = np.fromiter(slots, dtype=np.intp, count=len(slots))
            self._mask[moved if moved.max() < length else moved[moved < length]] = False
        else:
            for slot in slots:
                if slot < length:
                    self._mask[slot] = False
        if self._unknown is not None:
            self._unknown.update(slots)
            if len(self._unknown) > MOST:
                self._unknown = None

    def hold(self, slots: Rows) -> NDArray[np.bool_]:
        """Return bool[n]: which of these slots are known."""
        return self._mask.take(slots)

    def missing(self, nodes: NodeTable) -> Rows:
        """Return the positions in `nodes` of the rows that are not known, ascending."""
        if self._unknown is None:
            unknown = np.flatnonzero(~self._mask.take(nodes.slots))
            if len(unknown) <= MOST and len(nodes) == nodes.snapshot_size:
                self._unknown = set(nodes.slots[unknown].tolist())
            return unknown
        if not self._unknown:
            return NO_ROWS
        if len(self._unknown) > FEW:
            slots = np.fromiter(self._unknown, dtype=np.intp, count=len(self._unknown))
            slots.sort()
            return nodes.known_positions(slots)[0]
        found = [nodes.position_of_slot(slot) for slot in self._unknown]
        known = [at for at in found if at is not None]
        known.sort()
        return np.array(known, dtype=np.intp)

    def few_missing(self, nodes: NodeTable) -> list[int] | None:
        """Return the slots of `nodes` that are not known, in any order; None if there may be many."""
        unknown = self._unknown
        if unknown is None or len(unknown) > FEW:
            return None
        return [slot for slot in unknown if nodes.position_of_slot(slot) is not None]

    def learn(self, slots: Rows, *, in_use: int) -> None:
        """Add these slots. `in_use`: the number of slots that have a node."""
        if self._unknown is not None and len(slots) <= FEW:
            self.learn_few(slots.tolist())
            return
        self._mask[slots] = True
        if self._unknown is not None:
            self._unknown.difference_update(slots.tolist())
        elif len(slots) == in_use:
            self._unknown = set()

    def learn_few(self, slots: Collection[int]) -> None:
        """Add a few slots."""
        for slot in slots:
            self._mask[slot] = True
        if self._unknown is not None:
            self._unknown.difference_update(slots)
