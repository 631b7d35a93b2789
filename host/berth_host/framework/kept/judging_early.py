"""Work of in-process plugins during calls of Filter to served plugins.

Nearly all verdicts are kept from equal pods; only rows that moved are left. So a served plugin is asked at
once, also about these rows, and its answer about a row that an in-process plugin rejects is not used. This
holds for served plugins that declare `depends_on`: their answer about a row does not depend on the other rows
of the call. A served plugin without the declaration is asked after the verdicts. Several served plugins are
asked one after the other (`filtering`). Called by `keep_answers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from berth_sdk.status import Verdicts

from berth_host.attempt.cycle import Cycle
from berth_host.framework.filtering import Rows, candidates
from berth_host.framework.kept.merged_answers import AnswersAboutNodes
from berth_host.framework.kept.merged_verdicts import ask_rows
from berth_host.framework.score_table import WeightedPlugin
from berth_host.model.node_statuses import NodeStatuses
from berth_host.rpc.client import PluginClient

Clients = Sequence[PluginClient]


async def judge_early(
    judges: Clients,
    clients: Clients,
    pre_score: tuple[PluginClient, ...],
    known: AnswersAboutNodes,
    cycle: Cycle,
    statuses: NodeStatuses,
    rows: Rows,
) -> Rows:
    """Return the rows of `rows` (positions in `statuses.table`) that `judges` and `clients` pass.

    `judges`: the first plugins, which share verdicts with equal pods; empty if they were asked before.
    `clients`: the other plugins, some of them served. `pre_score`: the plugins that may decide which plugins
    score. Rejections and errors are written to `statuses`.
    """
    scorers = _scorers(known, clients, pre_score, cycle)
    expected = rows
    elsewhere = statuses
    if judges:
        likely = None
        whole = len(rows) == len(statuses.table) and statuses.is_empty
        if whole and all(_may_be_asked_more(client) for client in clients):
            likely = known.verdicts.expected(judges, statuses.table)
        if likely is None:
            expected = rows = await known.verdicts.ask(judges, cycle, statuses, rows)
            judges = ()
        else:
            expected = likely
            elsewhere = NodeStatuses(statuses.table)
    if not (judges or scorers):
        return await ask_rows(clients, cycle, statuses, rows)
    here = Meanwhile(lambda: _here(known, judges, scorers, cycle, statuses, rows))
    try:
        passed = await ask_rows(clients, cycle, elsewhere, expected)
        left = await here.result()
    finally:
        await here.end()
    return _of_both(statuses, left, elsewhere) if judges else passed


class Meanwhile:
    """Work that begins when the task waits for the first time; it needs no task of its own if that never is.

    Then the loop need not turn: the answers may have come without a turn (`AnswerWait`).
    """

    __slots__ = ("_start", "_task", "_work")

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Rows]]) -> None:
        self._work = work
        self._task: asyncio.Task[Rows] | None = None
        self._start = asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def result(self) -> Rows:
        """Return the result of the work."""
        if self._task is not None:
            return await self._task
        self._start.cancel()
        return await self._work()

    async def end(self) -> None:
        """Cancel the work if it is not done, and wait until it has ended."""
        self._start.cancel()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})


def _may_be_asked_more(client: PluginClient) -> bool:
    """Return True for a served plugin whose answer about a row depends only on what it declares."""
    return client.is_served and client.descriptor.depends_on is not None


async def _here(
    known: AnswersAboutNodes,
    judges: Clients,
    scorers: tuple[WeightedPlugin, ...],
    cycle: Cycle,
    statuses: NodeStatuses,
    rows: Rows,
) -> Rows:
    """Return the rows that `judges` pass, after scoring these rows."""
    if judges:
        rows = await known.verdicts.ask(judges, cycle, statuses, rows)
    if scorers and len(rows):
        await known.scores.ask_early(scorers, cycle, candidates(statuses, rows))
    return rows


def _of_both(statuses: NodeStatuses, left: Rows, elsewhere: NodeStatuses) -> Rows:
    """Return the rows of `left`, which passed in process, that served plugins passed too."""
    if elsewhere.is_empty:
        return left
    verdicts = Verdicts(elsewhere.groups.take(left), tuple(elsewhere.statuses))
    if verdicts.all_passed:
        return left
    statuses.reject(left, verdicts, "")
    return left[verdicts.passed]


def _scorers(
    known: AnswersAboutNodes, clients: Clients, pre_score: tuple[PluginClient, ...], cycle: Cycle
) -> tuple[WeightedPlugin, ...]:
    """Return the in-process plugins that share scores with equal pods; none if PreScore has to be asked.

    A plugin among `clients` judges a node before it scores the node.
    """
    roles = known.roles
    if (
        roles is None
        or roles.skip != cycle.skip
        or known.pre_scored is None
        or known.pre_scored.clients is not pre_score
        or known.pre_scored.rest
        or any(plugin.client in clients for plugin in roles.sharing)
    ):
        return ()
    return roles.sharing
