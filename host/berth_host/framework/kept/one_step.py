"""`OneStep`: Filter, and PreScore with Score, each in one step, for a pod about which every answer is kept.

    an equal pod before     each plugin's kept answer is looked up, and the rest is asked (`keep_answers`)
    this pod                all verdicts and all scores are merged: only rows that moved are asked about

Made after a pod whose Filter and Score had nothing to ask but moved rows. Holds until a Node object changes,
and for pods for which the same plugins skip. Made by `keep_answers`, called by `Framework`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from berth_sdk.cycle_state import CycleState
from berth_sdk.tables import NodeTable

from berth_host.attempt.cycle import Cycle
from berth_host.framework.filtering import Rows
from berth_host.framework.kept.merged_scores import MergedScores
from berth_host.framework.kept.merged_verdicts import MergedVerdicts
from berth_host.framework.score_table import PluginScores, ScoreTable, WeightedPlugin
from berth_host.framework.scoring import ScoreRoles, in_configured_order
from berth_host.metrics.series import instant_s
from berth_host.model.node_statuses import NodeStatuses
from berth_host.rpc.client import PluginClient

Clients: TypeAlias = tuple[PluginClient, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Skips:
    """The kept skips among `clients`. `rest`: asked for every pod. `point`: plugins that skip the extension
    point. `cycle`: plugins that skip the whole cycle.
    """

    clients: Clients
    rest: Clients
    point: frozenset[str]
    cycle: frozenset[str] = frozenset()


def nobody_else_scores(pre_scored: Skips, roles: ScoreRoles) -> bool:
    """Return True if no plugin is asked for every pod at PreScore and Score, and some plugin scores."""
    return not (pre_scored.rest or roles.others) and bool(roles.sharing)


class OneStep:
    """The steps of all pods that are equal for every plugin.

    `filters`, `pre_score`: the plugins of Filter and PreScore. `skipped`: the plugins that skip Score.
    """

    __slots__ = (
        "_count",
        "_plugins",
        "_pre_scored",
        "_roles",
        "_scores",
        "_shared",
        "_skip",
        "_skip_filter",
        "_states",
        "_verdicts",
        "filters",
        "pre_score",
        "skipped",
    )

    def __init__(
        self,
        verdicts: MergedVerdicts,
        scores: MergedScores,
        states: Mapping[str, CycleState],
        cycle: Cycle,
        filters: Clients,
        pre_scored: Skips,
        roles: ScoreRoles,
    ) -> None:
        """`states`: the cycle state that plugins write for such a pod. `cycle`: of the first such pod."""
        self.filters = filters
        self.pre_score = pre_scored.clients
        self.skipped = tuple([one.client.name for one in roles.score if one.client.name in roles.skip_score])
        self._verdicts = verdicts
        self._scores = scores
        self._states = states
        self._skip_filter, self._skip = cycle.skip_filter, cycle.skip
        self._pre_scored = pre_scored
        self._roles = roles
        self._shared: Sequence[PluginScores] = ()
        self._count = 0
        self._plugins: list[PluginScores] = []

    def holds(self, cycle: Cycle, pre_scored: Skips | None, roles: ScoreRoles | None) -> bool:
        """Return True if PreFilter left the same plugins in, and PreScore would skip the same.

        `pre_scored`: what is kept now about PreScore; None after a Node object changed. `roles`: those of the
        latest equal pod, to which the kept scores belong.
        """
        return (
            pre_scored is self._pre_scored
            and roles is self._roles
            and cycle.skip_filter == self._skip_filter
            and cycle.skip == self._skip
        )

    def scores_with(self, pre_score: Clients, score: Sequence[WeightedPlugin]) -> bool:
        """Return True if these are the plugins of PreScore and Score."""
        return self.pre_score == pre_score and self._roles.score == score

    async def filter(self, cycle: Cycle, statuses: NodeStatuses, rows: Rows) -> Rows:
        """Run Filter without nominated pods; see `Answers`."""
        return await self._verdicts.ask(self.filters, cycle, statuses, rows)

    async def score(self, cycle: Cycle, nodes: NodeTable) -> ScoreTable | None:
        """Run PreScore, Score and NormalizeScore over the rows of `nodes`.

        Return None after a failed call or for a score out of range: the caller takes the longer way, with
        error handling and failure policy.
        """
        scores, roles = self._scores, self._roles
        cycle.take_over(self._states)
        cycle.pre_scored_s = instant_s()
        if await scores.ask(roles.sharing, cycle, nodes) is not None or not scores.is_in_range:
            return None
        cycle.skip_score |= roles.skip_score
        shared, total, leaders = scores.read()
        if shared != self._shared or self._count != len(nodes):
            self._shared, self._count = shared, len(nodes)
            by_name = {one.plugin: one for one in shared}
            self._plugins = in_configured_order(roles, by_name, len(nodes))
        return ScoreTable(nodes, total, self._plugins.copy(), [*self.skipped], leaders, scores.recorded)
