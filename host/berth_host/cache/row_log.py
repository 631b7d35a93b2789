"""`RowLog`: when each part of each row of the snapshot last changed, and which rows were removed.

Written by `Snapshot`, read by `ChangeLog`.
"""

from __future__ import annotations

from berth_sdk.tables.generation_log import GenerationLog


class RowParts:
    """The generations of one row's last changes. `incarnation`: the cache's `NodeInfo.born` of its node."""

    __slots__ = ("born", "incarnation", "object", "summary", "usage")

    def __init__(self, incarnation: int, generation: int) -> None:
        self.incarnation = incarnation
        self.born = self.summary = self.object = self.usage = generation


class RowLog:
    """The records of the slots in use, and the logs of changed slots, removed slots and removed pods."""

    __slots__ = ("_rows", "moved", "removed", "removed_pods")

    def __init__(self) -> None:
        self._rows: dict[int, RowParts] = {}
        self.moved: GenerationLog[int] = GenerationLog()
        """The slots in which anything changed, with repetitions, by the version with the change."""
        self.removed: GenerationLog[int] = GenerationLog()
        """The slots of removed nodes."""
        self.removed_pods: GenerationLog[tuple[int, str]] = GenerationLog()
        """Slot and uid of pods that were removed from an existing node."""

    def row(self, slot: int) -> RowParts:
        """Return the record of a slot in use."""
        return self._rows[slot]

    def add(self, slot: int, incarnation: int, generation: int) -> None:
        """Create the record of a slot that a node got."""
        self._rows[slot] = RowParts(incarnation, generation)

    def remove(self, slot: int, generation: int) -> None:
        """Remove the record of a slot whose node was removed."""
        del self._rows[slot]
        self.removed.add(generation, slot)
