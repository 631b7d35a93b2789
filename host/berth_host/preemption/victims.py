"""The units that could leave each candidate node, as columns. Called by the evaluator, read by `dry_run`.

Where no pod belongs to a group, each unit is one pod.
Source: kube-scheduler `framework/plugins/defaultpreemption/default_preemption.go` (SelectVictimsOnNode),
`framework/preemption/util.go` (MoreImportantVictim), v1.37.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeTable, PodChanges, PodTable
from berth_sdk.tables.few import FEW
from numpy.typing import NDArray

from berth_host.preemption.budgets import Budget, violating
from berth_host.preemption.units import Units, started_s


@dataclass(frozen=True, slots=True, eq=False)
class PotentialVictims:
    """v units on c nodes, node after node. The units of node i are at `starts[i]` to `starts[i + 1]`, in the
    order in which they come back: units whose eviction breaks a budget first, then the others, more important
    units first in each.

    `violations` (int64[v]): the pods of the unit whose eviction breaks a budget. `importance` (intp[v]) is
    the place among all units of the node, lowest for the most important unit. `rows` (intp[p]): the pods of
    the units on their node, rows of `table`; one per unit if `pods` is None, else those of unit i are at
    `pods.here[i]` to `pods.here[i + 1]`.
    """

    table: PodTable
    rows: NDArray[np.intp]
    starts: NDArray[np.intp]
    violations: NDArray[np.int64]
    importance: NDArray[np.intp]
    pods: UnitPods | None = None

    def __len__(self) -> int:
        return len(self.importance)

    @property
    def counts(self) -> NDArray[np.intp]:
        """intp[c]: potential victims of each node."""
        counts: NDArray[np.intp] = self.starts[1:] - self.starts[:-1]
        return counts

    def leaving(self, away: NDArray[np.bool_]) -> PodChanges:
        """Return the pods that leave each node with the units in `away` (bool[v])."""
        before = np.zeros(len(away) + 1, dtype=np.intp)
        if self.pods is None:
            away.cumsum(out=before[1:])
            return PodChanges(self.table, self.rows[away], before[self.starts])
        counts = np.diff(self.pods.here)
        (counts * away).cumsum(out=before[1:])
        return PodChanges(self.table, self.rows[away.repeat(counts)], before[self.starts])

    def all_pods(self, chosen: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the rows of all pods of some units, unit after unit, and how many each unit has. Pods on
        other nodes are included.
        """
        if self.pods is None:
            return self.rows[chosen], np.ones(len(chosen), dtype=np.intp)
        rows, starts = self.pods.units.pods_of(self.pods.unit.take(chosen))
        return rows, np.diff(starts)

    def unit_pods(self, entry: int) -> list[Pod]:
        """Return all pods of a unit, as records."""
        return self.table.several(self.all_pods(np.asarray([entry], dtype=np.intp))[0])

    def reaches_further(self) -> NDArray[np.bool_]:
        """Return bool[c]: the nodes with a unit that has pods on other nodes too."""
        found = np.zeros(len(self.starts) - 1, dtype=np.bool_)
        if self.pods is not None:
            wide = self.pods.units.size.take(self.pods.unit) > np.diff(self.pods.here)
            found[np.arange(len(found)).repeat(self.counts)[wide]] = True
        return found


@dataclass(frozen=True, slots=True, eq=False)
class UnitPods:
    """The units of potential victims. `unit` (intp[v]): the number in `units`. `here` (intp[v + 1]): where
    the pods on the unit's node begin in `PotentialVictims.rows`.
    """

    units: Units
    unit: NDArray[np.intp]
    here: NDArray[np.intp]


def potential_victims(
    pod: Pod,
    nodes: NodeTable,
    candidates: NDArray[np.intp],
    budgets: Sequence[Budget],
    units: Units | None = None,
    *,
    by_uid: bool = False,
) -> PotentialVictims:
    """Return the units of lower priority than `pod` on the nodes `candidates` (ascending snapshot rows).

    `units` None: each pod is a unit. `by_uid`: of equally important units, the one whose first pod has the
    smaller UID is more important.
    """
    if units is not None:
        return _potential_units(pod, nodes, candidates, budgets, units, by_uid=by_uid)
    pods = nodes.pods
    rows, owner = _pods_below(pods.priority, pod.priority, nodes, candidates)
    # A pod that has not started counts as starting now: later than all others.
    start_s = started_s(pods, rows)
    keys = (start_s, -pods.priority.take(rows), owner)
    order = np.lexsort((_uid_ranks(pods, rows, keys), *keys)) if by_uid else np.lexsort(keys)
    rows, owner = rows[order], owner[order]
    starts = owner.searchsorted(np.arange(len(candidates) + 1))
    breaks = violating(budgets, pods, rows, starts) if budgets else np.zeros(len(rows), dtype=np.bool_)
    importance = np.arange(len(rows))
    if breaks.any():
        order = np.lexsort((importance, ~breaks, owner))
        rows, breaks, importance = rows[order], breaks[order], order
    return PotentialVictims(pods, rows, starts, breaks.astype(np.int64), importance)


def _potential_units(
    pod: Pod,
    nodes: NodeTable,
    candidates: NDArray[np.intp],
    budgets: Sequence[Budget],
    units: Units,
    *,
    by_uid: bool,
) -> PotentialVictims:
    pods = nodes.pods
    rows, owner = _pods_below(units.priority.take(units.of_pod), pod.priority, nodes, candidates)
    # One entry for each unit and node.
    keys, first, entry = np.unique(
        owner * len(units.priority) + units.of_pod.take(rows), return_index=True, return_inverse=True
    )
    unit, entry_owner = units.of_pod.take(rows[first]), owner[first]
    # Between equally important units the order of the rows decides, as between pods.
    sorted_by = (*units.importance(unit), entry_owner)
    tied_by = _uid_ranks(pods, rows[first], sorted_by) if by_uid else rows[first]
    order = np.lexsort((tied_by, *sorted_by))
    starts = entry_owner[order].searchsorted(np.arange(len(candidates) + 1))
    violations = _violations(units, unit[order], budgets, starts)
    importance = np.arange(len(order))
    if violations.any():
        again = np.lexsort((importance, violations == 0, entry_owner[order]))
        order, violations, importance = order[again], violations[again], again
    place = np.empty(len(keys), dtype=np.intp)
    place[order] = np.arange(len(order))
    by_entry = np.argsort(place[entry], kind="stable")
    here = np.zeros(len(order) + 1, dtype=np.intp)
    np.bincount(place[entry], minlength=len(order)).cumsum(out=here[1:])
    return PotentialVictims(
        pods, rows[by_entry], starts, violations, importance, UnitPods(units, unit[order], here)
    )


def _uid_ranks(pods: PodTable, rows: NDArray[np.intp], keys: Sequence[NDArray[Any]]) -> NDArray[np.intp]:
    """Return intp[v]: the place of each pod's UID among the UIDs of pods with equal `keys`; 0 for the
    others.
    """
    ranks = np.zeros(len(rows), dtype=np.intp)
    order = np.lexsort(tuple(keys))
    same = np.ones(max(len(rows) - 1, 0), dtype=np.bool_)
    for key in keys:
        ordered = key[order]
        same &= ordered[1:] == ordered[:-1]
    tied = order[np.flatnonzero(np.append(same, False) | np.append(False, same))] if len(rows) else order
    uids = np.asarray([pod.uid for pod in pods.several(rows[tied])], dtype=object)
    ranks[tied[np.argsort(uids, kind="stable")]] = np.arange(len(tied))
    return ranks


def _violations(
    units: Units, unit: NDArray[np.intp], budgets: Sequence[Budget], starts: NDArray[np.intp]
) -> NDArray[np.int64]:
    """Return int64[v]: the pods of each unit whose eviction breaks a budget, after the earlier units of the
    node.
    """
    if not budgets or not len(unit):
        return np.zeros(len(unit), dtype=np.int64)
    rows, ends = units.pods_of(unit)
    broken = violating(budgets, units.table, rows, ends.take(starts))
    return np.add.reduceat(broken.astype(np.int64), ends[:-1])


def _pods_below(
    priority: NDArray[np.int64], limit: int, nodes: NodeTable, candidates: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows of the pods on the candidates whose `priority` (by row) is below `limit`, and for each
    the place of its node among the candidates.
    """
    pods, slots = nodes.pods, nodes.slots[candidates]
    if len(slots) <= FEW:
        # Rows ascend, as in the other branch: their order decides between equally important pods.
        on_node = [np.sort(pods.rows_on_node(slot)) for slot in slots.tolist()]
        rows = np.concatenate(on_node) if on_node else np.zeros(0, dtype=np.intp)
        owner = np.repeat(np.arange(len(slots)), [len(one) for one in on_node])
        there = priority.take(rows) < limit
        return rows[there], owner[there]
    candidate_of = np.full(nodes.slot_count, -1, dtype=np.intp)
    candidate_of[slots] = np.arange(len(slots))
    lower = np.flatnonzero(priority < limit)
    owner = candidate_of.take(pods.node_index.take(lower))
    there = owner >= 0
    return lower[there], owner[there]
