"""The dry run's result per node, kept for equal preemptors while it holds. Filled and read by `evaluator`.

Results are shared if every Filter plugin that judges the pod is in process and judges row by row. Then a
what-if about a node depends only on the pod, the node, its pods and its nominated pods. If a plugin reads
more (affinity, spreading), nothing is shared. For an equal preemptor, a node is tried again only if the node,
one of its pods, or its nominated pods that count have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
from berth_sdk.extension_points import DependsOn
from berth_sdk.kept.follows import StaleSlots
from berth_sdk.kept.status_codes import StatusCodes
from berth_sdk.pod import Pod
from berth_sdk.tables.read_only import extended
from numpy.typing import NDArray

from berth_host.attempt.cycle import Cycle
from berth_host.framework.framework import Framework
from berth_host.framework.kept.merged_verdicts import within
from berth_host.model.node_statuses import NodeStatuses
from berth_host.preemption.budgets import Budget
from berth_host.preemption.selection import CRITERIA, Candidates
from berth_host.rpc.client import PluginClient

SPARE_PODS: Final = 4096
_MAX_STATUSES: Final = 4096


class Outcomes:
    """Results by slot. `known` (bool): the other columns hold the current result. `_codes` (int32): 0 if
    victims make room, else the reason. The criteria of `selection`. The victims: in `pods`, from `_starts`
    on.
    """

    def __init__(self, capacity: int) -> None:
        self.known: NDArray[np.bool_] = np.zeros(capacity, dtype=np.bool_)
        self._codes: NDArray[np.int32] = np.zeros(capacity, dtype=np.int32)
        self._starts: NDArray[np.intp] = np.zeros(capacity, dtype=np.intp)
        self._criteria: dict[str, NDArray[Any]] = {
            name: np.zeros(capacity, dtype=kind) for name, kind in CRITERIA.items()
        }
        self.pods: list[Pod] = []
        self._seen = StatusCodes()
        self._passing: list[NDArray[np.intp]] = []

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` slots."""
        more = capacity - len(self.known)
        if more > 0:
            self.known = extended(self.known, more)
            self._codes = extended(self._codes, more)
            self._starts = extended(self._starts, more)
            self._criteria = {name: extended(column, more) for name, column in self._criteria.items()}

    def begin(self) -> None:
        """Begin another preemptor: forget the results that hold for the last preemptor alone."""
        for slots in self._passing:
            self.known[slots] = False
        self._passing.clear()
        if len(self._seen) > _MAX_STATUSES:
            self.clear()
        if len(self.pods) > SPARE_PODS:
            live = self.known & (self._codes == 0)
            if len(self.pods) > SPARE_PODS + 2 * int(self._criteria["counts"][live].sum()):
                self._compact(np.flatnonzero(live))

    def clear(self) -> None:
        """Forget all outcomes."""
        self.known[:] = False
        self.pods = []
        self._seen = StatusCodes()

    def put(
        self, slots: NDArray[np.intp], found: Candidates, rows: NDArray[np.intp], statuses: NodeStatuses
    ) -> None:
        """Keep the results for `slots`: `found`, indexed by positions in `slots`, where it works, else
        the `statuses` of the same nodes, `rows` of its table. Errors hold for this preemptor alone.
        """
        groups = statuses.groups.take(rows)
        codes = np.zeros(len(statuses.statuses), dtype=np.int32)
        sound = np.ones(len(statuses.statuses), dtype=np.bool_)
        for group in np.flatnonzero(np.bincount(groups)).tolist():
            if group:
                codes[group] = self._seen.encode(statuses.statuses[group])
                sound[group] = statuses.statuses[group].is_rejected
        self._codes[slots] = codes.take(groups)
        self.known[slots] = True
        if not sound.all():
            self._passing.append(slots[~sound.take(groups)])
        at = slots[found.places]
        self._codes[at] = 0
        for name, column in self._criteria.items():
            column[at] = getattr(found, name)
        self._starts[at] = found.starts + len(self.pods)
        self.pods.extend(found.pods)

    def keep_for_now(self, slots: NDArray[np.intp]) -> None:
        """Mark the results for `slots` as holding for this preemptor alone."""
        self._passing.append(slots)

    def work(self, slots: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return bool: where victims are known to make room."""
        found: NDArray[np.bool_] = self.known.take(slots) & (self._codes.take(slots) == 0)
        return found

    def harmless(self, slots: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return bool: where the victims break no budget; for slots that work."""
        found: NDArray[np.bool_] = self._criteria["violations"].take(slots) == 0
        return found

    def candidates(self, slots: NDArray[np.intp], places: NDArray[np.intp]) -> Candidates:
        """Return the `slots` that work, indexed by their `places`. All slots must be known."""
        works = self._codes.take(slots) == 0
        at = slots[works]
        criteria = {name: column.take(at) for name, column in self._criteria.items()}
        return Candidates(places[works], self.pods, self._starts.take(at), **criteria)

    def tell(self, slots: NDArray[np.intp], rows: NDArray[np.intp], statuses: NodeStatuses) -> None:
        """Write to `statuses` why nodes, `rows` of its table, do not work. All slots must be known."""
        if len(self._seen) == 1:
            return
        codes = self._codes.take(slots)
        groups = np.zeros(len(self._seen), dtype=np.int32)
        for code in np.flatnonzero(np.bincount(codes)).tolist():
            if code:
                groups[code] = statuses.group_of(self._seen.statuses[code])
        fails = codes != 0
        statuses.groups[rows[fails]] = groups.take(codes[fails])

    def _compact(self, live: NDArray[np.intp]) -> None:
        """Drop the old victims of nodes that were tried again."""
        counts = self._criteria["counts"][live]
        ends = np.cumsum(counts)
        at = np.repeat(self._starts[live] - (ends - counts), counts) + np.arange(int(counts.sum()))
        self.pods = [self.pods[i] for i in at.tolist()]
        self._starts[live] = ends - counts


class KeptOutcomes:
    """The outcomes that are kept for equal preemptors."""

    def __init__(self) -> None:
        self.by_pods: WeakKeyDictionary[object, _Kept] = WeakKeyDictionary()

    def of(self, framework: Framework, cycle: Cycle, budgets: Sequence[Budget]) -> Outcomes:
        """Return the outcomes of equal pods for the cycle's pod, or empty ones if none can be shared."""
        capacity = cycle.nodes.slot_count
        clients = tuple(framework.filters_of(cycle))
        equal, marks = cycle.kept, cycle.nominated.marks
        known = None if equal is None else equal.known
        if (
            equal is None
            or known is None
            or marks is None
            or any(one.is_failing or one.is_served for one in clients)
        ):
            return Outcomes(capacity)
        if not equal.merged.issuperset([client.name for client in clients]):
            return Outcomes(capacity)
        kept = self.by_pods.get(known)
        if kept is None:
            kept = self.by_pods[known] = _Kept(cycle, clients, budgets)
        kept.catch_up(cycle, clients, budgets, marks)
        return kept.outcomes


class _Kept:
    """The outcomes of one kind of pod. `_marks` (int64, by slot): identifies the nominated pods at the time
    of the outcome.
    """

    def __init__(self, cycle: Cycle, clients: tuple[PluginClient, ...], budgets: Sequence[Budget]) -> None:
        columns = cycle.nodes.columns
        self.outcomes = Outcomes(cycle.nodes.slot_count)
        self._marks: NDArray[np.int64] = np.zeros(cycle.nodes.slot_count, dtype=np.int64)
        self._clients, self._budgets = clients, budgets
        self._rows, self._nodes = StaleSlots(DependsOn.ROW, columns), StaleSlots(DependsOn.NODE, columns)

    def catch_up(
        self,
        cycle: Cycle,
        clients: tuple[PluginClient, ...],
        budgets: Sequence[Budget],
        marks: NDArray[np.int64],
    ) -> None:
        """Forget the outcomes that no longer hold. `marks`: int64 per row of the cycle's nodes."""
        nodes, outcomes = cycle.nodes, self.outcomes
        outcomes.grow(nodes.slot_count)
        self._marks = extended(self._marks, nodes.slot_count - len(self._marks))
        outcomes.begin()
        columns = nodes.columns
        moved, node_moved = self._rows.since_last(columns), self._nodes.since_last(columns)
        by_nodes = any(client.descriptor.depends_on is DependsOn.NODES for client in clients)
        if (
            moved is None
            or node_moved is None
            or (node_moved and by_nodes)
            or clients != self._clients
            or budgets is not self._budgets
        ):
            outcomes.clear()
            self._clients, self._budgets = clients, budgets
        else:
            outcomes.known[within(moved, len(outcomes.known))] = False
        nominated = np.zeros(nodes.slot_count, dtype=np.int64)
        if len(marks):
            nominated[nodes.slots] = marks
        outcomes.known &= nominated == self._marks
        self._marks = nominated
