"""Soft topology spread constraints over columns: raw and normalised scores of one cycle.

Source: `pkg/scheduler/framework/plugins/podtopologyspread/scoring.go`, v1.36.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from berth_sdk.slices import Work
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.pod_topology_spread.blocks import Blocks
from berth_plugins.pod_topology_spread.constraints import HOSTNAME, Constraint
from berth_plugins.pod_topology_spread.domains import Area, scattered
from berth_plugins.pod_topology_spread.plans import Plan

_INVALID: Final = -1
"""Upstream marks ignored nodes with this raw score, so a node that really has this score is ignored too."""
Counts = NDArray[np.int64]


class Preferences:
    """Each constraint's part of a node's score, by slot or by domain."""

    def __init__(self, plan: Plan, ignored: NDArray[np.bool_] | None) -> None:
        self._plan = plan
        self._ignored = ignored
        # The API server refuses such a skew, but tests may have it. Scores below 0 then need rounding away
        # from zero.
        self._odd = any(one.max_skew < 1 for one in plan.constraints)
        self._terms: list[tuple[Area, NDArray[Any], bool]] = []
        self._total: NDArray[np.float64] | None = None
        """The sum of all terms by slot, where they were added up together; None: they were not."""

    @staticmethod
    def of(plan: Plan, nodes: NodeTable) -> Work[Preferences]:
        """Count the pods. `nodes`: the feasible nodes."""
        whole = nodes.whole
        if plan.labelled is not None:
            yield from plan.labelled.catch_up(whole)
        preferences = Preferences(plan, _ignored(plan, nodes))
        if plan.labelled is not None and not plan.labelled.mask.any():
            return preferences  # every node is ignored
        if Blocks.are_for(plan):
            preferences._total = yield from preferences._total_of_blocks(nodes, whole)
            return preferences
        for i, constraint in enumerate(plan.constraints):
            yield from plan.areas[i].catch_up(whole)
            preferences._add(i, constraint, nodes, whole)
            yield
        return preferences

    def scores(self, nodes: NodeTable) -> Work[Counts]:
        """Return int64[n], the raw scores."""
        total = np.zeros(len(nodes), dtype=np.float64)
        if self._total is not None:
            total += nodes.take_of(self._total)
        for area, values, by_slot in self._terms:
            labels = nodes.take_of(area.labels)
            if not by_slot:
                total += values.take(labels)
            elif area.lacking:
                total += np.where(labels == 0, 0.0, nodes.take_of(values))
            else:
                total += nodes.take_of(values)
            yield
        raw = _rounded(total) if self._odd else _rounded_up(total)
        ignored = _ignored(self._plan, nodes)
        if ignored is not None:
            raw[ignored] = 0
        return raw

    def normalized(self, raw: Counts, nodes: NodeTable, most: int) -> Counts:
        """Return int64[n]: 0..most, highest for the fewest pods; 0 for ignored nodes."""
        ignored = _ignored(self._plan, nodes)
        counted = raw if ignored is None else raw[~ignored]
        highest = max(int(counted.max()), 0) if len(counted) else 0
        if highest == 0:
            scores = np.full(len(raw), most, dtype=np.int64)
        else:
            lowest = int(counted.min())
            above = most * (highest + lowest - raw)
            scores = above // highest if lowest >= 0 else np.sign(above) * (np.abs(above) // highest)
        if self._odd:
            scores[raw == _INVALID] = 0
        if ignored is not None:
            scores[ignored] = 0
        return scores

    def _add(self, i: int, constraint: Constraint, nodes: NodeTable, whole: NodeTable) -> None:
        area, tally = self._plan.areas[i], self._plan.tallies[i]
        by_slot = constraint.topology_key == HOSTNAME
        if by_slot:
            # A node is its own domain, whether or not it counts.
            size = self._not_ignored(nodes)
            found = (
                np.zeros(whole.slot_count, dtype=np.int64)
                if tally is None
                else whole.pod_counts.column(tally)
            )
        else:
            size = _distinct(area, nodes, self._ignored)
            found = np.zeros(area.size, dtype=np.int64) if tally is None else area.sums(whole, tally)
        values = found.astype(np.float64) * math.log(size + 2)
        values += constraint.max_skew - 1
        if not by_slot:
            values[0] = 0.0
        self._terms.append((area, values, by_slot))

    def _total_of_blocks(self, nodes: NodeTable, whole: NodeTable) -> Work[NDArray[np.float64]]:
        """Return float64[slots]: the sum of all terms, added up in their order."""
        plan = self._plan
        blocks = yield from Blocks.of(plan, whole)
        total = np.zeros(len(whole), dtype=np.float64)
        scored = np.zeros(whole.slot_count, dtype=np.bool_)
        scored[nodes.slots if self._ignored is None else nodes.slots[~self._ignored]] = True
        is_scored = whole.take_of(scored)
        for first in blocks.firsts:
            block = yield from blocks.block(first)
            seen = np.zeros(len(block.sums), dtype=np.int64)
            seen[block.domain[is_scored[block.node]]] = 1
            sizes = np.add.reduceat(seen, block.starts).tolist()
            counts = block.sums[block.domain]
            for i, constraint in enumerate(block.constraints):
                if constraint.topology_key == HOSTNAME:
                    sizes[i] = self._not_ignored(nodes)
                    here = block.which == i
                    counts[here] = (yield from blocks.counts(plan.tallies[first + i]))[block.node[here]]
            weights = np.array([math.log(size + 2) for size in sizes])
            values = counts.astype(np.float64) * weights[block.which]
            values += np.array([one.max_skew - 1 for one in block.constraints])[block.which]
            # One after the other, as sums of floating point numbers depend on their order.
            np.add.at(total, block.node, values)
            yield
        return scattered(total, whole.slots, whole.slot_count)

    def _not_ignored(self, nodes: NodeTable) -> int:
        return len(nodes) - (0 if self._ignored is None else int(np.count_nonzero(self._ignored)))


def _ignored(plan: Plan, nodes: NodeTable) -> NDArray[np.bool_] | None:
    """Return bool[n]: the nodes that lack a label. None: no node is ignored."""
    if plan.labelled is None or plan.labelled.among is None:
        return None
    return ~nodes.take_of(plan.labelled.among)


def _distinct(area: Area, nodes: NodeTable, ignored: NDArray[np.bool_] | None) -> int:
    """Return the number of domains of the nodes that are not ignored. All nodes without the label share one
    domain.
    """
    if ignored is None and len(nodes) == nodes.snapshot_size:
        return area.count
    codes = nodes.take_of(area.codes)
    seen = np.zeros(area.size, dtype=np.bool_)
    seen[codes if ignored is None else codes[~ignored]] = True
    return int(np.count_nonzero(seen))


def _rounded_up(numbers: NDArray[np.float64]) -> Counts:
    """Return numbers rounded half away from zero. They must be 0 or at least 0.5. Overwrites them."""
    numbers += 0.5
    return np.floor(numbers, out=numbers).astype(np.int64)


def _rounded(numbers: NDArray[np.float64]) -> Counts:
    """Return any numbers rounded half away from zero."""
    size = np.abs(numbers)
    whole = np.floor(size)
    whole += size - whole >= 0.5
    return np.copysign(whole, numbers).astype(np.int64)
