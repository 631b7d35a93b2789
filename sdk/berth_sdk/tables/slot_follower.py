"""`SlotFollower`: which rows of the snapshot changed since a plugin looked last.

For data that a plugin keeps by slot (`NodeTable.rows`) from one cycle to the next: it does again what moved,
and everything where that is not known.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from berth_sdk.tables.node_columns import NodeColumns
    from berth_sdk.tables.node_table import NodeTable


class Moved(Enum):
    """What of a row is followed."""

    NODE = 1
    """The Node object; nodes that come and go."""
    VOLUMES = 2
    """The pods with storage (`NodeTable.pod_volumes`)."""


class SlotFollower:
    """One reader with a place of its own."""

    def __init__(self, what: Moved) -> None:
        self._what = what
        self._columns: NodeColumns | None = None
        self._position = -1

    def moved(self, nodes: NodeTable) -> list[int] | None:
        """The slots that moved since the last call, each once; None: everything may have, as at first,
        after too long a time, or in another table.
        """
        columns = nodes._columns
        log = columns.node_moved if self._what is Moved.NODE else columns.pod_volumes
        position = log.position
        known = self._columns is columns
        if known and self._position == position:
            return []
        slots = log.since(self._position) if known else None
        self._columns, self._position = columns, position
        return None if slots is None else list(dict.fromkeys(slots))
