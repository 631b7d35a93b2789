"""Finds the outcomes that equal preemptors share, and forgets the rows that moved. Called by the evaluator.

Outcomes are shared if every Filter plugin that judges the pod lives in the host and judges node by node: then
a what-if about a node depends on the pod's wishes, the node, the pods on it and those nominated to it. A
plugin that looks further (affinity, spreading) leaves the cycles of its pods to themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from berth_sdk.extension_points import DependsOn
from berth_sdk.kept.follows import StaleSlots
from berth_sdk.tables.read_only import extended
from numpy.typing import NDArray

from berth_host.framework.framework import Framework
from berth_host.framework.kept.merged_verdicts import within
from berth_host.rpc.client import PluginClient
from berth_host.rpc.cycle import Cycle
from berth_host.scheduler.preemption.budgets import Budget
from berth_host.scheduler.preemption.outcomes import Outcomes


class KeptOutcomes:
    """Outcomes kept for equal pods, while what is known about them holds."""

    def __init__(self) -> None:
        self.by_pods: WeakKeyDictionary[object, _Kept] = WeakKeyDictionary()

    def of(self, framework: Framework, cycle: Cycle, budgets: Sequence[Budget]) -> Outcomes:
        """The outcomes that hold for the cycle's pod: of equal ones before, or none yet."""
        capacity = cycle.nodes.slot_count
        clients = tuple(framework.filters_of(cycle))
        equal, marks = cycle.kept, cycle.nominated.marks
        known = None if equal is None else equal.known
        if equal is None or known is None or marks is None or any(one.is_failing for one in clients):
            return Outcomes(capacity)
        if not equal.merged.issuperset([client.name for client in clients]):
            return Outcomes(capacity)
        kept = self.by_pods.get(known)
        if kept is None:
            kept = self.by_pods[known] = _Kept(cycle, clients, budgets)
        kept.catch_up(cycle, clients, budgets, marks)
        return kept.outcomes


class _Kept:
    """`_marks` (int64, by slot): which pods were nominated when the outcome was found."""

    def __init__(self, cycle: Cycle, clients: tuple[PluginClient, ...], budgets: Sequence[Budget]) -> None:
        columns = cycle.nodes._columns
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
        columns = nodes._columns
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
