"""The merged verdicts of Filter plugins that judge row by row, for equal pods.

One code per slot: 0 if all plugins pass the node, else the code of the first rejection in configured order.
Plugins are asked again about rows that moved. If a row's Node did not change, and all plugins passed the row,
only the plugins that read its pods are asked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from berth_sdk.extension_points import DependsOn
from berth_sdk.kept.known_slots import KnownSlots
from berth_sdk.kept.row_contents import MOST_ROWS, ContentAnswers, content_answers
from berth_sdk.kept.status_codes import StatusCodes
from berth_sdk.status import Verdicts
from berth_sdk.tables import NodeTable
from berth_sdk.tables.read_only import extended, read_only
from numpy.typing import NDArray

from berth_host.attempt.cycle import Cycle
from berth_host.framework.filtering import (
    Rows,
    all_rows,
    candidates,
    filter_rows,
    nominated_pass,
    passed_by,
)
from berth_host.metrics.series import instant_s
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NominatedPods
from berth_host.rpc.client import PluginClient

_MAX_STATUSES: Final = 4096
_MOST_MISSING: Final = 64
"""The most nodes without a verdict for `expected`; with more, a call about all of them comes first."""
QUICK_S: Final = 0.01
"""Seconds: a longer call to in-process plugins is not made while served plugins are awaited."""


@dataclass(frozen=True, slots=True, eq=False)
class _Together:
    """The last merged verdicts on all nodes, in the slots `rows`."""

    rows: NDArray[np.intp]
    groups: NDArray[np.int32]
    passed: Rows


class MergedVerdicts:
    """The verdicts by slot. `_known`: slots whose code holds. `_node_passed`: slots whose Node, unchanged
    since, passed.
    """

    def __init__(self) -> None:
        self._clients: tuple[PluginClient, ...] = ()
        self._about_pods: tuple[PluginClient, ...] = ()
        self._by_content: ContentAnswers[int] | None = None
        """The codes of `_about_pods`, by the columns that these plugins read; None: one of them declares
        none.
        """
        self._behind_nodes: frozenset[str] = frozenset()
        self._has_whole = False
        self._capacity = 0
        self._known = KnownSlots()
        self._node_passed: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._codes: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._seen = StatusCodes()
        self._outcome: _Together | None = None
        self._took_s = 0.0
        """The last question, however many rows it was about."""

    def clear(self) -> None:
        """Forget all verdicts."""
        self._known.clear()
        self._node_passed[:] = False

    def forget(self, moved: Collection[int], node_moved: Collection[int]) -> None:
        """Forget the slots that moved. `moved`: in any part. `node_moved`: in their Node object."""
        self._known.forget(moved)
        if node_moved:
            self._node_passed[within(node_moved, len(self._known))] = False

    def forget_about_all_nodes(self) -> None:
        """Forget the answers that depend on all Node objects, one of which has changed."""
        if self._has_whole:
            self.clear()

    async def ask(
        self, clients: Sequence[PluginClient], cycle: Cycle, statuses: NodeStatuses, rows: Rows
    ) -> Rows:
        """Return the rows of `rows` (positions in `statuses.table`, the whole snapshot) that all `clients`
        pass.

        Rejections and errors about the other rows are written to `statuses`.
        """
        nodes = statuses.table
        self._prepare(clients, nodes.columns.capacity)
        few = self._known.few_missing(nodes) if len(rows) == len(nodes) else None
        if few is None or (few and not self._recall(nodes, few)):
            missing = self._known.missing(nodes)
            if len(missing) and len(rows) < len(nodes):
                # A row rejected with the pods nominated to it need not be judged as it is.
                wanted = np.zeros(len(nodes), dtype=np.bool_)
                wanted[rows] = True
                missing = missing[wanted.take(missing)]
            if len(missing):
                await self._learn(cycle, nodes, missing)
        if len(self._seen.statuses) == 1:
            return rows
        outcome = self._put_together(nodes)
        if len(rows) == len(nodes) and statuses.is_empty:
            statuses.take_over(outcome.groups, self._seen)
            return outcome.passed
        codes = outcome.groups.take(rows)
        statuses.reject(rows, Verdicts(codes, tuple(self._seen.statuses)), "")
        return rows[np.equal(codes, 0)]

    def expected(self, clients: Sequence[PluginClient], nodes: NodeTable) -> Rows | None:
        """Return the rows of `nodes`, the whole snapshot, that `clients` may pass: rows that passed, and a
        few that moved.

        None if no row is known to pass, if more than a few moved, or if the last call to `clients` took so
        long that served plugins would miss their deadlines meanwhile.
        """
        self._prepare(clients, nodes.columns.capacity)
        if self._took_s > QUICK_S:
            return None
        missing = self._known.missing(nodes)
        if len(missing) > _MOST_MISSING:
            return None
        passed = all_rows(nodes) if len(self._seen) == 1 else self._put_together(nodes).passed
        if not len(missing):
            return passed if len(passed) else None
        rejected = self._codes.take(nodes.slots.take(missing)).nonzero()[0]
        if len(passed) + len(rejected) <= len(missing):
            return None
        if not len(rejected):
            return passed
        return np.sort(np.concatenate((passed, missing.take(rejected))))

    def has_asked(self, clients: Sequence[PluginClient]) -> bool:
        """Return True if the last call of `ask` was about these plugins."""
        return clients is self._clients

    async def ask_about(
        self, clients: Sequence[PluginClient], cycle: Cycle, statuses: NodeStatuses, rows: Rows
    ) -> Rows:
        """Do the same as `ask` for a few rows: plugins are asked about `rows` alone."""
        nodes = statuses.table
        self._prepare(clients, nodes.columns.capacity)
        slots = nodes.slots.take(rows)
        known = self._known.hold(slots)
        if np.count_nonzero(known) < len(known):
            await self._learn(cycle, nodes, rows[~known])
        codes = self._codes.take(slots)
        if not np.count_nonzero(codes):
            return rows
        statuses.reject(rows, Verdicts(codes, tuple(self._seen.statuses)), "")
        return rows[np.equal(codes, 0)]

    def _recall(self, nodes: NodeTable, slots: Sequence[int]) -> bool:
        """Give a few slots, whose Node passed, the verdicts on rows of equal content.

        Return False, and change nothing, if a plugin must be asked about one of them.
        """
        shared, passed = self._by_content, self._node_passed
        if shared is None:
            return False
        for slot in slots:
            if not passed[slot]:
                return False
        codes = shared.find(shared.numbers(nodes.columns, slots))
        if None in codes:
            return False
        for slot, code in zip(slots, codes, strict=True):
            if code is not None and self._codes.item(slot) != code:
                self._codes[slot], self._outcome = code, None
        self._known.learn_few(slots)
        self._took_s = 0.0
        return True

    async def _learn(self, cycle: Cycle, nodes: NodeTable, missing: Rows) -> None:
        """Ask about rows without a kept verdict."""
        started_s = instant_s()
        asked = nodes.take(missing)
        light = self._node_passed.take(asked.slots)
        light_count = np.count_nonzero(light)
        if light_count == len(light):
            await self._ask_about_pods(cycle, asked)
        elif not light_count:
            await self._ask(self._clients, cycle, asked)
        else:
            await self._ask(self._clients, cycle, nodes.take(missing[~light]))
            await self._ask_about_pods(cycle, nodes.take(missing[light]))
        self._took_s = instant_s() - started_s

    async def _ask_about_pods(self, cycle: Cycle, nodes: NodeTable) -> None:
        """Ask the plugins that read pods about `nodes`, whose Node passed. Rows with a content that these
        plugins have judged get the same verdict.
        """
        shared = self._by_content
        if shared is None or len(nodes) > MOST_ROWS:
            await self._ask(self._about_pods, cycle, nodes)
            return
        slots = nodes.slots
        numbers = shared.numbers(nodes.columns, slots.tolist())
        codes = shared.find(numbers)
        if None in codes:
            unknown = [at for at, code in enumerate(codes) if code is None]
            asked = nodes if len(unknown) == len(codes) else nodes.take(unknown)
            if await self._ask(self._about_pods, cycle, asked):
                learnt = self._codes.take(asked.slots).tolist()
                shared.keep([numbers[at] for at in unknown], learnt)
            if asked is nodes:
                return
            slots = slots.take([at for at, code in enumerate(codes) if code is not None])
        known = [code for code in codes if code is not None]
        if self._codes.take(slots).tolist() != known:
            self._codes[slots], self._outcome = known, None
        self._known.learn(slots, in_use=nodes.snapshot_size)

    def _put_together(self, nodes: NodeTable) -> _Together:
        """Return the verdicts on all rows; built again only if a verdict changed."""
        outcome = self._outcome
        if outcome is None or outcome.rows is not nodes.slots:
            groups = read_only(nodes.take_of(self._codes).copy())
            passed = np.flatnonzero(groups == 0)
            passed.flags.writeable = False
            outcome = self._outcome = _Together(nodes.slots, groups, passed)
        return outcome

    async def _ask(self, clients: Sequence[PluginClient], cycle: Cycle, nodes: NodeTable) -> bool:
        """Ask `clients` about `nodes`, some rows of the snapshot, and keep their answers. Return False for
        answers that are not kept.
        """
        found = NodeStatuses(nodes)
        slots = nodes.slots
        await ask_rows(clients, cycle, found, all_rows(nodes))
        sound = self._keep(clients, slots, found, None)
        if not sound:
            self._node_passed[slots] = False
        elif clients is self._clients:
            # A row rejected by a plugin behind the Node-only plugins has passed these.
            behind = [status.is_success or status.plugin in self._behind_nodes for status in found.statuses]
            self._node_passed[slots] = np.asarray(behind).take(found.groups)
        return sound

    def left_to_ask(
        self, clients: Sequence[PluginClient], slots: NDArray[np.intp]
    ) -> tuple[Sequence[PluginClient], NDArray[np.bool_]]:
        """Return (the `clients` that read pods; bool: slots whose Node the other clients pass)."""
        passed = np.zeros(len(slots), dtype=np.bool_)
        if tuple(clients) == self._clients:
            inside = slots < len(self._node_passed)
            passed[inside] = self._node_passed[slots[inside]]
        return self._about_pods, passed

    def _keep(
        self,
        clients: Sequence[PluginClient],
        slots: NDArray[np.intp],
        found: NodeStatuses,
        asked: Rows | None,
    ) -> bool:
        """Keep the answers of `clients` about `slots`, in the rows `asked` of `found` (None: all rows).

        Return False for errors and for answers of a failure policy, which are not kept.
        """
        # An error, or a policy's stand-in for it, is no answer about the row; the next pod asks again.
        sound = not [client for client in clients if client.is_failing]
        if not found.is_empty or len(self._seen) > 1:
            codes = np.asarray([self._seen.encode(status) for status in found.statuses], dtype=np.int32)
            new = codes.take(found.groups if asked is None else found.groups.take(asked))
            if self._codes.take(slots).tolist() != new.tolist():
                self._codes[slots] = new
                self._outcome = None
            sound = sound and all(one.is_success or one.is_rejected for one in found.statuses)
        if sound:
            self._known.learn(slots, in_use=found.table.snapshot_size)
        else:
            self._known.forget(slots.tolist())
        return sound

    def _prepare(self, clients: Sequence[PluginClient], capacity: int) -> None:
        changed = clients is not self._clients and tuple(clients) != self._clients
        if changed or len(self._seen.statuses) > _MAX_STATUSES:
            # PreFilter left other plugins in than the last time.
            self._clients = tuple(clients)
            self._about_pods = tuple(
                client for client in clients if client.descriptor.depends_on is DependsOn.ROW
            )
            last = max((i for i, one in enumerate(self._clients) if one not in self._about_pods), default=-1)
            self._behind_nodes = frozenset(client.name for client in self._clients[last + 1 :])
            self._has_whole = any(client.descriptor.depends_on is DependsOn.NODES for client in self._clients)
            self._by_content = content_answers(client.descriptor.reads for client in self._about_pods)
            self._seen = StatusCodes()
            self.clear()
            self._codes[:] = 0
            self._outcome = None
        if self._capacity < capacity:
            self._capacity = capacity
            self._known.grow(capacity)
            more = capacity - len(self._codes)
            self._node_passed = extended(self._node_passed, more)
            self._codes = extended(self._codes, more)


class NominatedVerdicts(MergedVerdicts):
    """The verdicts on nodes with their nominated pods: the first of the two passes of Filter.

    Plugins are asked again about nodes that moved, or that have other nominated pods than before. `_marks`
    (int64, by slot): identifies the nominated pods at the time of the verdict.
    """

    def __init__(self) -> None:
        super().__init__()
        self._marks: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    async def first_pass(
        self,
        clients: Sequence[PluginClient],
        cycle: Cycle,
        statuses: NodeStatuses,
        rows: Rows,
        nominated: NominatedPods,
        second: MergedVerdicts,
    ) -> Rows:
        """Do the same as `nominated_pass` for plugins that share verdicts. `second`: their verdicts without
        nominated pods.
        """
        crowded = rows[nominated.rows[rows]]
        if nominated.marks is None or not len(crowded):
            return await nominated_pass(clients, cycle, statuses, rows, nominated)
        nodes = statuses.table
        self._prepare(clients, nodes.columns.capacity)
        self._marks = extended(self._marks, len(self._known) - len(self._marks))
        slots, marks = nodes.slots.take(crowded), nominated.marks.take(crowded)
        stale = ~(self._known.hold(slots) & (self._marks.take(slots) == marks))
        if np.count_nonzero(stale):
            found, asked = NodeStatuses(nodes), crowded[stale]
            about_pods, light = second.left_to_ask(clients, slots[stale])
            for some, which in ((about_pods, light), (clients, ~light)):
                if np.count_nonzero(which):
                    rows_asked = asked[which]
                    await nominated_pass(some, cycle, found, rows_asked, nominated)
                    # Now: a later call that succeeds would hide the failure of this one.
                    self._keep(clients, nodes.slots.take(rows_asked), found, rows_asked)
            self._marks[slots[stale]] = marks[stale]
        codes = self._codes.take(slots)
        if not np.count_nonzero(codes):
            return rows
        statuses.reject(crowded, Verdicts(codes, tuple(self._seen.statuses)), "")
        failed = np.zeros(len(nodes), dtype=np.bool_)
        failed[crowded] = codes != 0
        return rows[~failed[rows]]


async def ask_rows(clients: Sequence[PluginClient], cycle: Cycle, statuses: NodeStatuses, rows: Rows) -> Rows:
    """Do the same as `filter_rows`, with the verdicts of served plugins that are kept one by one.

    A served plugin is then called only about nodes that moved in what the plugin itself reads.
    """
    kept = cycle.kept
    if kept is None:
        return await filter_rows(clients, cycle, statuses, rows)
    for client in clients:
        if not len(rows):
            break
        asked = candidates(statuses, rows)
        verdicts = await (
            kept.filter(client, cycle, asked) if client.is_served else client.filter(cycle, asked)
        )
        rows = passed_by(client, verdicts, statuses, rows)
    return rows


def within(slots: Collection[int], length: int) -> list[int]:
    """Return the slots below `length`. Slots that were added by a growth of the table have no kept answer."""
    return [slot for slot in slots if slot < length]
