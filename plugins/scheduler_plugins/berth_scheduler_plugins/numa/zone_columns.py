"""`ZoneColumns`: the free amounts of the zones of all nodes, as columns over the snapshot's slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_scheduler_plugins.numa.topology import POD, SINGLE_NUMA_NODE, Topology

Amounts = NDArray[np.int64]
LACKS: Final = -1
"""The amount of a resource that a zone does not have."""


@dataclass(frozen=True, slots=True, eq=False)
class Zones:
    """The zones of n nodes. A row has the zones of a node by ascending number; `exists` is bool[n, zones].

    `single`, `by_pod`: bool[n], the policy single-numa-node and the scope pod. `known`: bool[n], the nodes
    with a topology. `refused`: bool[n], nodes whose topology must not be used.
    """

    columns: Mapping[str, Amounts]
    exists: NDArray[np.bool_]
    single: NDArray[np.bool_]
    by_pod: NDArray[np.bool_]
    known: NDArray[np.bool_]
    refused: NDArray[np.bool_]

    def free(self, resource: str) -> Amounts:
        """Return int64[n, zones], LACKS where a zone does not have the resource. A copy."""
        column = self.columns.get(resource)
        return np.full(self.exists.shape, LACKS, dtype=np.int64) if column is None else column.copy()


class ZoneColumns:
    """The columns by slot, which `set` writes row by row."""

    def __init__(self) -> None:
        self._columns: dict[str, Amounts] = {}
        self._exists: NDArray[np.bool_] = np.zeros((0, 1), dtype=np.bool_)
        self._flags: NDArray[np.bool_] = np.zeros((4, 0), dtype=np.bool_)

    def set(
        self, slot: int, topology: Topology | None, free: Sequence[Mapping[str, int]], *, refused: bool
    ) -> None:
        """Write the row of a node. `free`: amounts of each zone, in the order of `topology.zones`."""
        count = len(free)
        if slot >= len(self._exists) or count > self._exists.shape[1]:
            self._grow(max(2 * slot, slot + 1, 64), max(count, 1))
        self._exists[slot] = False
        self._exists[slot, :count] = True
        for column in self._columns.values():
            column[slot] = LACKS
        for zone, amounts in enumerate(free):
            for resource, amount in amounts.items():
                if resource not in self._columns:
                    self._columns[resource] = np.full(self._exists.shape, LACKS, dtype=np.int64)
                self._columns[resource][slot, zone] = max(amount, 0)
        self._flags[:, slot] = (
            topology is not None and topology.policy == SINGLE_NUMA_NODE,
            topology is not None and topology.scope == POD,
            topology is not None,
            refused,
        )

    def of(self, nodes: NodeTable) -> Zones:
        """Return the rows of a table of nodes."""
        slots = nodes.slots
        if len(self._exists) < nodes.slot_count:
            self._grow(nodes.slot_count, self._exists.shape[1])
        single, by_pod, known, refused = (flag[slots] for flag in self._flags)
        columns = {name: column[slots] for name, column in self._columns.items()}
        return Zones(columns, self._exists[slots], single, by_pod, known, refused)

    def _grow(self, slots: int, zones: int) -> None:
        slots = max(slots, len(self._exists))
        zones = max(zones, self._exists.shape[1])
        exists = np.zeros((slots, zones), dtype=np.bool_)
        exists[: self._exists.shape[0], : self._exists.shape[1]] = self._exists
        flags = np.zeros((4, slots), dtype=np.bool_)
        flags[:, : self._flags.shape[1]] = self._flags
        for name, before in self._columns.items():
            column = np.full((slots, zones), LACKS, dtype=np.int64)
            column[: before.shape[0], : before.shape[1]] = before
            self._columns[name] = column
        self._exists, self._flags = exists, flags
