"""`NodeRanks`: ranks nodes by the victims that a member of a preempting group newly costs there.

While the group's algorithm runs without all potential victims, each member goes to a node of the lowest rank
among those where it fits. A victim that an earlier member costs already costs nothing more.
Made by `group_evaluator`, read by the cycle of the group (`groups.placements`).
Source: kube-scheduler `framework/plugins/defaultpreemption/default_preemption.go` (RankNodes, Reserve),
`framework/preemption/podgrouppreemption_state.go` and `util.go` (CompareVictimSets), v1.38.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeTable
from berth_sdk.tables.node_columns import NodeColumns
from numpy.typing import NDArray

Cost = tuple[object, ...]
"""The cost of the victims of a node, to compare: empty for no victims."""


@dataclass(frozen=True, slots=True, eq=False)
class RankedVictim:
    """A unit that may leave. `violations`: its pods whose eviction breaks a budget. `rank`: of its type."""

    pods: Sequence[Pod]
    violations: int
    priority: int
    rank: int


class NodeRanks:
    """The ranks of one run of the algorithm. `victims`: the potential ones, most important first."""

    def __init__(self, victims: Sequence[RankedVictim]) -> None:
        self._victims = victims
        self._on_node: dict[str, list[int]] = {}
        for number, victim in enumerate(victims):
            for name in dict.fromkeys(pod.node_name for pod in victim.pods):
                self._on_node.setdefault(name, []).append(number)
        self._condemned: set[int] = set()
        self._columns: NodeColumns | None = None
        """The nodes that `_codes` is about; None before the first question."""
        self._codes: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        """By slot: the place of the node's cost in `_costs`."""
        self._costs: list[Cost] = [()]
        self._code_of: dict[Cost, int] = {(): 0}

    def cheapest(self, nodes: NodeTable, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return those of `rows` (at least one) whose nodes have the lowest rank, in their order."""
        codes = self._codes_at(nodes, rows)
        least: int = min(np.flatnonzero(np.bincount(codes)).tolist(), key=self._costs.__getitem__)
        cheapest: NDArray[np.intp] = rows[codes == least]
        return cheapest

    def in_order(self, nodes: NodeTable, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return `rows` with the lowest rank first, in their order where the rank is the same."""
        by_cost = sorted(range(len(self._costs)), key=self._costs.__getitem__)
        places = np.empty(len(by_cost), dtype=np.intp)
        places[by_cost] = np.arange(len(by_cost))
        return rows[np.argsort(places[self._codes_at(nodes, rows)], kind="stable")]

    def condemn(self, node_name: str) -> list[int]:
        """Record that a member takes a node; return the victims that it newly costs, for `pardon`."""
        found = [one for one in self._on_node.get(node_name, ()) if one not in self._condemned]
        self._condemned.update(found)
        self._renew(found)
        return found

    def pardon(self, victims: Iterable[int]) -> None:
        """Undo a `condemn`, which returned `victims`."""
        found = list(victims)
        self._condemned.difference_update(found)
        self._renew(found)

    def _codes_at(self, nodes: NodeTable, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        # A gang of thousands asks about thousands of nodes for each member: no step per node.
        if self._columns is not nodes.columns:
            self._columns = nodes.columns
            self._codes = np.zeros(nodes.columns.capacity, dtype=np.intp)
            self._price(self._on_node)
        return self._codes[nodes.slots[rows]]

    def _renew(self, victims: Iterable[int]) -> None:
        if self._columns is not None:
            pods = (pod for number in victims for pod in self._victims[number].pods)
            self._price(dict.fromkeys(pod.node_name for pod in pods))

    def _price(self, names: Iterable[str]) -> None:
        """Compute the costs of nodes."""
        slots = {} if self._columns is None else self._columns.index_of
        for name in names:
            slot = slots.get(name)
            if slot is None:
                continue
            left = [self._victims[one] for one in self._on_node[name] if one not in self._condemned]
            cost = cost_of(left)
            code = self._code_of.get(cost)
            if code is None:
                code = self._code_of[cost] = len(self._costs)
                self._costs.append(cost)
            self._codes[slot] = code


def cost_of(victims: Sequence[RankedVictim]) -> Cost:
    """Return the cost of victims, most important first: the broken budgets, the pods of each priority, the
    types and sizes of the units.
    """
    if not victims:
        return ()
    by_priority = tuple(
        [
            (priority, sum(len(one.pods) for one in same))
            for priority, same in groupby(victims, lambda one: one.priority)
        ]
    )
    forms = tuple([(one.rank, len(one.pods)) for one in victims])
    return sum(one.violations for one in victims), by_priority, forms
