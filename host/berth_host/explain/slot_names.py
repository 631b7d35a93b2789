"""`SlotNames`: the name of the node in each slot of the snapshot, for the node sets of attempts.

Slots are used again for other nodes, so a set of slots must be read with the names of its own time. Owned by
the scheduler, read through a `Diagnosis`.
"""

from __future__ import annotations

import numpy as np
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray


class SlotNames:
    """The names, as one array for all attempts between two changes of the nodes, so that it costs nothing."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._names: NDArray[np.object_] = np.zeros(0, dtype=np.object_)

    def of(self, table: NodeTable) -> NDArray[np.object_]:
        """Return the node's name in each slot, None in free slots. `table`: all nodes of the snapshot."""
        if self._version != table.names_version:
            slots = table.slots
            names = np.full(int(slots.max()) + 1 if len(slots) else 0, None, dtype=np.object_)
            names[slots] = table.names
            self._version, self._names = table.names_version, names
        return self._names
