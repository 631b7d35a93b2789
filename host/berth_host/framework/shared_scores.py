"""Scores of the plugins that judge node by node, summed up, for pods of one signature.

Raw scores are kept by slot; of the candidates of the last cycle also the final ones and their weighted sum,
which is put right for the rows that moved instead of being added up anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from berth_sdk._known_slots import KnownSlots
from berth_sdk.extension_points import DependsOn, ScoreNormalization
from berth_sdk.status import MAX_NODE_SCORE
from berth_sdk.tables import NodeTable
from berth_sdk.tables.read_only import extended
from numpy.typing import NDArray

from berth_host.framework.cycle import Cycle
from berth_host.framework.score_table import PluginScores, Scores, WeightedPlugin
from berth_host.framework.shared_verdicts import within
from berth_host.rpc.client import ScoreOutcome
from berth_host.rpc.normalize import normalize

_AS_THEY_COME: Final = (ScoreNormalization.NONE, ScoreNormalization.PLUGIN)


class _Column:
    """One plugin: raw scores by slot, and of the last candidates raw and final scores by row."""

    __slots__ = ("as_they_come", "final", "how", "node_only", "plugin", "raw", "raw_here")

    def __init__(self, plugin: WeightedPlugin) -> None:
        descriptor = plugin.client.descriptor
        self.plugin = plugin
        self.how = descriptor.normalization
        self.as_they_come = self.how in _AS_THEY_COME
        self.node_only = descriptor.depends_on is not DependsOn.ROW
        self.raw: Scores = np.zeros(0, dtype=np.int64)
        self.raw_here: Scores = self.raw
        self.final: Scores = self.raw

    def read(self, nodes: NodeTable) -> None:
        """Of these candidates from now on."""
        self.raw_here = nodes.take_of(self.raw).copy()
        self.final = self.raw_here if self.as_they_come else normalize(self.how, self.raw_here)

    def change(self, positions: NDArray[np.intp], slots: NDArray[np.intp], total: Scores) -> None:
        """These candidates were scored anew: put final scores and `total` right."""
        new, old = self.raw.take(slots), self.raw_here.take(positions)
        if new.tolist() == old.tolist():
            return
        self.raw_here[positions] = new
        weight = self.plugin.weight
        if self.as_they_come:
            total[positions] += (new - old) * weight
            return
        # One row may have been the highest, by which all others are measured.
        final = normalize(self.how, self.raw_here)
        np.add(total, (final - self.final) * weight, out=total)
        self.final = final


class SharedScores:
    """Scores of several plugins. `_known`: slots whose scores hold; `_node_known`: those by the Node."""

    def __init__(self) -> None:
        self._plugins: tuple[WeightedPlugin, ...] = ()
        self._columns: list[_Column] = []
        self._known = KnownSlots()
        self._node_known: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._has_whole = False
        self._rows: NDArray[np.intp] | None = None
        self._total: Scores = np.zeros(0, dtype=np.int64)

    def clear(self) -> None:
        """Nothing holds any more."""
        self._known.clear()
        self._node_known[:] = False

    def forget(self, moved: Sequence[int], node_moved: Sequence[int]) -> None:
        """These slots moved: in anything, and in their Node object."""
        length = len(self._known)
        if not length:
            return
        if node_moved:
            self._node_known[within(node_moved, length)] = False
        self._known.forget(within(moved, length))

    def forget_about_all_nodes(self) -> None:
        """Some Node object changed: what a plugin said of any row by all of them is stale."""
        if self._has_whole:
            self.clear()

    async def ask(
        self, plugins: Sequence[WeightedPlugin], cycle: Cycle, nodes: NodeTable
    ) -> ScoreOutcome | None:
        """Bring the scores of `nodes` (rows of the snapshot) up to date; not None: why that failed."""
        self._prepare(plugins, nodes._columns.capacity)
        missing = self._known.missing(nodes)
        if len(missing):
            asked = nodes if len(missing) == len(nodes) else nodes.take(missing)
            slots = asked.rows
            by_node = self._node_known.take(slots).all()
            for column in self._columns:
                if column.node_only and by_node:
                    continue
                outcome = await column.plugin.client.score(cycle.context, asked, raw_only=True)
                if not outcome.status.is_success:
                    self._rows = None
                    return outcome
                column.raw[slots] = outcome.raw
            # What a policy put in the place of an answer is not the plugin's word; the next pod asks again.
            sound = not any(column.plugin.client.is_failing for column in self._columns)
            if sound:
                self._known.learn(slots, in_use=nodes.snapshot_size)
            else:
                self._known.forget(slots.tolist())
            self._node_known[slots] = sound
        self._add_up(nodes, missing)
        return None

    def read(self) -> tuple[list[PluginScores], Scores]:
        """Scores per plugin, read-only until the next pod is asked about, and their weighted sum, a copy."""
        scores = [
            PluginScores(column.plugin.client.name, column.plugin.weight, column.raw_here, column.final)
            for column in self._columns
        ]
        return scores, self._total.copy()

    @property
    def is_in_range(self) -> bool:
        """Whether all final scores are in 0..100, as far as the plugins' own checks do not say so."""
        return all(
            column.as_they_come
            or not len(column.final)
            or int(np.maximum.reduce(column.final.view(np.uint64))) <= MAX_NODE_SCORE
            for column in self._columns
        )

    def _add_up(self, nodes: NodeTable, changed: NDArray[np.intp]) -> None:
        rows = nodes.rows
        same = self._rows is not None and (self._rows is rows or np.array_equal(self._rows, rows))
        self._rows = rows
        if same and len(changed) < len(rows):
            if len(changed):
                slots = rows.take(changed)
                for column in self._columns:
                    column.change(changed, slots, self._total)
            return
        self._total = np.zeros(len(rows), dtype=np.int64)
        for column in self._columns:
            column.read(nodes)
            self._total += column.final * column.plugin.weight

    def _prepare(self, plugins: Sequence[WeightedPlugin], capacity: int) -> None:
        if tuple(plugins) != self._plugins:
            # PreScore left other plugins in than the last time.
            self._plugins = tuple(plugins)
            self._columns = [_Column(plugin) for plugin in plugins]
            self._has_whole = any(
                plugin.client.descriptor.depends_on is DependsOn.NODES for plugin in plugins
            )
            self._rows = None
            self.clear()
        if len(self._known) < capacity:
            self._known.grow(capacity)
            self._node_known = extended(self._node_known, capacity - len(self._node_known))
        for column in self._columns:
            if len(column.raw) < capacity:
                column.raw = extended(column.raw, capacity - len(column.raw))
