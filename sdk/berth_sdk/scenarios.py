"""`Scenarios`: what-if questions about many nodes at once, each with some pods removed and some added.

The only mechanism behind the second Filter run for nominated pods, preemption and what-if questions. Each
scenario is one node with pods removed and added, absolute against the cycle's snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeTable, NodeUsage, NodeView, PodChanges, PodTable


@dataclass(frozen=True, slots=True)
class Scenario:
    """The node `node_name` without the pods `removed` and with the pods `added`. The pods' uids must be
    set.

    `node`: a node that the snapshot does not have, such as one that an autoscaler would add, with the pods
    `added`; None: the node is in the snapshot. For `handle.run_filters`. A plugin's own `filter_scenarios`
    never gets one: the host puts the node into the snapshot ahead of PreFilter.

    >>> from berth_sdk.testing import make_node
    >>> Scenario(node=make_node("template")).node_name
    'template'
    """

    node_name: str = ""
    removed: tuple[Pod, ...] = ()
    added: tuple[Pod, ...] = ()
    node: Node | None = None

    def __post_init__(self) -> None:
        """Take the name from `node`. Raises ValueError for a node of another name, and for pods that leave a
        node that does not exist.
        """
        if self.node is None:
            return
        if not self.node.name:
            raise ValueError(
                "the node of a scenario has no name: give it one that no node of the cluster has"
            )
        if self.node_name not in ("", self.node.name):
            raise ValueError(
                f"the scenario is about node {self.node_name!r}, and its node is {self.node.name!r}"
            )
        if self.removed:
            raise ValueError(
                f"node {self.node.name!r} does not exist, so no pods can leave it: leave out `removed`"
            )
        object.__setattr__(self, "node_name", self.node.name)


class Scenarios:
    """m scenarios. `nodes` has one row per scenario, with the changes applied to its usage columns.

    `removed` and `added` hold the pods as columns. `items` yields the scenarios as records.
    """

    __slots__ = ("_items", "added", "nodes", "removed")
    removed: PodChanges
    added: PodChanges

    def __init__(
        self, table: NodeTable, items: Sequence[Scenario], usages: Sequence[NodeUsage] | None = None
    ) -> None:
        """`table`: the snapshot. `usages`: the resulting usage of each scenario's node; None: it follows from
        the pods.

        Raises KeyError for a node that the snapshot lacks, new nodes (`Scenario.node`) among them.
        """
        positions: list[int] = []
        for item in items:
            position = table.position(item.node_name)
            if position is None:
                raise KeyError(item.node_name)
            positions.append(position)
        self._items: tuple[Scenario, ...] | None = tuple(items)
        self.removed = PodChanges.of([item.removed for item in items], table.known_pods)
        self.added = PodChanges.of([item.added for item in items])
        self.nodes = table.take(positions).with_changes(self.removed, self.added, usages)

    @classmethod
    def of_changes(cls, rows: NodeTable, removed: PodChanges, added: PodChanges) -> Scenarios:
        """Return one scenario for each of `rows`, which are rows of the snapshot."""
        made = cls.__new__(cls)
        made._items = None
        made.removed, made.added = removed, added
        made.nodes = rows.with_changes(removed, added)
        return made

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def items(self) -> tuple[Scenario, ...]:
        """The scenarios as records, in order."""
        if self._items is None:
            self._items = tuple(
                Scenario(name, self.removed.pods(i), self.added.pods(i))
                for i, name in enumerate(self.nodes.names)
            )
        return self._items

    @property
    def pods(self) -> PodTable:
        """All pods of the snapshot, removed pods included. Raises ValueError if the pods are not known."""
        return self.nodes.pods

    def limited(self, nodes: NodeTable, removed: PodChanges, added: PodChanges) -> Scenarios:
        """Return the same scenarios with other tables of the same rows: for `berth_sdk.runtime`."""
        seen = Scenarios.__new__(Scenarios)
        seen._items = None
        seen.nodes, seen.removed, seen.added = nodes, removed, added
        return seen

    def take(self, positions: NDArray[Any] | Sequence[int]) -> Scenarios:
        """Return some of the scenarios. `positions`: intp[k], or a mask (bool[m])."""
        chosen = np.asarray(positions, dtype=None if len(positions) else np.intp)
        at = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        some = Scenarios.__new__(Scenarios)
        some._items = None if self._items is None else tuple(self._items[i] for i in at.tolist())
        some.removed, some.added = self.removed.take(at), self.added.take(at)
        some.nodes = self.nodes.take(at)
        return some

    def view(self, i: int) -> NodeView:
        """Return the node of scenario `i` with its changes; with its pods, if the plugin declared pods."""
        node = self.nodes.node(i)
        if self.nodes.known_pods is None:
            return node
        removed, added = self.removed.pods(i), self.added.pods(i)
        gone = {pod.uid for pod in removed}
        pods = (*(pod for pod in node.pods if pod.uid not in gone), *added)
        return node.with_pods(pods)
