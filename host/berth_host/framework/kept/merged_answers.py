"""The merged answers of all plugins that judge row by row, about pods that are equal for each of these
plugins.

Verdicts are merged (`MergedVerdicts`), and scores are summed (`MergedScores`). For the next equal pod each
plugin is asked once, about the rows that moved. Made when the second such pod comes. Called by
`keep_answers`.

Members of groups that are tried in placements have merged answers of their own. The verdicts and the scores
are those of rows, whatever placement a row is in. What plugins answered and wrote at PreFilter and PreScore
is kept by placement (`InPlacement`), because they are handed the nodes of the placement there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn
from berth_sdk.kept.follows import StaleSlots
from berth_sdk.tables import NodeTable
from berth_sdk.tables.node_columns import NodeColumns

from berth_host.attempt.cycle import Cycle
from berth_host.framework.kept.merged_scores import MergedScores
from berth_host.framework.kept.merged_verdicts import MergedVerdicts, NominatedVerdicts
from berth_host.framework.kept.one_step import Clients, OneStep, Skips, nobody_else_scores
from berth_host.framework.kept.plugin_answers import SignatureAnswers
from berth_host.framework.scoring import ScoreRoles

MOST_PLACEMENTS: Final = 1024
"""The most placements about which equal pods keep what plugins answered at PreFilter and PreScore."""
MOST_IN_PLACEMENT: Final = 256
"""The most answers of single plugins that are kept about equal pods in one placement."""


class AnswersAboutNodes:
    """The kept answers about equal pods and one table of nodes. `verdicts`, `scores`: a column each."""

    def __init__(self, verdicts: MergedVerdicts, scores: MergedScores) -> None:
        self.pre_filtered: Skips | None = None
        self.pre_scored: Skips | None = None
        self.states: dict[str, CycleState] = {}
        """The cycle state written by the plugins whose answers are kept."""
        self.roles: ScoreRoles | None = None
        self._step: OneStep | None = None
        self.verdicts = verdicts
        self.scores = scores
        self._crowded: NominatedVerdicts | None = None

    @property
    def crowded(self) -> NominatedVerdicts:
        """The verdicts on nodes with their nominated pods; made at the first use, as it is rarely needed."""
        if self._crowded is None:
            self._crowded = NominatedVerdicts()
        return self._crowded

    def step_for(self, cycle: Cycle) -> OneStep | None:
        """Return the one step that takes the cycle's pod through Filter, or Score; None: there is none."""
        step = self._step
        return step if step is not None and step.holds(cycle, self.pre_scored, self.roles) else None

    def note_step(self, cycle: Cycle, filters: Clients) -> None:
        """Make the one step for the next equal pod, if the cycle's pod had nothing to ask but moved rows.

        `filters`: the Filter plugins of the pod, whose verdicts are all merged.
        """
        scored, roles = self.pre_scored, self.roles
        if scored is not None and roles is not None and nobody_else_scores(scored, roles):
            self._step = OneStep(self.verdicts, self.scores, self.states, cycle, filters, scored, roles)


class InPlacement(AnswersAboutNodes):
    """The kept answers about equal members of groups in one placement."""

    def __init__(self, verdicts: MergedVerdicts, scores: MergedScores) -> None:
        super().__init__(verdicts, scores)
        self._of_plugins: dict[Hashable, SignatureAnswers] = {}

    def of_plugin(self, plugin: str, signature: Hashable) -> SignatureAnswers:
        """Return a plugin's answers at PreFilter and PreScore about pods with this signature."""
        key = plugin, signature
        answers = self._of_plugins.get(key)
        if answers is None:
            if len(self._of_plugins) >= MOST_IN_PLACEMENT:
                self._of_plugins.clear()
            answers = self._of_plugins[key] = SignatureAnswers()
        return answers


class MergedAnswers(AnswersAboutNodes):
    """The kept answers, as of the current cycle's snapshot."""

    def __init__(self, nodes: NodeTable) -> None:
        super().__init__(MergedVerdicts(), MergedScores())
        columns = nodes.columns
        self._rows = StaleSlots(DependsOn.ROW, columns)
        self._nodes = StaleSlots(DependsOn.NODE, columns)
        self._nodes_version = columns.nodes_version
        self._placements: OrderedDict[bytes, InPlacement] = OrderedDict()
        self._last: InPlacement | None = None

    def in_placement(self, nodes: NodeTable) -> InPlacement:
        """Return what is kept about the pods in a placement with these nodes."""
        key = nodes.slots.tobytes()
        found = self._placements.get(key)
        if found is None:
            found = self._placements[key] = InPlacement(self.verdicts, self.scores)
            if len(self._placements) > MOST_PLACEMENTS:
                self._placements.popitem(last=False)
        else:
            self._placements.move_to_end(key)
        if found is not self._last:
            # Other plugins may skip Score in the placement of the last pod, and are in its record.
            self._last = found
            self.scores.recorded.forget()
        return found

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
            self._placements.clear()
