"""Questions that a plugin may ask the host during a call to it.

In PostFilter the others' filters, preemption and scores; in Reserve and Permit scores alone.

Made by `parts`; the same for plugins in process (`Backend`) and elsewhere (`handle_server`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.results import NodeScores, PluginNodeScores, PostFilterResult
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import SUCCESS, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.app.late_parts import LateParts
from berth_host.errors.plugins import CycleRestartError
from berth_host.framework.what_if import filter_scenarios
from berth_host.handle.backend import NoOpenCallError, QuestionUnderWayError, UnknownNodesError
from berth_host.scheduler.attempt import Attempt
from berth_host.scheduler.preemption.evaluator import Evaluator, SearchLimits

POST_FILTER: Final = ExtensionPoint.POST_FILTER
SCORED_FROM: Final = (POST_FILTER, ExtensionPoint.RESERVE, ExtensionPoint.PERMIT)


class OpenCalls:
    """`handle.service.FilterRunner`, and the preemption and the scores of `handle.HandleBackend`."""

    def __init__(self, evaluator: Evaluator, later: LateParts) -> None:
        self._evaluator = evaluator
        self._later = later
        self._scoring: set[str] = set()
        """Plugins for which scores are being run."""

    async def run_filters(self, plugin: str, cycle_id: str, scenarios: Sequence[Scenario]) -> list[Status]:
        """Per scenario SUCCESS or the first rejection of the other plugins.

        Raises NoOpenCallError.
        """
        attempt = self._attempt(plugin, cycle_id, POST_FILTER)
        if not scenarios:
            return []
        cycle = attempt.cycle
        clients = [client for client in attempt.framework.filters_of(cycle) if client.name != plugin]
        found = await filter_scenarios(clients, cycle, Scenarios(cycle.nodes, scenarios))
        return [found.statuses[group] if group else SUCCESS for group in found.groups.tolist()]

    async def evaluate_preemption(
        self, plugin: str, cycle_id: str, percentage: int, absolute: int
    ) -> PostFilterResult:
        """The host's own preemption. Raises NoOpenCallError."""
        attempt = self._attempt(plugin, cycle_id, POST_FILTER)
        limits = SearchLimits(percentage, absolute) if percentage or absolute else None
        found = await self._evaluator.evaluate(attempt.framework, attempt.cycle, limits)
        return found.result()

    async def run_scores(self, plugin: str, cycle_id: str, node_names: Sequence[str]) -> NodeScores:
        """PreScore and Score over some nodes. Raises NoOpenCallError, QuestionUnderWayError and
        UnknownNodesError.
        """
        attempt = self._attempt(plugin, cycle_id, *SCORED_FROM)
        if self._scoring:
            # Two at once would write over each other's PreScore; and a Score that asks would wait for itself.
            raise QuestionUnderWayError(f"scores are being run for {', '.join(self._scoring)} already")
        if not node_names:
            return NodeScores(SUCCESS)
        nodes = attempt.cycle.nodes
        rows, back = np.unique(_rows(nodes, node_names), return_inverse=True)
        self._scoring.add(plugin)
        try:
            table = await attempt.framework.run_score_apart(attempt.cycle, nodes.take(rows))
        except CycleRestartError as err:
            # The cycle is in the middle of the plugin's own call, which has to end first.
            return NodeScores(Status.error(str(err)))
        finally:
            self._scoring.discard(plugin)
        # Plugins were asked meanwhile: their answers are about a cycle that may be over.
        self._attempt(plugin, cycle_id, *SCORED_FROM)
        if isinstance(table, Status):
            return NodeScores(table)
        plugins = tuple(
            PluginNodeScores(item.plugin, item.weight, item.normalized.take(back)) for item in table.plugins
        )
        return NodeScores(SUCCESS, tuple(node_names), table.total.take(back), plugins)

    def _attempt(self, plugin: str, cycle_id: str, *points: ExtensionPoint) -> Attempt:
        attempt = self._later.scheduler.in_cycle
        if attempt is not None and attempt.has_cycle:
            context = attempt.cycle.context
            if context.cycle_id == cycle_id and context.open_calls.get(plugin) in points:
                return attempt
        *others, last = [point.config_name[0].upper() + point.config_name[1:] for point in points]
        calls = f"{', '.join(others)} or {last}" if others else last
        raise NoOpenCallError(f"no {calls} of {plugin} is open in cycle {cycle_id}")


def _rows(nodes: NodeTable, names: Sequence[str]) -> NDArray[np.intp]:
    """Where the nodes stand. Raises UnknownNodesError."""
    rows = [nodes.position(name) for name in names]
    if None in rows:
        raise UnknownNodesError(f"node {names[rows.index(None)]!r} is not in the snapshot")
    return np.asarray(rows, dtype=np.intp)
