"""Many constraints of one pod, counted a block at a time, in place of a pass over all nodes for each.

A pod may have ten thousand constraints, and few nodes have labels for so many. So the nodes' labels are read
once for all constraints, without columns. Used by `filter` and `score` for pods with more than
`MANY_CONSTRAINTS`. Rows here are those of the whole snapshot.

Source: `pkg/scheduler/framework/plugins/podtopologyspread/common.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from berth_sdk.selected_pods import SelectedPods, weights_over
from berth_sdk.slices import Work
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.pod_topology_spread.constraints import Constraint
from berth_plugins.pod_topology_spread.domains import Participants
from berth_plugins.pod_topology_spread.plans import MANY_CONSTRAINTS, Plan

CELLS: Final = 1 << 16
"""The number of pairs of a constraint and a node in one block."""
_MAX_COLUMNS: Final = 16
"""The number of tallies of one plan up to which `NodeTable.pod_counts` keeps them."""


@dataclass(frozen=True, slots=True)
class Block:
    """`constraints` that follow one another, of which `first` is the first, and their domains.

    - `which`, `node`, `domain` (int64[k]): for each constraint and each node that has its label: the
      constraint within the block, the node's row, the domain. By constraint, in their order.
    - `starts` (int64[m]): where the domains of each constraint begin in `sums` and `present`. At the start is
      the domain of the nodes without the label, which counts 0.
    - `sums` (int64[all domains]): the pods that count. `present`: True for a domain with a node that counts.
    """

    first: int
    constraints: Sequence[Constraint]
    which: NDArray[np.int64]
    node: NDArray[np.int64]
    domain: NDArray[np.int64]
    starts: NDArray[np.int64]
    sums: NDArray[np.int64]
    present: NDArray[np.bool_]


class Blocks:
    """The blocks of one plan, in one version of the snapshot. Use `of` to make them."""

    def __init__(self, plan: Plan, whole: NodeTable) -> None:
        self._plan = plan
        self._whole = whole
        self._labels: dict[str, list[tuple[int, str]]] = {one.topology_key: [] for one in plan.constraints}
        """The row and the value of each node that has a label."""
        self._counts: dict[int, NDArray[np.int64]] = {}
        self._keeps_counts = len({id(one) for one in plan.tallies}) <= _MAX_COLUMNS

    @staticmethod
    def are_for(plan: Plan) -> bool:
        """Return True if the plan has so many constraints that blocks cost less than a pass for each.

        A node that counts has all of its labels then, so the empty value of a label is a value as any other.
        """
        return plan.labelled is not None and len(plan.constraints) > MANY_CONSTRAINTS

    @staticmethod
    def of(plan: Plan, whole: NodeTable) -> Work[Blocks]:
        """Read the labels. `whole`: every node of the snapshot."""
        blocks = Blocks(plan, whole)
        for participants in dict.fromkeys(plan.participants):
            yield from participants.catch_up(whole)
        found = blocks._labels
        for row in range(len(whole)):
            labels = whole.node(row).labels
            for key in found.keys() & labels.keys():
                found[key].append((row, labels[key]))
            yield
        return blocks

    @property
    def firsts(self) -> range:
        """The first constraint of each block."""
        return range(0, len(self._plan.constraints), self._size)

    @property
    def _size(self) -> int:
        return max(1, CELLS // max(1, len(self._whole)))

    def block(self, first: int) -> Work[Block]:
        """Return the block that begins at a constraint."""
        plan = self._plan
        constraints = plan.constraints[first : first + self._size]
        sizes, starts, node, domain = [], [], [], []
        counting: dict[tuple[int, Participants], int] = {}
        counts: list[NDArray[np.int64]] = []
        kinds = []
        end = 0
        for i, constraint in enumerate(constraints, first):
            starts.append(end)
            codes: dict[str, int] = {}
            labels = self._labels[constraint.topology_key]
            for row, value in labels:
                node.append(row)
                domain.append(codes.setdefault(value, end + 1 + len(codes)))
            sizes.append(len(labels))
            end += 1 + len(codes)
            tally, participants = plan.tallies[i], plan.participants[i]
            key = (id(tally), participants)
            kind = counting.get(key)
            if kind is None:
                kind = counting[key] = len(counts)
                counts.append((yield from self.counts(tally)))
            kinds.append(kind)
            yield
        which = np.arange(len(constraints)).repeat(sizes)
        nodes, domains = np.array(node, dtype=np.int64), np.array(domain, dtype=np.int64)
        kind_of = np.array(kinds)[which]
        counts_here = np.array([participants.mask for _, participants in counting])[kind_of, nodes]
        here = domains[counts_here]
        weights = np.array(counts)[kind_of[counts_here], nodes[counts_here]]
        # Sums of whole numbers below 2**53 are exact.
        sums = np.bincount(here, weights=weights, minlength=end).astype(np.int64)
        present = np.zeros(end, dtype=np.bool_)
        present[here] = True
        return Block(first, constraints, which, nodes, domains, np.array(starts), sums, present)

    def counts(self, tally: SelectedPods | None) -> Work[NDArray[np.int64]]:
        """Return int64[n]: the pods of `tally` on each node."""
        found = self._counts.get(id(tally))
        if found is None:
            found = yield from self._counted(tally)
            if self._keeps_counts:
                self._counts[id(tally)] = found
        return found

    def _counted(self, tally: SelectedPods | None) -> Work[NDArray[np.int64]]:
        whole = self._whole
        if tally is None:
            return np.zeros(len(whole), dtype=np.int64)
        if self._keeps_counts:
            # Copied: a column is updated in place, and the blocks are made in slices.
            return whole.take_of(whole.pod_counts.column(tally)).copy()
        # As columns of `pod_counts`, so many would take the place of everybody's.
        each = yield from weights_over(whole.pods, ((tally, 1),))
        slots = whole.pods.node_index.take(np.flatnonzero(each))
        return whole.take_of(np.bincount(slots, minlength=whole.slot_count))
