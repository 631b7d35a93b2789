"""`SearchStart` and `ScheduleResult`: what the search for a node begins with, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from berth_sdk.tables import NodeTable

from berth_host.framework.filtering import Rows
from berth_host.framework.score_table import ScoreTable


class TiedNodes:
    """Equally good nodes, as rows of a table. A name is made only when it is read: there may be thousands."""

    __slots__ = ("_rows", "_table")

    def __init__(self, table: NodeTable, rows: Rows) -> None:
        self._table = table
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def name(self, position: int) -> str:
        """Return the name of one of these nodes."""
        return self._table.name(self._rows.item(position))

    @property
    def names(self) -> list[str]:
        """The names of all these nodes, in the order of the rows."""
        return self._table.take(self._rows).names


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleResult:
    """The chosen node, and the nodes `tied` with it. `scores` is None if no node was scored."""

    node_name: str
    feasible_count: int
    evaluated_count: int
    tied: TiedNodes
    scores: ScoreTable | None = None


class SearchStart:
    """The position where the next sampled search starts (nextStartNodeIndex). Shared by all profiles.

    `order`: the snapshot's slots interleaved by zone, in which sampling visits the nodes. None: by slot.
    """

    def __init__(self, order: np.ndarray[tuple[int], np.dtype[np.intp]] | None = None) -> None:
        self.next_start = 0
        self.order = order

    def in_order(self, rows: Rows) -> Rows:
        """Return the rows of the whole snapshot in visiting order. A subset keeps its own order."""
        if self.order is None or len(self.order) != len(rows):
            return rows
        return self.order

    def advance(self, visited_count: int, node_count: int) -> None:
        """Move the start of the next search behind the `visited_count` nodes that this search visited."""
        self.next_start = (self.next_start + visited_count) % node_count if node_count else 0
