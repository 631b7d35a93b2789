"""The merged answers of all plugins that judge row by row, about pods that are equal for each of these
plugins.

Verdicts are merged (`MergedVerdicts`), and scores are summed (`MergedScores`). For the next equal pod each
plugin is asked once, about the rows that moved. Made when the second such pod comes. Called by
`keep_answers`.
"""

from __future__ import annotations

from collections.abc import Sequence

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn
from berth_sdk.kept.follows import StaleSlots
from berth_sdk.tables import NodeTable
from berth_sdk.tables.node_columns import NodeColumns

from berth_host.attempt.cycle import Cycle
from berth_host.framework.kept.merged_scores import MergedScores
from berth_host.framework.kept.merged_verdicts import MergedVerdicts, NominatedVerdicts
from berth_host.framework.kept.one_step import Clients, OneStep, Skips, nobody_else_scores
from berth_host.framework.scoring import ScoreRoles


class MergedAnswers:
    """The kept answers, as of the current cycle's snapshot."""

    def __init__(self, nodes: NodeTable) -> None:
        self.pre_filtered: Skips | None = None
        self.pre_scored: Skips | None = None
        self.states: dict[str, CycleState] = {}
        """The cycle state written by the plugins whose answers are kept."""
        self.roles: ScoreRoles | None = None
        self._step: OneStep | None = None
        self.verdicts = MergedVerdicts()
        self.scores = MergedScores()
        self._crowded: NominatedVerdicts | None = None
        columns = nodes.columns
        self._rows = StaleSlots(DependsOn.ROW, columns)
        self._nodes = StaleSlots(DependsOn.NODE, columns)
        self._nodes_version = columns.nodes_version

    @property
    def crowded(self) -> NominatedVerdicts:
        """The verdicts on nodes with their nominated pods; made at the first use, as it is rarely needed."""
        if self._crowded is None:
            self._crowded = NominatedVerdicts()
        return self._crowded

    def step_for(self, cycle: Cycle) -> OneStep | None:
        """Return the one step that takes the cycle's pod through Filter, or Score; None: there is none."""
        step = self._step
        return step if step is not None and step.holds(cycle, self.pre_scored) else None

    def note_step(self, cycle: Cycle, filters: Clients) -> None:
        """Make the one step for the next equal pod, if the cycle's pod had nothing to ask but moved rows.

        `filters`: the Filter plugins of the pod, whose verdicts are all merged.
        """
        scored, roles = self.pre_scored, self.roles
        if scored is not None and roles is not None and nobody_else_scores(scored, roles):
            self._step = OneStep(self.verdicts, self.scores, self.states, cycle, filters, scored, roles)

    def catch_up(self, columns: NodeColumns) -> None:
        """Forget the rows whose answers have ended since the last call."""
        moved, node_moved = self._rows.since_last(columns), self._nodes.since_last(columns)
        shared: Sequence[MergedVerdicts | MergedScores] = (
            (self.verdicts, self.scores)
            if self._crowded is None
            else (self.verdicts, self._crowded, self.scores)
        )
        if moved is None or node_moved is None:
            for one in shared:
                one.clear()
        elif moved or node_moved:
            for one in shared:
                one.forget(moved, node_moved)
        if self._nodes_version != columns.nodes_version:
            self._nodes_version = columns.nodes_version
            for one in shared:
                one.forget_about_all_nodes()
            # PreFilter and PreScore are handed all nodes, and may read the Node objects.
            self.pre_filtered = self.pre_scored = None
            self.states = {}
