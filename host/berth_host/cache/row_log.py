"""`RowLog`: when each part of each row of the snapshot last changed, and the rows that left.

Written by `Snapshot.update`, read by `ChangeLog`.
"""

from __future__ import annotations

from berth_sdk.tables.generation_log import GenerationLog


class RowParts:
    """Generations of one row's last changes. `incarnation`: the cache's `NodeInfo.born` of its node."""

    __slots__ = ("born", "incarnation", "object", "summary", "usage")

    def __init__(self, incarnation: int, generation: int) -> None:
        self.incarnation = incarnation
        self.born = self.summary = self.object = self.usage = generation


class RowLog:
    """One record per slot in use, and the slots and pods that left since when."""

    __slots__ = ("_rows", "moved", "removed", "removed_pods")

    def __init__(self) -> None:
        self._rows: dict[int, RowParts] = {}
        self.moved: GenerationLog[int] = GenerationLog()
        """Slots in which anything changed, repeats included, by the version that took it over."""
        self.removed: GenerationLog[int] = GenerationLog()
        """Slots of nodes that are gone."""
        self.removed_pods: GenerationLog[tuple[int, str]] = GenerationLog()
        """Slot and uid of pods that left a node which stayed."""

    def row(self, slot: int) -> RowParts:
        """The record of a slot in use."""
        return self._rows[slot]

    def add(self, slot: int, incarnation: int, generation: int) -> None:
        """A node came into a slot."""
        self._rows[slot] = RowParts(incarnation, generation)

    def remove(self, slot: int, generation: int) -> None:
        """The slot's node is gone."""
        del self._rows[slot]
        self.removed.add(generation, slot)
