"""PreScore, Score and NormalizeScore over the feasible nodes -> one total per node.

Called by `answers`. Served plugins are called concurrently, while in-process plugins run one after the other.
Answers count in the configured order, and the first error in that order ends the cycle.
Source: kube-scheduler `framework/runtime/framework.go` (RunScorePlugins), v1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Self, TypeVar

import numpy as np
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable

from berth_host.attempt.cycle import Cycle
from berth_host.framework.score_table import PluginScores, Scores, ScoreTable, WeightedPlugin
from berth_host.metrics.series import instant_s
from berth_host.rpc.client import PluginClient
from berth_host.rpc.scores import ScoreOutcome
from berth_host.rpc.served.answer_wait import HAS_OTHER_WORK

T = TypeVar("T")


async def score_nodes(
    pre_score: tuple[PluginClient, ...],
    score: tuple[WeightedPlugin, ...],
    cycle: Cycle,
    nodes: NodeTable,
) -> ScoreTable | Status:
    """Score all rows of `nodes` by every plugin. A returned Status is an error that ends the cycle."""
    for client, status in zip(pre_score, await pre_score_answers(pre_score, cycle, nodes), strict=False):
        failed = note_pre_score(client, status, cycle)
        if failed is not None:
            cycle.pre_scored_s = instant_s()
            return failed
    cycle.pre_scored_s = instant_s()
    roles = ScoreRoles.of(score, cycle, ())
    answers = await ask_scores(
        roles.asked,
        lambda client: client.sends_score(cycle, nodes),
        lambda client: client.score(cycle, nodes),
    )
    table = ScoreTable(nodes, np.zeros(len(nodes), dtype=np.int64))
    outcomes = {item.client.name: answer for item, answer in zip(roles.asked, answers, strict=True)}
    return put_together(table, roles, {}, outcomes)


def put_together(
    table: ScoreTable,
    roles: ScoreRoles,
    shared: Mapping[str, PluginScores],
    outcomes: Mapping[str, ScoreOutcome],
) -> ScoreTable | Status:
    """Fill in the table in the configured order; return the first error in that order, which ends the cycle.

    `shared`: scores that the total already includes.
    """
    for plugin in roles.score:
        name = plugin.client.name
        scores = shared.get(name)
        if scores is not None:
            table.plugins.append(scores)
        elif name in roles.skip_score:
            table.skipped.append(name)
        elif name not in outcomes:
            # A plugin without concern, and without a PreScore to skip: all its scores are equal.
            zeros = _zeros(len(table.nodes))
            table.plugins.append(PluginScores(name, plugin.weight, zeros, zeros))
        elif outcomes[name].skipped:
            table.skipped.append(name)
        elif not outcomes[name].status.is_success:
            return outcomes[name].status
        else:
            outcome = outcomes[name]
            table.plugins.append(PluginScores(name, plugin.weight, outcome.raw, outcome.normalized))
            table.add(outcome.normalized if plugin.weight == 1 else outcome.normalized * plugin.weight)
    return table


def in_configured_order(
    roles: ScoreRoles, shared: Mapping[str, PluginScores], count: int
) -> list[PluginScores]:
    """Return the scores of `count` nodes by plugin, if `shared` has those of every plugin that is asked."""
    zeros = _zeros(count)
    return [
        shared.get(plugin.client.name) or PluginScores(plugin.client.name, plugin.weight, zeros, zeros)
        for plugin in roles.score
        if plugin.client.name not in roles.skip_score
    ]


@lru_cache(maxsize=4)
def _zeros(count: int) -> Scores:
    zeros = np.zeros(count, dtype=np.int64)
    zeros.flags.writeable = False
    return zeros


def note_pre_score(client: PluginClient, status: Status, cycle: Cycle) -> Status | None:
    """Note in the cycle whether the plugin skips Score, and the reasons that it gives without an error.

    A returned Status is an error that ends the cycle.
    """
    if status.code is Code.SKIP:
        cycle.skip_score.add(client.name)
    elif not status.is_success:
        return Status.error(f'running PreScore plugin "{client.name}": {status.message}')
    if status.reasons:
        cycle.account.remark(client.name, status.message)
        client.stats.remarks += 1
    return None


async def pre_score_answers(clients: Sequence[PluginClient], cycle: Cycle, nodes: NodeTable) -> list[Status]:
    """Run PreScore; return the statuses. Statuses after an error of an in-process plugin may be missing."""
    early = {
        client.name
        for client in clients
        if client.sends_score(cycle, nodes) and not client.descriptor.reads_shared
    }
    async with _Early[Status]() as tasks:
        if early:
            await tasks.send((c.name, c.pre_score(cycle, nodes)) for c in clients if c.name in early)
        statuses: dict[str, Status] = {}
        for i, client in enumerate(clients):
            if client.name in early:
                continue
            if early and client.descriptor.reads_shared:
                # Plugins read the state that earlier plugins published at PreScore.
                await tasks.settled(other.name for other in clients[:i])
            status = statuses[client.name] = await client.pre_score(cycle, nodes)
            if not status.is_success and status.code is not Code.SKIP:
                clients = clients[: i + 1]
                break
        return [
            await tasks.answer(client.name) if client.name in early else statuses[client.name]
            for client in clients
        ]


async def ask_scores(
    plugins: Sequence[WeightedPlugin],
    sends: Callable[[PluginClient], bool],
    ask: Callable[[PluginClient], Coroutine[Any, Any, ScoreOutcome]],
) -> list[ScoreOutcome]:
    """Return the scores of each plugin, in order.

    `ask`: calls one plugin. `sends`: True if that call leaves the process.
    """
    clients = [plugin.client for plugin in plugins]
    early = {client.name for client in clients if sends(client)}
    if not early:
        return [await ask(client) for client in clients]
    async with _Early[ScoreOutcome]() as tasks:
        await tasks.send((c.name, ask(c)) for c in clients if c.name in early)
        here = {c.name: await ask(c) for c in clients if c.name not in early}
        return [
            await tasks.answer(client.name) if client.name in early else here[client.name]
            for client in clients
        ]


class _Early(Generic[T]):
    """Calls under way, by plugin. The end of the block cancels calls that are still under way."""

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
        """Start the calls, and return when their requests are sent, so that later work runs beside them."""
        loop = asyncio.get_running_loop()
        context = copy_context()
        context.run(HAS_OTHER_WORK.set, True)
        for plugin, question in questions:
            self._tasks[plugin] = loop.create_task(question, context=context.copy())
        # These tasks start in the next turn of the loop, and the tasks of gRPC, which send, in the turn after
        # it.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def settled(self, plugins: Iterable[str]) -> None:
        """Wait until the calls to `plugins` have been answered or have failed."""
        waiting = [self._tasks[plugin] for plugin in plugins if plugin in self._tasks]
        if waiting:
            await asyncio.wait(waiting)

    async def answer(self, plugin: str) -> T:
        """Return the answer of a plugin. Raises the exception of the call."""
        return await self._tasks[plugin]


@dataclass(frozen=True, slots=True, eq=False)
class ScoreRoles:
    """The roles of the Score plugins `score` (in configured order) after PreScore.

    `skip`: plugins that skip the cycle. `skip_score`: plugins that skip Score. `asked`: plugins that score.
    Of these, `sharing` share their scores with equal pods, and `others` do not.
    """

    score: tuple[WeightedPlugin, ...]
    skip: frozenset[str]
    skip_score: frozenset[str]
    asked: tuple[WeightedPlugin, ...]
    sharing: tuple[WeightedPlugin, ...]
    others: tuple[WeightedPlugin, ...]

    @classmethod
    def of(cls, score: tuple[WeightedPlugin, ...], cycle: Cycle, by_row: Collection[str]) -> ScoreRoles:
        """Return the roles in this cycle. `by_row`: the plugins that share scores."""
        skip, skip_score = cycle.skip, frozenset(cycle.skip_score)
        asked = tuple(plugin for plugin in score if plugin.client.name not in skip | skip_score)
        return cls(
            score,
            skip,
            skip_score,
            asked,
            tuple(plugin for plugin in asked if plugin.client.name in by_row),
            tuple(plugin for plugin in asked if plugin.client.name not in by_row),
        )

    def fit(self, score: tuple[WeightedPlugin, ...], cycle: Cycle) -> bool:
        """Return True if these roles are also the roles in `cycle`."""
        return self.score is score and self.skip == cycle.skip and self.skip_score == cycle.skip_score
