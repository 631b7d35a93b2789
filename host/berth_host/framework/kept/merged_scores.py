"""The summed scores of plugins that judge row by row, for equal pods.

Raw scores are kept by slot. For the candidates of the last cycle, the final scores and their weighted sum are
kept too. The sum is updated for the rows that moved, and not computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
from berth_sdk.extension_points import DependsOn, ScoreNormalization
from berth_sdk.kept.known_slots import KnownSlots
from berth_sdk.kept.row_contents import MOST_ROWS, ContentAnswers, content_answers
from berth_sdk.tables import NodeTable
from berth_sdk.tables.few import FEW
from berth_sdk.tables.read_only import extended, read_only
from numpy.typing import NDArray

from berth_host.attempt.cycle import Cycle
from berth_host.framework.kept.leaders import Leaders, Rows
from berth_host.framework.kept.merged_verdicts import within
from berth_host.framework.score_table import PluginScores, Scores, TopRecord, WeightedPlugin
from berth_host.rpc.scores import ScoreOutcome, normalize
from berth_host.rpc.validate import in_range

_AS_THEY_COME: Final = (ScoreNormalization.NONE, ScoreNormalization.PLUGIN)


class _Column:
    """One plugin's scores: raw by slot; raw and final by row for the last candidates."""

    __slots__ = ("as_they_come", "by_row", "how", "is_in_range", "node_only", "plugin", "raw", "weight")

    def __init__(self, plugin: WeightedPlugin) -> None:
        descriptor = plugin.client.descriptor
        self.plugin = plugin
        self.weight = plugin.weight
        self.how = descriptor.normalization
        self.as_they_come = self.how in _AS_THEY_COME
        self.node_only = descriptor.depends_on is not DependsOn.ROW
        self.raw: Scores = np.zeros(0, dtype=np.int64)
        self.by_row = PluginScores(plugin.client.name, self.weight, self.raw, self.raw)
        self.is_in_range = True
        """False if a final score is outside 0..100. Checked here where the plugin's own check does not."""

    def read(self, nodes: NodeTable) -> None:
        """Read the scores of these candidates."""
        self._normalize(nodes.take_of(self.raw).copy())

    def change(self, rows: Sequence[tuple[int, int]], total: Scores) -> bool:
        """Update final scores and `total` after these few candidates, by position and slot, got new raw
        scores.

        Return True if scores of other candidates may have changed as well.
        """
        raw, changed = self.by_row.raw, False
        for row, slot in rows:
            new = self.raw.item(slot)
            difference = new - raw.item(row)
            if difference:
                raw[row], changed = new, True
                if self.as_they_come:
                    total[row] += difference * self.weight
        if self.as_they_come or not changed:
            return False
        # One row may have been the highest, by which all others are measured.
        final = self.by_row.normalized
        self._normalize(raw)
        np.add(total, (self.by_row.normalized - final) * self.weight, out=total)
        return True

    def change_many(self, rows: Rows, slots: Rows, total: Scores) -> None:
        """Do the same as `change` for many candidates, without a loop over them."""
        raw = self.by_row.raw
        new = self.raw.take(slots)
        differences = new - raw.take(rows)
        if not np.count_nonzero(differences):
            return
        raw[rows] = new
        if self.as_they_come:
            total[rows] += differences * self.weight if self.weight != 1 else differences
            return
        final = self.by_row.normalized
        self._normalize(raw)
        np.add(total, (self.by_row.normalized - final) * self.weight, out=total)

    def _normalize(self, raw: Scores) -> None:
        final = raw if self.as_they_come else normalize(self.how, raw)
        if final is raw and not self.as_they_come:
            final = raw.copy()  # `change` writes to the raw scores, and compares them with the final ones
        self.by_row = PluginScores(self.by_row.plugin, self.weight, raw, final)
        self.is_in_range = self.as_they_come or in_range(final)


class MergedScores:
    """The scores of several plugins. `_known`: slots whose scores hold. `_node_known`: slots whose scores by
    the Node hold.
    """

    def __init__(self) -> None:
        self._plugins: tuple[WeightedPlugin, ...] = ()
        self._columns: list[_Column] = []
        self._about_pods: list[_Column] = []
        """The columns of the plugins that read pods."""
        self._by_content: ContentAnswers[tuple[int, ...]] | None = None
        """The raw scores of `_about_pods`, by the columns that these plugins read; None: one of them declares
        none.
        """
        self._capacity = 0
        self._known = KnownSlots()
        self._node_known: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._has_whole = False
        self.not_summed: list[tuple[Rows, Sequence[_Column]]] = []
        """The slots with new scores since the total was computed, and their columns."""
        self._rows: Rows | None = None
        self._total: Scores = np.zeros(0, dtype=np.int64)
        self._shown = self._total
        """A read-only view of the total."""
        self._leaders = Leaders()
        self.recorded = TopRecord()
        """The record of the best of the last candidates."""

    def clear(self) -> None:
        """Forget all scores."""
        self._known.clear()
        self._node_known[:] = False

    def forget(self, moved: Collection[int], node_moved: Collection[int]) -> None:
        """Forget the slots that moved. `moved`: in any part. `node_moved`: in their Node object."""
        self._known.forget(moved)
        if node_moved:
            self._node_known[within(node_moved, len(self._known))] = False

    def forget_about_all_nodes(self) -> None:
        """Forget the answers that depend on all Node objects, one of which has changed."""
        if self._has_whole:
            self.clear()

    async def ask(
        self, plugins: tuple[WeightedPlugin, ...], cycle: Cycle, nodes: NodeTable
    ) -> ScoreOutcome | None:
        """Update the scores of `nodes` (rows of the snapshot). Return the outcome of a call without an answer
        of the plugin, else None.
        """
        self._prepare(plugins, nodes.columns.capacity)
        few = self._known.few_missing(nodes)
        if few is None or (few and not self._recall(nodes, few)):
            missing = self._known.missing(nodes)
            failed = await self._learn(cycle, nodes, missing) if len(missing) else None
            if failed is not None:
                return failed
        self._add_up(nodes)
        return None

    async def ask_early(self, plugins: tuple[WeightedPlugin, ...], cycle: Cycle, nodes: NodeTable) -> None:
        """Update the scores of rows among which the candidates will be, if only a few of them moved.

        `ask` then only sums up. A row that fails here is asked about again by `ask`, if it is a candidate.
        """
        self._prepare(plugins, nodes.columns.capacity)
        missing = self._known.missing(nodes)
        if 0 < len(missing) <= FEW:
            await self._learn(cycle, nodes, missing)

    def _recall(self, nodes: NodeTable, slots: Sequence[int]) -> bool:
        """Give a few slots, whose scores by the Node hold, the scores of rows of equal content.

        Return False, and change nothing, if a plugin must be asked about one of them.
        """
        shared, by_node = self._by_content, self._node_known
        if shared is None:
            return False
        for slot in slots:
            if not by_node[slot]:
                return False
        scores = shared.find(shared.numbers(nodes.columns, slots))
        if None in scores:
            return False
        for slot, raw in zip(slots, scores, strict=True):
            for column, score in zip(self._about_pods, raw or (), strict=True):
                column.raw[slot] = score
        self._known.learn_few(slots)
        self._note_new(np.array(sorted(slots), dtype=np.intp), self._about_pods)
        return True

    async def _learn(self, cycle: Cycle, nodes: NodeTable, missing: Rows) -> ScoreOutcome | None:
        """Ask about the rows `missing` (positions in `nodes`). Return the same as `ask`."""
        columns = self._columns
        asked = nodes if len(missing) == len(nodes) else nodes.take(missing)
        slots = asked.slots
        by_node = np.count_nonzero(self._node_known.take(slots)) == len(slots)
        if by_node:
            columns = self._about_pods
            if self._by_content is not None and len(slots) <= MOST_ROWS:
                return await self._learn_by_content(self._by_content, cycle, asked)
        return await self._ask(columns, cycle, asked, by_node=by_node)

    async def _learn_by_content(
        self, shared: ContentAnswers[tuple[int, ...]], cycle: Cycle, nodes: NodeTable
    ) -> ScoreOutcome | None:
        """Learn the scores of rows whose scores by the Node hold. Rows with a content that the other plugins
        have scored get the same scores.
        """
        slots = nodes.slots
        numbers = shared.numbers(nodes.columns, slots.tolist())
        scores = shared.find(numbers)
        if None in scores:
            unknown = [at for at, score in enumerate(scores) if score is None]
            asked = nodes if len(unknown) == len(scores) else nodes.take(unknown)
            failed = await self._ask(self._about_pods, cycle, asked, by_node=True)
            if failed is not None:
                return failed
            learnt = asked.slots
            if np.count_nonzero(self._known.hold(learnt)) == len(learnt):
                new = [column.raw.take(learnt).tolist() for column in self._about_pods]
                shared.keep(
                    [numbers[at] for at in unknown], zip(*new, strict=True) if new else [()] * len(unknown)
                )
            if asked is nodes:
                return None
            slots = slots.take([at for at, score in enumerate(scores) if score is not None])
        known = [score for score in scores if score is not None]
        for column, raw in zip(self._about_pods, zip(*known, strict=True), strict=False):
            column.raw[slots] = raw
        self._known.learn(slots, in_use=nodes.snapshot_size)
        self._note_new(slots, self._about_pods)
        return None

    async def _ask(
        self, columns: Sequence[_Column], cycle: Cycle, asked: NodeTable, *, by_node: bool
    ) -> ScoreOutcome | None:
        """Ask the plugins of `columns` about these rows. `by_node`: the scores of the others hold."""
        slots, nodes = asked.slots, asked
        sound = True
        for column in columns:
            client = column.plugin.client
            outcome = await client.score(cycle, asked, raw_only=True)
            if not outcome.is_answer:
                # Zeros of a failure policy hold for all nodes. Beside kept scores of other nodes they would
                # rank this plugin's nodes.
                self._rows = None
                return outcome
            column.raw[slots] = outcome.raw
            # A plugin that fails at another point is asked again about the next pod.
            sound = sound and not client.is_failing
        if sound:
            self._known.learn(slots, in_use=nodes.snapshot_size)
        else:
            self._known.forget(slots.tolist())
        if not (by_node and sound):
            self._node_known[slots] = sound
        self._note_new(slots, columns)
        return None

    def _note_new(self, slots: Rows, columns: Sequence[_Column]) -> None:
        """Note scores that the total lacks."""
        self.not_summed.append((slots, columns))
        if len(self.not_summed) > FEW:  # the whole sum is computed again; the last call may be long ago
            self._rows = None
            self.not_summed.clear()

    def read(self) -> tuple[list[PluginScores], Scores, Rows]:
        """Return the scores of the last candidates by plugin, their weighted sum, and the rows where the sum
        is highest. All of them are read-only, and hold until the next pod.
        """
        return [column.by_row for column in self._columns], self._shown, self._leaders.of(self._total)

    @property
    def is_in_range(self) -> bool:
        """True if all final scores that the plugins' own checks do not cover are in 0..100."""
        return not [column for column in self._columns if not column.is_in_range]

    def _add_up(self, nodes: NodeTable) -> None:
        """Update the total with the scores learnt since the last call."""
        learnt, self.not_summed = self.not_summed, []
        rows = nodes.slots
        same = self._rows is not None and (self._rows is rows or np.array_equal(self._rows, rows))
        self._rows = rows
        learnt_count = 0
        for slots, _ in learnt:
            learnt_count += slots.size
        if not same or learnt_count > max(FEW, len(rows) >> 2):
            self._total = np.zeros(len(rows), dtype=np.int64)
            for column in self._columns:
                column.read(nodes)
                self._total += column.by_row.normalized * column.weight
            self._shown = read_only(self._total)
            self._leaders.forget()
            self.recorded.forget()
            return
        if learnt_count > FEW:
            for slots, columns in learnt:
                positions, here = nodes.known_positions(slots)
                if len(here):
                    for column in columns:
                        column.change_many(positions, here, self._total)
            self._leaders.forget()
            self.recorded.forget()
            return
        for slots, columns in learnt:
            moved = [
                (row, slot) for slot in slots.tolist() if (row := nodes.position_of_slot(slot)) is not None
            ]
            elsewhere = False
            for column in columns:
                elsewhere |= column.change(moved, self._total)
            if elsewhere:
                self._leaders.forget()
                self.recorded.forget()
                continue
            self._leaders.change([row for row, _ in moved], self._total)
            recorded = self.recorded.rows
            for row, _ in moved:
                if row in recorded:
                    self.recorded.forget()
                    break

    def _prepare(self, plugins: tuple[WeightedPlugin, ...], capacity: int) -> None:
        if plugins is not self._plugins and plugins != self._plugins:
            # PreScore left other plugins in than the last time.
            self._plugins = plugins
            self._columns = [_Column(plugin) for plugin in plugins]
            self._about_pods = [column for column in self._columns if not column.node_only]
            self._by_content = content_answers(
                column.plugin.client.descriptor.reads for column in self._about_pods
            )
            self._has_whole = any(
                plugin.client.descriptor.depends_on is DependsOn.NODES for plugin in plugins
            )
            self._rows = None
            self.clear()
            for column in self._columns:
                column.raw = extended(column.raw, self._capacity)
        if self._capacity < capacity:
            self._capacity = capacity
            self._known.grow(capacity)
            self._node_known = extended(self._node_known, capacity - len(self._node_known))
            for column in self._columns:
                column.raw = extended(column.raw, capacity - len(column.raw))
