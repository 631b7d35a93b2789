"""PreScore, Score and NormalizeScore over the feasible nodes -> one total per node.

Called by `Framework`. Remote plugins are asked at the same time, while in-process ones run.
Source: kube-scheduler `framework/runtime/framework.go` (RunScorePlugins), v1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.framework.cycle import Cycle
from berth_host.rpc.client import PluginClient, ScoreOutcome

Scores = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WeightedPlugin:
    """A plugin at a point; the weight counts at Score alone."""

    client: PluginClient
    weight: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class PluginScores:
    """int64[n] each: what Score said, and after normalisation, before the weight."""

    plugin: str
    weight: int
    raw: Scores
    normalized: Scores


@dataclass(slots=True, eq=False)
class ScoreTable:
    """Scores of the n rows of `nodes`. `total` is the sum of normalized * weight."""

    nodes: NodeTable
    total: Scores
    plugins: list[PluginScores] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def best(self) -> NDArray[np.intp]:
        """The rows with the highest total, ascending: the tie set."""
        return np.flatnonzero(self.total == self.total.max())

    def top(self, count: int) -> NDArray[np.intp]:
        """`count` rows with the highest totals, or all if there are fewer; ascending."""
        best = self.best()
        if len(best) >= count:
            return best[:count]
        count = min(count, len(self.total))
        return np.sort(np.argpartition(self.total, -count)[-count:])


async def score_nodes(
    pre_score: Sequence[PluginClient], score: Sequence[WeightedPlugin], cycle: Cycle, nodes: NodeTable
) -> ScoreTable | Status:
    """Score all rows of `nodes`; a Status is an error that ends the cycle."""
    for client in pre_score:
        status = await client.pre_score(cycle.context, nodes)
        if status.code is Code.SKIP:
            cycle.skip_score.add(client.name)
        elif not status.is_success:
            return Status.error(f'running PreScore plugin "{client.name}": {status.message}')
    table = ScoreTable(nodes, np.zeros(len(nodes), dtype=np.int64))
    asked = []
    for plugin in score:
        if plugin.client.name in cycle.skip_score:
            table.skipped.append(plugin.client.name)
        else:
            asked.append(plugin)
    for plugin, outcome in zip(asked, await _ask(asked, cycle, nodes), strict=True):
        if not outcome.status.is_success:
            return outcome.status
        if outcome.skipped:
            table.skipped.append(plugin.client.name)
            continue
        table.plugins.append(PluginScores(plugin.client.name, plugin.weight, outcome.raw, outcome.normalized))
        weight = plugin.weight
        table.total += outcome.normalized if weight == 1 else outcome.normalized * weight
    return table


async def _ask(plugins: Sequence[WeightedPlugin], cycle: Cycle, nodes: NodeTable) -> list[ScoreOutcome]:
    if not any(plugin.client.is_remote for plugin in plugins):
        return [await plugin.client.score(cycle.context, nodes) for plugin in plugins]
    remote = {
        plugin.client.name: asyncio.ensure_future(plugin.client.score(cycle.context, nodes))
        for plugin in plugins
        if plugin.client.is_remote
    }
    try:
        return [
            await remote[plugin.client.name]
            if plugin.client.name in remote
            else await plugin.client.score(cycle.context, nodes)
            for plugin in plugins
        ]
    finally:
        for task in remote.values():
            task.cancel()
