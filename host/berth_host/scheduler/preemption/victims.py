"""The pods that could leave each candidate node, as columns. Called by the evaluator, read by `dry_run`.

Source: kube-scheduler `framework/plugins/defaultpreemption/default_preemption.go` (SelectVictimsOnNode),
`pkg/scheduler/util/utils.go` (MoreImportantPod), v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeTable, PodTable
from berth_sdk.tables.few import FEW
from numpy.typing import NDArray

from berth_host.scheduler.preemption.budgets import Budget, violating


@dataclass(frozen=True, slots=True, eq=False)
class PotentialVictims:
    """v pods on c nodes, node after node. The pods of node i are at `starts[i]` to `starts[i + 1]`.

    `rows` (intp[v]) are rows of `table`, in the order in which they are put back: victims whose eviction
    breaks a budget (`breaks_budget`, bool[v]) first, then the others, more important pods first in each.
    `importance` (intp[v]) is the place among all pods of the node, lowest for the most important pod.
    """

    table: PodTable
    rows: NDArray[np.intp]
    starts: NDArray[np.intp]
    breaks_budget: NDArray[np.bool_]
    importance: NDArray[np.intp]

    @property
    def counts(self) -> NDArray[np.intp]:
        """intp[c]: potential victims of each node."""
        counts: NDArray[np.intp] = self.starts[1:] - self.starts[:-1]
        return counts


def potential_victims(
    pod: Pod, nodes: NodeTable, candidates: NDArray[np.intp], budgets: Sequence[Budget]
) -> PotentialVictims:
    """Return the pods of lower priority than `pod` on the nodes `candidates` (ascending snapshot rows)."""
    pods, slots = nodes.pods, nodes.slots[candidates]
    if len(slots) <= FEW:
        # Rows ascend, as in the other branch: their order decides between equally important pods.
        on_node = [np.sort(pods.rows_on_node(slot)) for slot in slots.tolist()]
        rows = np.concatenate(on_node) if on_node else np.zeros(0, dtype=np.intp)
        owner = np.repeat(np.arange(len(slots)), [len(one) for one in on_node])
        there = pods.priority.take(rows) < pod.priority
        rows, owner = rows[there], owner[there]
    else:
        candidate_of = np.full(nodes.slot_count, -1, dtype=np.intp)
        candidate_of[slots] = np.arange(len(slots))
        lower = np.flatnonzero(pods.priority < pod.priority)
        owner = candidate_of.take(pods.node_index.take(lower))
        there = owner >= 0
        rows, owner = lower[there], owner[there]
    # A pod that has not started counts as starting now: later than all others.
    start_s = started_s(pods, rows)
    order = np.lexsort((start_s, -pods.priority.take(rows), owner))
    rows, owner = rows[order], owner[order]
    starts = owner.searchsorted(np.arange(len(candidates) + 1))
    breaks = violating(budgets, pods, rows, starts) if budgets else np.zeros(len(rows), dtype=np.bool_)
    importance = np.arange(len(rows))
    if breaks.any():
        order = np.lexsort((importance, ~breaks, owner))
        rows, breaks, importance = rows[order], breaks[order], order
    return PotentialVictims(pods, rows, starts, breaks, importance)


def started_s(pods: PodTable, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return float64[v]: the start times of the pods in `rows` (Unix seconds), inf for pods not started."""
    start_s: NDArray[np.float64] = pods.start_time_s.take(rows)
    start_s[np.isnan(start_s)] = np.inf
    return start_s
