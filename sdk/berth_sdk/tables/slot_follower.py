"""`SlotFollower`: which slots of the snapshot changed since its owner looked last. READ THIS FIRST of all
that is kept from cycle to cycle.

For data by slot (`NodeTable.slots`): its owner recomputes the slots that moved, and all slots where these are
not known. Only followers read the logs of `NodeColumns`. Used by plugins, by the kept answers of host and
SDK, and by the counts of the tables themselves.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from berth_sdk.tables.slot_log import SlotLog

if TYPE_CHECKING:
    from berth_sdk.tables.node_columns import NodeColumns
    from berth_sdk.tables.node_table import NodeTable
    from berth_sdk.tables.pod_volumes import PodVolumes


class Moved(Enum):
    """The part of a row that is followed."""

    NODE = 1
    """The Node object; nodes that come and go."""
    VOLUMES = 2
    """The pods with storage (`NodeTable.pod_volumes`)."""
    ROW = 3
    """Anything: the Node object, and the pods there."""


class SlotFollower:
    """One reader with a place of its own. `columns`: the reader has just looked at these."""

    __slots__ = ("_identity", "_position", "_what")

    def __init__(self, what: Moved, columns: NodeColumns | None = None) -> None:
        self._what = what
        # Not the columns: a table that was built anew must not keep the old one alive.
        self._identity = None if columns is None else columns.identity
        self._position = -1 if columns is None else self._log(columns).position

    def moved(self, nodes: NodeTable) -> list[int] | None:
        """The slots that moved since the last call, each once; None: everything may have, as at first,
        after too long a time, or in another table.
        """
        return self.moved_in(nodes._columns)

    def moved_in(self, columns: NodeColumns) -> list[int] | None:
        """As `moved`, of the columns behind a table."""
        log = self._log(columns)
        position = log.position
        known = self._identity is columns.identity
        if known and self._position == position:
            return []
        slots = log.since(self._position) if known else None
        self._identity, self._position = columns.identity, position
        return slots if slots is None or len(slots) < 2 else list(dict.fromkeys(slots))

    def _log(self, columns: NodeColumns) -> SlotLog | PodVolumes:
        what = self._what
        if what is Moved.ROW:
            return columns.moved
        return columns.node_moved if what is Moved.NODE else columns.pod_volumes
