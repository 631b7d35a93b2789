"""The answers of the host's search and its preemption in one attempt, overheard, in the format of records.

Used by `decision_host`. The host goes its own way: what is asked beside it, each plugin by itself, is asked
in a cycle of its own. The format is described in `parity/golden/README.md`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from berth_host.attempt.cycle import Cycle, CycleEnd
from berth_host.cycle.attempt import ScheduleResult, SearchStart
from berth_host.cycle.schedule_one import Algorithm
from berth_host.framework.score_table import ScoreTable
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.pre_filter_outcome import PreFilterOutcome
from berth_host.rpc.client import PluginClient
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable

Json = dict[str, Any]


@dataclass(slots=True)
class Seen:
    """The answers of the host's parts in one attempt."""

    nodes: NodeTable | None = None
    pre_filter: dict[str, Json] = field(default_factory=dict)
    filter: dict[str, Json] = field(default_factory=dict)
    framework: PreFilterOutcome | None = None
    combined: NodeStatuses | None = None
    feasible: list[int] | None = None
    """The rows of the feasible nodes; None: no search has ended. The record of a bound pod drops them."""
    of_search: bool = False
    """True if `combined` has the verdicts of the search itself."""
    chosen: ScheduleResult | None = None
    scores: ScoreTable | None = None

    def shown(self, brief: bool) -> Json:
        """In the format of the records."""
        if self.nodes is None or self.framework is None or self.feasible is None:
            return {}
        status = self.framework.status
        names = self.nodes.names
        feasible = sorted(names[row] for row in self.feasible)
        result: Json = {"feasible": feasible, "best": []}
        result["frameworkPreFilter"] = shown_status(status, signed=False)
        if status.is_success and self.framework.eligible is not None:
            result["frameworkPreFilter"]["nodeNames"] = sorted(self.framework.eligible)
        if status.plugin:
            result["frameworkPreFilterPlugin"] = status.plugin
        result["combined"] = self._combined(feasible)
        if not brief:
            result |= {"preFilter": self.pre_filter, "filter": self.filter}
        if self.chosen is not None:
            result |= {"best": sorted(self.chosen.tied.names), "chosen": self.chosen.node_name}
        if self.scores is not None:
            result |= _shown_scores(self.scores, brief)
        return result

    def _combined(self, feasible: list[str]) -> Json:
        """Return the verdicts on the nodes that did not pass; none when PreFilter ended the search."""
        statuses = self.combined
        if statuses is None:
            return {}
        names = statuses.table.names
        rejected = [names[row] for row in np.flatnonzero(statuses.groups).tolist()]
        if self.of_search:
            # Nodes outside a PreFilter's subset were not asked about and have the common status.
            rejected = sorted(set(names) - set(feasible))
        return {name: shown_status(statuses.status_of(name), signed=True) for name in rejected}


class WatchedAlgorithm(Algorithm):
    """The host's own, which also writes down what it found; between its steps it asks each plugin alone."""

    def __init__(self, watched: Algorithm, *, alone: bool) -> None:
        super().__init__(watched.framework, watched.chooser, watched.percentage)
        self._alone = alone
        self.seen = Seen()

    async def find_feasible(self, cycle: Cycle, search: SearchStart) -> Status:
        """As the host does it."""
        seen = self.seen
        seen.nodes = cycle.nodes
        if self._alone:
            await self._ask_alone(cycle)
        other = _another(cycle)
        seen.framework = await self.framework.run_pre_filter(other)
        found = await super().find_feasible(cycle, search)
        seen.feasible = cycle.feasible.tolist()
        if seen.framework.status.is_success:
            seen.combined, seen.of_search = cycle.statuses, True
            if cycle.feasible.tolist() == [cycle.nodes.position(cycle.pod.nominated_node)]:
                # The search ended at the nominated node; the record has the verdicts on all of them.
                seen.combined, seen.of_search = NodeStatuses(cycle.nodes), False
                rows = np.arange(len(cycle.nodes))
                await self.framework.run_filter(other, seen.combined, rows, cycle.nominated)
        self.framework.end_cycle(other, CycleEnd.ABORTED)
        return found

    async def prioritize(self, cycle: Cycle) -> ScheduleResult | Status:
        """As the host does it. A single feasible node is not scored then, and is scored for the record: in
        records a score that fails ends the attempt, however many nodes are left.
        """
        result = await super().prioritize(cycle)
        if isinstance(result, Status):
            return result
        scores = result.scores or await self.framework.run_score(cycle, cycle.nodes.take(cycle.feasible))
        if isinstance(scores, Status):
            return scores
        self.seen.chosen, self.seen.scores = result, scores
        return result

    async def _ask_alone(self, cycle: Cycle) -> None:
        """Every PreFilter plugin by itself, and every Filter plugin after its own PreFilter, on all nodes."""
        pre_filters = {client.name: client for client in self.framework.plugins_at(ExtensionPoint.PRE_FILTER)}
        filters = {client.name: client for client in self.framework.plugins_at(ExtensionPoint.FILTER)}
        for name in dict.fromkeys([*pre_filters, *filters]):
            context = _another(cycle)
            if name in pre_filters and not await self._pre_filter(pre_filters[name], context, cycle.nodes):
                continue
            if name in filters:
                verdicts = await filters[name].filter(context, cycle.nodes)
                self.seen.filter[name] = {
                    node: shown_status(status, signed=False)
                    for node, status in zip(cycle.nodes.names, verdicts.to_list(), strict=True)
                    if not status.is_success
                }

    async def _pre_filter(self, client: PluginClient, context: Cycle, nodes: NodeTable) -> bool:
        answer = await client.pre_filter(context, nodes)
        shown = shown_status(answer.status, signed=False)
        if answer.status.is_success and answer.eligible is not None:
            shown["nodeNames"] = sorted(answer.eligible)
        self.seen.pre_filter[client.name] = shown
        return answer.status.is_success


def _another(cycle: Cycle) -> Cycle:
    """Return a cycle beside this one: same pod, same snapshot, nothing remembered."""
    return Cycle(
        uuid.uuid4().hex,
        cycle.pod,
        cycle.profile,
        nodes=cycle.nodes,
        version=cycle.version,
        budget_s=cycle.budget_s,
    )


def shown_status(status: Status, *, signed: bool) -> Json:
    """One verdict; `signed`: with the plugin that gave it."""
    shown: Json = {"code": status.code.kube_name}
    if signed and status.plugin:
        shown["plugin"] = status.plugin
    if status.code is Code.ERROR:
        shown["error"] = status.message
    elif status.reasons:
        shown["reasons"] = sorted(status.reasons)
    return shown


def _shown_scores(table: ScoreTable, brief: bool) -> Json:
    names = table.nodes.names
    order = sorted(range(len(names)), key=names.__getitem__)
    result: Json = {
        "total": [int(table.total[row]) for row in order],
        "skippedScorePlugins": sorted(table.skipped),
    }
    if not brief:
        result["scores"] = {
            one.plugin: {
                "weight": one.weight,
                "raw": [int(one.raw[row]) for row in order],
                "normalized": [int(one.normalized[row]) for row in order],
            }
            for one in table.plugins
        }
    return result
