"""Find the nodes where a pod can run, and the best of them: the part of a cycle that only reads.

Called by `schedule_one`; usable alone with a Framework and a snapshot built by hand.
Source: kube-scheduler `schedule_one.go` (schedulePod, findNodesThatFitPod, prioritizeNodes), v1.36.
berth evaluates every node unless the configuration sets percentageOfNodesToScore to 1..99.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.tables import NodeTable

from berth_host.framework.cycle import Cycle
from berth_host.framework.filtering import Rows, filter_error
from berth_host.framework.framework import Framework, all_rows
from berth_host.framework.nominated import NominatedPods as NominatedPods
from berth_host.framework.pre_filtering import PASSED, PreFilterOutcome, rows_named
from berth_host.framework.score_table import ScoreTable
from berth_host.model.node_statuses import NodeStatuses
from berth_host.scheduler import sampling
from berth_host.scheduler.chooser import Chooser


@dataclass(slots=True, eq=False)
class Feasible:
    """`rows`: positions in the snapshot's table, in visiting order. `visited_count`: feasible plus
    explicitly rejected ones. `status`: an error that ended the search, or a PreFilter rejection.
    `pre_filter`: the decisions of PreFilter about nodes.
    """

    statuses: NodeStatuses
    rows: Rows
    visited_count: int = 0
    status: Status = SUCCESS
    pre_filter_message: str = ""
    pre_filter: PreFilterOutcome = PASSED


class TiedNodes:
    """Equally good nodes: rows of a table. There may be thousands, and only one is looked at."""

    __slots__ = ("_rows", "_table")

    def __init__(self, table: NodeTable, rows: Rows) -> None:
        self._table = table
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def name(self, position: int) -> str:
        """The name of one of these nodes."""
        return self._table.name(self._rows.item(position))

    @property
    def names(self) -> list[str]:
        """All names, in the order of the rows."""
        return self._table.take(self._rows).names


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleResult:
    """The chosen node, and all that were as good. `scores` is None when none was scored."""

    node_name: str
    feasible_count: int
    evaluated_count: int
    tied: TiedNodes
    scores: ScoreTable | None = None


class Algorithm:
    """`percentage`: percentageOfNodesToScore of the profile; 1..99 samples, else all nodes are asked."""

    def __init__(self, framework: Framework, chooser: Chooser, percentage: int = 0) -> None:
        self.framework = framework
        self.chooser = chooser
        self.percentage = percentage if 1 <= percentage <= 99 else 0

    async def find_feasible(self, cycle: Cycle, nominated: NominatedPods, search: SearchStart) -> Feasible:
        """PreFilter, then Filter over the nodes that it left."""
        table = cycle.nodes
        found = Feasible(NodeStatuses(table), np.zeros(0, dtype=np.intp))
        outcome = await self.framework.run_pre_filter(cycle)
        found.pre_filter = outcome
        if not outcome.status.is_success:
            found.status = outcome.status
            if outcome.status.is_rejected:
                found.statuses.absent = outcome.status
                found.pre_filter_message = outcome.status.message
                _keep_left_out(found)
            return found
        if cycle.pod.nominated_node and await self._try_nominated(cycle, nominated, found):
            return found
        found.statuses.absent = outcome.absent
        rows = all_rows(table) if outcome.eligible is None else rows_named(table, outcome.eligible)
        await self._search(cycle, nominated, found, rows, search)
        return found

    async def _try_nominated(self, cycle: Cycle, nominated: NominatedPods, found: Feasible) -> bool:
        """The node that an earlier preemption made room on goes first, alone."""
        row = cycle.nodes.position(cycle.pod.nominated_node)
        if row is None:
            return False
        rows = np.asarray([row], dtype=np.intp)
        passed = await self.framework.run_filter(cycle, found.statuses, rows, nominated)
        if len(passed):
            eligible = found.pre_filter.eligible
            if eligible is not None and cycle.pod.nominated_node not in eligible:
                # A plugin that narrows at PreFilter need not repeat its rejection at Filter.
                return False
            found.rows, found.visited_count = passed, 1
            return True
        if filter_error(found.statuses, rows) is not None:
            # An error here only means that all nodes are asked; it is not the attempt's own.
            found.statuses.forget(rows)
        return False

    async def _search(
        self,
        cycle: Cycle,
        nominated: NominatedPods,
        found: Feasible,
        rows: Rows,
        search: SearchStart,
    ) -> None:
        statuses = found.statuses
        passed = await self.framework.run_filter(cycle, statuses, rows, nominated)
        if self.percentage:
            order = sampling.rotated(search.in_order(rows), search.next_start)
            wanted = sampling.wanted_count(len(rows), self.percentage) if self.framework.has_scores else 1
            found.rows, found.visited_count = sampling.cut(statuses, order, passed, wanted)
            search.advance(found.visited_count, len(cycle.nodes))
            rows = order
        else:
            found.rows, found.visited_count = passed, len(rows)
        error = filter_error(statuses, rows)
        if error is not None:
            found.status = error

    async def prioritize(self, cycle: Cycle, feasible: Feasible) -> ScheduleResult | Status:
        """Score the feasible nodes (at least one) and pick one of the best."""
        nodes = cycle.nodes
        counts = (len(feasible.rows), feasible.visited_count)
        if len(feasible.rows) == 1:
            return self._chosen(TiedNodes(nodes, feasible.rows), counts)
        # Sampling visits nodes in an order of its own; else the rows ascend as they are.
        rows = np.sort(feasible.rows) if self.percentage else feasible.rows
        candidates = nodes if len(rows) == len(nodes) else nodes.take(rows)
        if not self.framework.has_scores:
            return self._chosen(TiedNodes(candidates, all_rows(candidates)), counts)
        scores = await self.framework.run_score(cycle, candidates)
        if isinstance(scores, Status):
            return scores
        return self.select_host(scores, counts)

    def select_host(self, scores: ScoreTable, counts: tuple[int, int]) -> ScheduleResult:
        """Pick a row with the highest total, by the Chooser."""
        return self._chosen(TiedNodes(scores.nodes, scores.best()), counts, scores)

    def _chosen(
        self, tied: TiedNodes, counts: tuple[int, int], scores: ScoreTable | None = None
    ) -> ScheduleResult:
        return ScheduleResult(tied.name(self.chooser.pick(tied)), *counts, tied, scores)


def _keep_left_out(found: Feasible) -> None:
    """Make preemption skip the nodes that PreFilter left out, also where another plugin rejected the pod as
    UNSCHEDULABLE: no victim on such a node would help.
    """
    outcome, statuses = found.pre_filter, found.statuses
    if outcome.eligible is None or outcome.status.code is not Code.UNSCHEDULABLE:
        return
    left_out = np.ones(len(statuses.table), dtype=np.bool_)
    left_out[rows_named(statuses.table, outcome.eligible)] = False
    statuses.groups[left_out] = statuses.group_of(outcome.absent)


class SearchStart:
    """Where the next sampled search starts (nextStartNodeIndex). Shared by all profiles.

    `order`: the snapshot's slots interleaved by zone, as sampling visits them; None: by slot.
    """

    def __init__(self, order: np.ndarray[tuple[int], np.dtype[np.intp]] | None = None) -> None:
        self.next_start = 0
        self.order = order

    def in_order(self, rows: Rows) -> Rows:
        """Positions of the snapshot's table in visiting order; a subset keeps its own order."""
        if self.order is None or len(self.order) != len(rows):
            return rows
        return self.order

    def advance(self, visited_count: int, node_count: int) -> None:
        """The next search goes on behind the nodes that this one looked at."""
        self.next_start = (self.next_start + visited_count) % node_count if node_count else 0
