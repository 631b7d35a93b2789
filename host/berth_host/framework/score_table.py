"""The scores of the nodes that fit a pod: per plugin, in total, and the nodes with the highest total."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.rpc.client import PluginClient

Scores = NDArray[np.int64]
_TAKEN = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class WeightedPlugin:
    """A plugin at a point. The weight counts only at Score."""

    client: PluginClient
    weight: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class PluginScores:
    """The scores of one plugin (int64[n]): as answered, and after normalisation, without the weight."""

    plugin: str
    weight: int
    raw: Scores
    normalized: Scores


@dataclass(slots=True, eq=False)
class TopRecord:
    """The record of the best rows, kept for tables of equal pods. `rows`: the recorded rows, empty after a
    change of their scores. `names`: the `names_identity` of the nodes. `record`: as the writer made it.
    """

    rows: list[int] = field(default_factory=list)
    names: Hashable = None
    record: Any = None

    def holds(self, rows: list[int], nodes: NodeTable) -> bool:
        """Return True if the record is of these rows of `nodes`, with their present names and scores."""
        return self.rows == rows and self.names == nodes.names_identity

    def forget(self) -> None:
        """Drop the record: scores of its rows may have changed."""
        self.rows = []


@dataclass(slots=True, eq=False)
class ScoreTable:
    """Scores of the n rows of `nodes`. `total` is the sum of normalized * weight; read-only if equal pods
    share it.
    """

    nodes: NodeTable
    total: Scores
    plugins: list[PluginScores] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    leaders: NDArray[np.intp] | None = None
    """The rows that `best` returns, if they are known already."""
    recorded: TopRecord | None = None
    """The record that holds for this table too, as long as its rows are the best; None: there is none."""

    @classmethod
    def empty(cls, nodes: NodeTable) -> ScoreTable:
        """Return a table with an empty total, to be filled in."""
        return cls(nodes, np.zeros(0, dtype=np.int64))

    def add(self, scores: Scores) -> None:
        """Add scores to the total. A shared total is copied first."""
        if self.total.flags.writeable:
            self.total += scores
        else:
            self.total = self.total + scores
        self.leaders = self.recorded = None

    def best(self) -> NDArray[np.intp]:
        """Return the rows with the highest total, ascending. `total` must be complete."""
        if self.leaders is None:
            self.leaders = self._highest()
        return self.leaders

    def _highest(self) -> NDArray[np.intp]:
        return np.equal(self.total, np.maximum.reduce(self.total)).nonzero()[0]

    def top(self, count: int) -> NDArray[np.intp]:
        """Return the `count` rows with the highest totals, ascending; all rows if there are fewer.

        Of rows with equal totals, the first are returned.
        """
        best = self.best()
        if len(best) >= count:
            return best[:count]
        # One search per row: np.argpartition takes a hundred times as long if most totals are equal.
        left, found = self.total.copy(), []
        for _ in range(min(count, len(left))):
            highest = int(left.argmax())
            found.append(highest)
            left[highest] = _TAKEN
        return np.sort(np.array(found, dtype=np.intp))
