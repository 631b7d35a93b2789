"""PreScore, Score and NormalizeScore over the feasible nodes -> one total per node.

Called by `Framework`. Remote plugins are asked at the same time, while in-process ones run one after the
other; answers count in the configured order, and the first error in that order ends the cycle.
Source: kube-scheduler `framework/runtime/framework.go` (RunScorePlugins), v1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Sequence
from functools import lru_cache
from typing import Any, Generic, Self, TypeVar

import numpy as np
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable

from berth_host.framework.cycle import Cycle
from berth_host.framework.score_table import PluginScores, Scores, ScoreTable, WeightedPlugin
from berth_host.rpc.client import PluginClient, ScoreOutcome

T = TypeVar("T")


async def score_nodes(
    pre_score: Sequence[PluginClient],
    score: tuple[WeightedPlugin, ...],
    cycle: Cycle,
    nodes: NodeTable,
    by_row: Collection[str] = (),
) -> ScoreTable | Status:
    """Score all rows of `nodes`; a Status is an error that ends the cycle.

    `by_row`: the plugins whose answers equal pods share (`EqualPods`).
    """
    failed = await _run_pre_score(pre_score, cycle, nodes, by_row)
    if failed is not None:
        return failed
    asked = [
        plugin
        for plugin in score
        if plugin.client.name not in cycle.skip_score and plugin.client.name not in cycle.skip
    ]
    known = cycle.known
    table = None
    if known is not None:
        sharing = tuple([plugin for plugin in asked if plugin.client.name in by_row])
        # What fails there is asked again below, where every failure has its place and its policy.
        if sharing and await known.scores.ask(sharing, cycle, nodes) is None and known.scores.is_in_range:
            table = known.scores.read(nodes)
    if table is None:
        table = ScoreTable(nodes, np.zeros(len(nodes), dtype=np.int64))
    if len(table.plugins) == len(score):
        return table
    return await _add_others(table, score, asked, cycle)


async def _add_others(
    table: ScoreTable, score: Sequence[WeightedPlugin], asked: Sequence[WeightedPlugin], cycle: Cycle
) -> ScoreTable | Status:
    """Ask those who are not in `table` yet, and put all into the configured order."""
    nodes = table.nodes
    shared = {item.plugin: item for item in table.plugins}
    rest = [plugin for plugin in asked if plugin.client.name not in shared]
    outcomes = {}
    if rest:
        table.leaders = None
        outcomes = dict(zip((item.client.name for item in rest), await _ask(rest, cycle, nodes), strict=True))
    table.plugins = []
    for plugin in score:
        name = plugin.client.name
        if name in shared:
            table.plugins.append(shared[name])
            continue
        if name in cycle.skip and name not in cycle.skip_score:
            # None of its business, and it has no PreScore to say so: every node is worth as much to it.
            zeros = _zeros(len(nodes))
            table.plugins.append(PluginScores(name, plugin.weight, zeros, zeros))
            continue
        outcome = outcomes.get(name)
        if outcome is None or outcome.skipped:
            table.skipped.append(name)
            continue
        if not outcome.status.is_success:
            return outcome.status
        table.plugins.append(PluginScores(name, plugin.weight, outcome.raw, outcome.normalized))
        table.total += outcome.normalized * plugin.weight
    return table


@lru_cache(maxsize=4)
def _zeros(count: int) -> Scores:
    zeros = np.zeros(count, dtype=np.int64)
    zeros.flags.writeable = False
    return zeros


async def _run_pre_score(
    clients: Sequence[PluginClient], cycle: Cycle, nodes: NodeTable, by_row: Collection[str]
) -> Status | None:
    """Note who skips; a Status is an error that ends the cycle."""
    known = cycle.known
    if known is not None:
        for client in clients:
            status = known.pre_scores.get(client.name)
            if status is not None and status.code is Code.SKIP:
                cycle.skip_score.add(client.name)
        clients = [client for client in clients if client.name not in known.pre_scores]
    if not clients:
        return None
    for client, status in zip(clients, await _pre_score(clients, cycle, nodes), strict=False):
        if known is not None:
            known.keep_pre_score(client, cycle, status, by_row=client.name in by_row)
        if status.code is Code.SKIP:
            cycle.skip_score.add(client.name)
        elif not status.is_success:
            return Status.error(f'running PreScore plugin "{client.name}": {status.message}')
    return None


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
