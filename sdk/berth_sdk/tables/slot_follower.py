"""`SlotFollower`: the slots of the snapshot that changed since its owner last read them. READ THIS FIRST
before any cache that lives from cycle to cycle.

For data by slot (`NodeTable.slots`). The owner recomputes the changed slots, or all slots where the changed
ones are not known. Only followers read the logs of `NodeColumns`. Used by plugins, by the kept answers of
host and SDK, and by the counts of the tables themselves.
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
    """The Node object; nodes that are added or removed."""
    VOLUMES = 2
    """The pods with storage (`NodeTable.pod_volumes`)."""
    ROW = 3
    """Any part: the Node object, and the pods on the node."""


_ROW, _NODE = Moved.ROW, Moved.NODE  # a look-up in the enum takes longer than a test whether a row moved


class SlotFollower:
    """One reader with a position of its own. `columns`: the columns that the reader has just read."""

    __slots__ = ("_identity", "_position", "_what")

    def __init__(self, what: Moved, columns: NodeColumns | None = None) -> None:
        self._what = what
        # The identity in place of the columns: an old table must not stay in memory after a new one was
        # built.
        self._identity = None if columns is None else columns.identity
        self._position = -1 if columns is None else self._log(columns).position

    def moved(self, nodes: NodeTable) -> list[int] | None:
        """Return the slots that changed since the last call, each once.

        None: any slot may have changed, as at the first call, after too many changes, or in another table.
        """
        return self.moved_in(nodes.columns)

    def moved_in(self, columns: NodeColumns) -> list[int] | None:
        """Return `moved` for the columns behind a table."""
        what = self._what
        # As in `_log`, without a call: several caches ask for every pod.
        log: SlotLog | PodVolumes = (
            columns.moved if what is _ROW else columns.node_moved if what is _NODE else columns.pod_volumes
        )
        position = log.position
        known = self._identity is columns.identity
        if known and self._position == position:
            return []
        slots = log.since(self._position) if known else None
        self._identity, self._position = columns.identity, position
        return slots if slots is None or len(slots) < 2 else list(dict.fromkeys(slots))

    def _log(self, columns: NodeColumns) -> SlotLog | PodVolumes:
        what = self._what
        if what is _ROW:
            return columns.moved
        return columns.node_moved if what is _NODE else columns.pod_volumes
