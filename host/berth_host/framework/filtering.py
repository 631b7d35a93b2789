"""Filter over a table: plugins in configured order, each asked about the rows that are left.

Called by `Framework`. A plugin is asked once the plugins before it have answered, in this process or in
another: it sees no row that one of them rejected, and is not asked at all when no row is left. A verdict on
more rows would need a rule for errors, counts and the plugin's own memory about rows that do not count.
Source: kube-scheduler `framework/runtime/framework.go` (RunFilterPlugins,
RunFilterPluginsWithNominatedPods), v1.36; kube-scheduler asks node by node, which gives the same verdicts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache

import numpy as np
from berth_sdk.extension_points import PodSensitivity
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import Code, Status, Verdicts
from berth_sdk.tables import NodeTable, PodChanges
from numpy.typing import NDArray

from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NominatedPods
from berth_host.rpc.client import PluginClient
from berth_host.rpc.cycle import Cycle

Rows = NDArray[np.intp]


async def filter_rows(
    clients: Sequence[PluginClient],
    cycle: Cycle,
    statuses: NodeStatuses,
    rows: Rows,
) -> Rows:
    """Ask all plugins about `rows` (positions in `statuses.table`); the rows that passed, in order.

    Rejections and errors are left in `statuses`.
    """
    for client in clients:
        if not len(rows):
            break
        verdicts = await client.filter(cycle, candidates(statuses, rows))
        rows = passed_by(client, verdicts, statuses, rows)
    return rows


def filter_error(statuses: NodeStatuses, rows: Rows) -> Status | None:
    """The error that ends the cycle: that of the first row, in the order of `rows`, that has one."""
    broken = [group for group, status in enumerate(statuses.statuses) if group and not status.is_rejected]
    if not broken:
        return None
    groups = statuses.groups[rows]
    hits = np.flatnonzero(np.isin(groups, broken))
    return statuses.statuses[int(groups[hits[0]])] if len(hits) else None


async def nominated_pass(
    clients: Sequence[PluginClient],
    cycle: Cycle,
    statuses: NodeStatuses,
    rows: Rows,
    nominated: NominatedPods,
) -> Rows:
    """The first of two passes: plugins must accept a row with the pods nominated to it as well as without.

    Returns `rows` without the rejected ones; the rest are still to be judged as they are.
    """
    if not nominated or not clients:
        return rows
    crowded = rows[nominated.rows[rows]]
    if not len(crowded):
        return rows

    def ask(client: PluginClient, left: Rows) -> Awaitable[Verdicts]:
        # A plugin that other pods cannot influence gives its ordinary verdict.
        if client.descriptor.pod_sensitivity is PodSensitivity.NONE:
            return client.filter(cycle, candidates(statuses, left))
        come = nominated.added(left)
        asked = Scenarios.of_changes(cycle.nodes.take(left), PodChanges.none(len(left)), come)
        return client.filter_scenarios(cycle, asked)

    passed = await ask_in_order(clients, statuses, crowded, ask)
    if len(passed) == len(crowded):
        return rows
    failed = np.zeros(len(statuses.table), dtype=np.bool_)
    failed[crowded] = True
    failed[passed] = False
    return rows[~failed[rows]]


async def ask_in_order(
    clients: Sequence[PluginClient],
    statuses: NodeStatuses,
    rows: Rows,
    ask: Callable[[PluginClient, Rows], Awaitable[Verdicts]],
) -> Rows:
    """Put one question to plugin after plugin about the rows that are left; the rows that all passed."""
    for client in clients:
        if not len(rows):
            break
        rows = passed_by(client, await ask(client, rows), statuses, rows)
    return rows


def passed_by(client: PluginClient, verdicts: Verdicts, statuses: NodeStatuses, rows: Rows) -> Rows:
    """Return the rows of `rows` that pass; write the plugin's rejections of the others into `statuses`."""
    if verdicts.all_passed:
        return rows
    statuses.reject(rows, Verdicts(verdicts.groups, _signed(client, verdicts)), "")
    return rows[verdicts.passed]


def _signed(client: PluginClient, verdicts: Verdicts) -> tuple[Status, ...]:
    return tuple(
        status if status.is_success else _filter_status(client.name, status) for status in verdicts.statuses
    )


@lru_cache(maxsize=1024)
def _filter_status(plugin: str, status: Status) -> Status:
    if status.is_rejected:
        return status.with_plugin(plugin)
    # Wait and Skip have no meaning at Filter: kube-scheduler turns them into errors as well.
    return Status(Code.ERROR, (f'running "{plugin}" filter plugin: {status.message}',), plugin)


def candidates(statuses: NodeStatuses, rows: Rows) -> NodeTable:
    """Some rows of the table, as plugins are asked about them."""
    return statuses.table if len(rows) == len(statuses.table) else statuses.table.take(rows)


def all_rows(table: NodeTable) -> Rows:
    """The positions of all rows of a table; read-only."""
    return _positions(len(table))


@lru_cache(maxsize=4)
def _positions(count: int) -> Rows:
    positions = np.arange(count, dtype=np.intp)
    positions.flags.writeable = False
    return positions
