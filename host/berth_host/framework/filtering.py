"""PreFilter and Filter over a table: plugins in configured order, each called for the rows that are left.

Called by `Framework` and by both implementations of `Answers`. A plugin, in process or served, is called
after the plugins before it have answered. It gets no row that one of them rejected, and no call if no row is
left. Calls about more rows would need rules for errors, counts and state about rows that do not count.

`filter_scenarios` runs Filter for what-ifs: for the preemption evaluator, and for plugins through their
handle. Source: kube-scheduler `framework/runtime/framework.go` (RunPreFilterPlugins, RunFilterPlugins,
RunFilterPluginsWithNominatedPods), v1.36; kube-scheduler asks node by node, which gives the same verdicts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from berth_sdk.extension_points import PodSensitivity
from berth_sdk.results import PreFilterResult
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import SUCCESS, Code, Status, Verdicts
from berth_sdk.tables import NodeTable, PodChanges
from numpy.typing import NDArray

from berth_host.attempt.cycle import Cycle
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NominatedPods
from berth_host.model.pre_filter_outcome import PreFilterOutcome, go_list
from berth_host.rpc.client import PluginClient

Rows = NDArray[np.intp]


async def filter_rows(
    clients: Sequence[PluginClient],
    cycle: Cycle,
    statuses: NodeStatuses,
    rows: Rows,
) -> Rows:
    """Run all plugins over `rows` (positions in `statuses.table`); return the rows that passed, in order.

    Writes rejections and errors to `statuses`.
    """
    for client in clients:
        if not len(rows):
            break
        verdicts = await client.filter(cycle, candidates(statuses, rows))
        rows = passed_by(client, verdicts, statuses, rows)
    return rows


def filter_error(statuses: NodeStatuses, rows: Rows) -> Status | None:
    """Return the error that ends the cycle: the error of the first row with one, in the order of `rows`."""
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
    """Run the first of two passes of Filter: over the rows with nominated pods, with these pods added.

    Returns `rows` without the rejected rows. The second pass, without nominated pods, must follow.
    """
    if not nominated or not clients:
        return rows
    crowded = rows[nominated.rows[rows]]
    if not len(crowded):
        return rows

    def ask(client: PluginClient, left: Rows) -> Awaitable[Verdicts]:
        # The verdict of a plugin that other pods cannot influence is the same as without nominated pods.
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
    """Call `ask` for one plugin after the other with the rows that are left; return the rows that all
    passed.
    """
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
    """Return the table of `rows`, for the call of a plugin."""
    return statuses.table if len(rows) == len(statuses.table) else statuses.table.take(rows)


def all_rows(table: NodeTable) -> Rows:
    """Return the positions of all rows of a table; read-only."""
    return _positions(len(table))


@lru_cache(maxsize=4)
def _positions(count: int) -> Rows:
    positions = np.arange(count, dtype=np.intp)
    positions.flags.writeable = False
    return positions


_REJECTED: Final = (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
"""The codes by which PreFilter rejects a pod. Pending has no meaning at PreFilter and counts as an error."""


class PreFiltering:
    """The PreFilter of one cycle, which takes the plugins' answers in order until one ends PreFilter."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._skip_filter: set[str] = set()
        self._skip: set[str] = set()
        self._eligible: frozenset[str] | None = None
        self._narrowed: list[tuple[str, frozenset[str]]] = []
        self._rejections: list[Status] = []

    def take(
        self, client: PluginClient, answer: PreFilterResult, *, lasting: bool
    ) -> PreFilterOutcome | None:
        """Take the next plugin's answer; return the outcome if the answer ends PreFilter, else None.

        `lasting`: a Skip holds for the whole cycle.
        """
        status = answer.status
        if status.code is Code.SKIP:
            self._skip_filter.add(client.name)
            if lasting:
                self._skip.add(client.name)
        elif status.code in _REJECTED:
            self._rejections.append(status.with_plugin(client.name))
            # After UNSCHEDULABLE the other plugins still run: preemption needs the state that they write.
            if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return self.outcome()
        elif not status.is_success:
            text = f'running PreFilter plugin "{client.name}": {status.message}'
            return self._ended(PreFilterOutcome(Status(Code.ERROR, (text,), client.name)))
        elif answer.eligible is not None:
            self._narrowed.append((client.name, answer.eligible))
            eligible = answer.eligible if self._eligible is None else self._eligible & answer.eligible
            self._eligible = eligible
            if not eligible:
                nobody = Status.unresolvable(_nobody_left([plugin for plugin, _ in self._narrowed]))
                return self._ended(self._merged(nobody))
        return None

    def outcome(self) -> PreFilterOutcome:
        """Return the merged result of all answers."""
        return self._ended(self._merged(self._rejections[-1] if self._rejections else SUCCESS))

    def _merged(self, status: Status) -> PreFilterOutcome:
        return PreFilterOutcome(status, self._eligible, tuple(self._narrowed), tuple(self._rejections))

    def _ended(self, outcome: PreFilterOutcome) -> PreFilterOutcome:
        self._cycle.skip_filter = frozenset(self._skip_filter)
        self._cycle.skip = frozenset(self._skip)
        return outcome


def _nobody_left(restricting: Sequence[str]) -> str:
    if len(restricting) == 1:
        return f"node(s) didn't satisfy plugin {restricting[0]}"
    return f"node(s) didn't satisfy plugin(s) {go_list(restricting)} simultaneously"


def sensitive(clients: Sequence[PluginClient]) -> list[PluginClient]:
    """Return the plugins whose verdict other pods can change."""
    return [client for client in clients if client.descriptor.pod_sensitivity is not PodSensitivity.NONE]


async def filter_scenarios(
    clients: Sequence[PluginClient], cycle: Cycle, scenarios: Scenarios
) -> NodeStatuses:
    """Run Filter for what-ifs. Return one verdict per scenario, which names its plugin."""
    statuses = NodeStatuses(scenarios.nodes)

    async def ask(client: PluginClient, left: Rows) -> Verdicts:
        if client.descriptor.pod_sensitivity is PodSensitivity.NONE:
            return await _plain(client, cycle, scenarios.nodes.slots.take(left))
        asked = scenarios if len(left) == len(scenarios) else scenarios.take(left)
        return await client.filter_scenarios(cycle, asked)

    await ask_in_order(clients, statuses, np.arange(len(scenarios)), ask)
    return statuses


async def _plain(client: PluginClient, cycle: Cycle, slots: NDArray[np.intp]) -> Verdicts:
    """Return the verdicts of a plugin that other pods cannot influence, from one call about each node."""
    nodes = cycle.nodes
    if (slots[1:] > slots[:-1]).all():
        return await client.filter(cycle, nodes.take(nodes.slots.searchsorted(slots)))
    distinct, back = np.unique(slots, return_inverse=True)
    verdicts = await client.filter(cycle, nodes.take(nodes.slots.searchsorted(distinct)))
    return verdicts.take(back)
