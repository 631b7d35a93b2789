"""The node in each slot, kept for as long as node sets of that time exist.

Slots are given away again: a set of slots read with the names of a later snapshot could name nodes that had
nothing to do with it. Owned by the scheduler, read through a `Diagnosis`.
"""

from __future__ import annotations

import numpy as np
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray


class SlotNames:
    """One array for all attempts between two changes of the nodes, so that it costs an attempt nothing."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._names: NDArray[np.object_] = np.zeros(0, dtype=np.object_)

    def of(self, table: NodeTable) -> NDArray[np.object_]:
        """The name in each slot, None in free ones. `table`: all nodes of the one snapshot."""
        if self._version != table.names_version:
            slots = table.slots
            names = np.full(int(slots.max()) + 1 if len(slots) else 0, None, dtype=np.object_)
            names[slots] = table.names
            self._version, self._names = table.names_version, names
        return self._names
