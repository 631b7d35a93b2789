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
        self._costs: dict[str, Cost] = {}

    def cheapest(self, nodes: NodeTable, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return those of `rows` (at least one) whose nodes have the lowest rank, in their order."""
        costs = [self._cost(nodes.name(row)) for row in rows.tolist()]
        least = min(costs)
        return rows[[cost == least for cost in costs]]

    def in_order(self, nodes: NodeTable, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return `rows` with the lowest rank first, in their order where the rank is the same."""
        costs = [self._cost(nodes.name(row)) for row in rows.tolist()]
        return rows[sorted(range(len(costs)), key=costs.__getitem__)]

    def condemn(self, node_name: str) -> list[int]:
        """Record that a member takes a node; return the victims that it newly costs, for `pardon`."""
        found = [one for one in self._on_node.get(node_name, ()) if one not in self._condemned]
        self._condemned.update(found)
        self._forget(found)
        return found

    def pardon(self, victims: Iterable[int]) -> None:
        """Undo a `condemn`, which returned `victims`."""
        found = list(victims)
        self._condemned.difference_update(found)
        self._forget(found)

    def _forget(self, victims: Iterable[int]) -> None:
        for number in victims:
            for pod in self._victims[number].pods:
                self._costs.pop(pod.node_name, None)

    def _cost(self, node_name: str) -> Cost:
        cost = self._costs.get(node_name)
        if cost is None:
            left = [
                self._victims[one] for one in self._on_node.get(node_name, ()) if one not in self._condemned
            ]
            cost = self._costs[node_name] = cost_of(left)
        return cost


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
