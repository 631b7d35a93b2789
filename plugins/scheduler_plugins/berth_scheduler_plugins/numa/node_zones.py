"""`NodeZones`: the zones of every node as the next pod finds them, brought up to date before each pod."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from berth_sdk.clocks import wall_s
from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_scheduler_plugins.numa.placed import (
    asks_of,
    counts_all,
    is_exclusive,
    take_aligned,
    take_everywhere,
    uncounted,
)
from berth_scheduler_plugins.numa.topology import Topology, read_topology
from berth_scheduler_plugins.numa.zone_columns import ZoneColumns

Free = list[dict[str, int]]


class Mode(Enum):
    """How pods count that a topology does not show yet."""

    ALIGNED = 1
    """The requests of such a pod are taken off the zones that the kubelet gives it."""
    EVERYWHERE = 2
    """The requests of such a pod are taken off every zone, until a topology has the fingerprint of all pods
    on the node. A pod of another scheduler makes the node unusable until then.
    """
    DISCARD = 3
    """Such a pod does not count. A node with a reserved pod is unusable until the pod is bound."""


class Foreign(Enum):
    """The pods of other schedulers that make a node unusable in the mode EVERYWHERE."""

    ALL = "All"
    NONE = "None"
    EXCLUSIVE = "OnlyExclusiveResources"


@dataclass(slots=True, eq=False)
class _Seen:
    """The object of a node. `at_s`: Unix seconds at which it was first seen. `counted`: for the mode
    EVERYWHERE, uids of the pods that `topology` counts.
    """

    item: KubeObject
    topology: Topology
    at_s: float
    counted: frozenset[str] = frozenset()


class NodeZones:
    """The zones by slot of the snapshot. `columns`: as columns. `free`, `topologies`: by slot as well.

    `changed`: the slots whose rows the last `follow` wrote.
    """

    def __init__(self, mode: Mode, foreign: Foreign = Foreign.ALL) -> None:
        self.columns = ZoneColumns()
        self.free: dict[int, Free] = {}
        self.topologies: dict[int, Topology] = {}
        self.changed: list[int] = []
        self._mode = mode
        self._foreign = foreign
        self._seen: dict[str, _Seen] = {}
        self._version: int | None = None
        self._identity: Hashable = None
        self._generation: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    @property
    def unknown(self) -> dict[str, str]:
        """The values of topologies that this plugin does not know, by name of the node."""
        return {name: seen.topology.unknown for name, seen in self._seen.items() if seen.topology.unknown}

    def follow(self, nodes: NodeTable, objects: ObjectReader, scheduler: str) -> None:
        """Bring the rows of all nodes up to date. `scheduler`: the name of the profile."""
        whole = nodes.whole
        if len(self._generation) < whole.slot_count:
            grown = np.full(whole.slot_count, -1, dtype=np.int64)
            grown[: len(self._generation)] = self._generation
            self._generation = grown
        slots = whole.slots
        moved = self._generation[slots] != whole.generation
        names = None if self._version is None else objects.moved_since(self._version)
        if names is None or self._identity != whole.names_identity:
            moved[:] = True
        else:
            for _, name in names:
                if (row := whole.position(name)) is not None:
                    moved[row] = True
        self._version, self._identity = objects.version, whole.names_identity
        self._generation[slots] = whole.generation
        rows = np.flatnonzero(moved).tolist()
        self.changed = slots[moved].tolist()
        for row in rows:
            self._write(whole, row, objects, scheduler)
        if len(self._seen) > 2 * len(whole) + 64:
            self._seen = {name: seen for name, seen in self._seen.items() if whole.position(name) is not None}

    def _write(self, nodes: NodeTable, row: int, objects: ObjectReader, scheduler: str) -> None:
        slot, name = nodes.slots.item(row), nodes.name(row)
        item = objects.get(name)
        if item is None:
            self._seen.pop(name, None)
            self.free.pop(slot, None)
            self.topologies.pop(slot, None)
            self.columns.set(slot, None, [], refused=False)
            return
        pods = nodes.pods.on_node(slot)
        seen = self._looked_at(name, item, pods)
        free = [dict(zone.free) for zone in seen.topology.zones]
        refused = False
        if self._mode is Mode.ALIGNED:
            for pod in uncounted(seen.topology, pods, seen.at_s):
                take_aligned(asks_of(pod), seen.topology, free)
        elif self._mode is Mode.DISCARD:
            refused = any(nodes.pods.is_assumed(pod.uid) for pod in pods)
        else:
            for pod in pods:
                if pod.uid in seen.counted:
                    continue
                if pod.scheduler_name == scheduler:
                    take_everywhere(asks_of(pod), free)
                else:
                    refused = refused or self._is_foreign(pod)
        self.free[slot], self.topologies[slot] = free, seen.topology
        self.columns.set(slot, seen.topology, free, refused=refused)

    def _looked_at(self, name: str, item: KubeObject, pods: list[Pod]) -> _Seen:
        """Return the object that counts: the latest one, or in the mode EVERYWHERE the last one that counted
        all pods of the node.
        """
        before = self._seen.get(name)
        if before is not None and before.item.ref.uid != item.ref.uid:
            before = None  # the object was deleted and created again, or is of another cluster
        if before is not None and before.item is item:
            return before
        topology = read_topology(item.parsed)
        is_whole = counts_all(topology, pods)
        if before is not None and self._mode is Mode.EVERYWHERE and not is_whole:
            return before
        # Of the first object of a node, nobody knows what it counts: the pods that run.
        counted = frozenset(pod.uid for pod in pods if is_whole or pod.started_at_s is not None)
        now = _Seen(item, topology, wall_s(), counted)
        self._seen[name] = now
        return now

    def _is_foreign(self, pod: Pod) -> bool:
        if self._foreign is Foreign.EXCLUSIVE:
            return is_exclusive(asks_of(pod))
        return self._foreign is Foreign.ALL
