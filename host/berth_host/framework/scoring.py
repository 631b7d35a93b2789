"""PreScore, Score and NormalizeScore over the feasible nodes -> one total per node.

Called by `Framework`. Remote plugins are asked at the same time, while in-process ones run one after the
other; answers count in the configured order, and the first error in that order ends the cycle.
Source: kube-scheduler `framework/runtime/framework.go` (RunScorePlugins), v1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

import numpy as np
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.framework.cycle import Cycle
from berth_host.rpc.client import PluginClient, ScoreOutcome

T = TypeVar("T")
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
    _best: NDArray[np.intp] | None = None

    def best(self) -> NDArray[np.intp]:
        """The rows with the highest total, ascending: the tie set. Asked when `total` is complete."""
        if self._best is None:
            self._best = self._highest()
        return self._best

    def _highest(self) -> NDArray[np.intp]:
        return np.equal(self.total, np.maximum.reduce(self.total)).nonzero()[0]

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
    for client, status in zip(pre_score, await _pre_score(pre_score, cycle, nodes), strict=False):
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


async def _pre_score(clients: Sequence[PluginClient], cycle: Cycle, nodes: NodeTable) -> list[Status]:
    """The statuses; those behind an error in process may be missing."""
    context = cycle.context
    early = {
        client.name
        for client in clients
        if client.asks_elsewhere(context, nodes) and not client.descriptor.reads_shared
    }
    async with _Early[Status]() as tasks:
        if early:
            await tasks.send((c.name, c.pre_score(context, nodes)) for c in clients if c.name in early)
        statuses: dict[str, Status] = {}
        for i, client in enumerate(clients):
            if client.name in early:
                continue
            if early and client.descriptor.reads_shared:
                # What others publish in their PreScore is there for those behind them.
                await tasks.settled(other.name for other in clients[:i])
            status = statuses[client.name] = await client.pre_score(context, nodes)
            if not status.is_success and status.code is not Code.SKIP:
                clients = clients[: i + 1]
                break
        return [
            await tasks.answer(client.name) if client.name in early else statuses[client.name]
            for client in clients
        ]


async def _ask(plugins: Sequence[WeightedPlugin], cycle: Cycle, nodes: NodeTable) -> list[ScoreOutcome]:
    context = cycle.context
    clients = [plugin.client for plugin in plugins]
    early = {client.name for client in clients if client.asks_elsewhere(context, nodes)}
    if not early:
        return [await client.score(context, nodes) for client in clients]
    async with _Early[ScoreOutcome]() as tasks:
        await tasks.send((c.name, c.score(context, nodes)) for c in clients if c.name in early)
        here = {c.name: await c.score(context, nodes) for c in clients if c.name not in early}
        return [
            await tasks.answer(client.name) if client.name in early else here[client.name]
            for client in clients
        ]


class _Early(Generic[T]):
    """Questions on their way, by plugin. At the end of the block none is left: those whose answers nobody
    wants any more are cancelled.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[T]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._tasks:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def send(self, questions: Iterable[tuple[str, Coroutine[Any, Any, T]]]) -> None:
        """Ask. When this returns the requests have gone out: what runs here by then runs beside them."""
        loop = asyncio.get_running_loop()
        for plugin, question in questions:
            self._tasks[plugin] = loop.create_task(question)
        # These tasks start in the next turn of the loop, and gRPC's, which send, in the one after it.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def settled(self, plugins: Iterable[str]) -> None:
        """Wait until all of these that were asked have answered or failed."""
        waiting = [self._tasks[plugin] for plugin in plugins if plugin in self._tasks]
        if waiting:
            await asyncio.wait(waiting)

    async def answer(self, plugin: str) -> T:
        """The answer. Raises what the question raised."""
        return await self._tasks[plugin]
