"""`CsiNodes`: the CSINode of each node, as columns by slot, updated by changed objects.

Used by NodeVolumeLimits (the number of volumes that a driver can attach) and VolumeBinding (the in-tree
plugins that have been migrated).

Source: storage/v1 CSINode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from berth_sdk.handle import Handle
from berth_sdk.kube_object import KubeObject
from berth_sdk.tables import Dictionary, Moved, NodeTable, SlotFollower
from numpy.typing import NDArray

from berth_plugins.objects.records import Follower, Records
from berth_plugins.volumes.csi_migration import MIGRATED_PLUGINS
from berth_plugins.volumes.records import CSI_NODES

UNLIMITED: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class CsiNode:
    """A CSINode. `limits`: the number of volumes by driver, where set. `drivers`: the installed drivers."""

    migrated: frozenset[str]
    limits: Mapping[str, int]
    drivers: frozenset[str]

    @staticmethod
    def of(item: KubeObject) -> CsiNode:
        """Read a CSINode."""
        drivers = item.get("spec.drivers") or ()
        annotations = item.get("metadata.annotations") or {}
        limits = {str(one.get("name") or ""): (one.get("allocatable") or {}).get("count") for one in drivers}
        return CsiNode(
            migrated=frozenset(filter(None, (annotations.get(MIGRATED_PLUGINS) or "").split(","))),
            limits={name: int(count) for name, count in limits.items() if count is not None},
            drivers=frozenset(limits),
        )


NO_CSI_NODE: Final = CsiNode(frozenset(), {}, frozenset())


class CsiNodes:
    """The CSINodes of all nodes. All columns are by slot. Call `catch_up` first, in every call that reads
    them.
    """

    def __init__(self, handle: Handle) -> None:
        self._records = Records(handle, CSI_NODES, CsiNode.of)
        self._rows = SlotFollower(Moved.NODE)
        self._objects: Follower | None = None
        self._limits: dict[str, NDArray[np.int64]] = {}
        self._migrated: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._plugin_sets: Dictionary[frozenset[str]] = Dictionary()
        self._drivers: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._driver_sets: Dictionary[frozenset[str]] = Dictionary()
        self._is_limited: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    def catch_up(self, nodes: NodeTable) -> list[int] | None:
        """Apply the changes, and return the slots whose CSINode may have changed. None: all slots."""
        if self._objects is None:
            self._objects = self._records.follow()
        whole = nodes.whole
        slots, changed = self._rows.moved(nodes), self._objects.moved()
        if slots is None or changed is None:
            self._limits.clear()
            self._plugin_sets, self._driver_sets = Dictionary(), Dictionary()
            self._migrated = np.zeros(nodes.slot_count, dtype=np.int32)
            self._drivers = np.zeros(nodes.slot_count, dtype=np.int32)
            self._is_limited = np.zeros(nodes.slot_count, dtype=np.bool_)
            for _, name in self._records.everything():
                position = whole.position(name)
                if position is not None:
                    self._set(int(whole.slots[position]), self._records.get(name))
            return None
        self._grow(nodes.slot_count)
        touched: dict[int, CsiNode | None] = {}
        for slot in slots:
            position = whole.position_of_slot(slot)
            touched[slot] = None if position is None else self._records.get(whole.name(position))
        for _, name in changed:
            position = whole.position(name)
            if position is not None:
                touched[int(whole.slots[position])] = self._records.get(name)
        for slot, record in touched.items():
            self._set(slot, record)
        return list(touched)

    def limit(self, driver: str, nodes: NodeTable) -> NDArray[np.int64] | None:
        """Return int64[n]: the number of the driver's volumes that a node can attach, `UNLIMITED` where it is
        not set.

        None: no node sets it.
        """
        column = self._limits.get(driver)
        return None if column is None else nodes.take_of(column)

    def migrated(self, plugin: str, nodes: NodeTable) -> NDArray[np.bool_]:
        """Return bool[n]: the nodes whose kubelet has migrated the in-tree plugin to its CSI driver."""
        known = self._plugin_sets.where(lambda plugins: plugin in plugins)
        return known.take(nodes.take_of(self._migrated))

    def limited(self, nodes: NodeTable) -> NDArray[np.bool_]:
        """Return bool[n]: the nodes with a limit for any driver."""
        return nodes.take_of(self._is_limited)

    def installed(self, driver: str, nodes: NodeTable) -> NDArray[np.bool_]:
        """Return bool[n]: the nodes that list the driver."""
        known = self._driver_sets.where(lambda drivers: driver in drivers)
        return known.take(nodes.take_of(self._drivers))

    def _set(self, slot: int, record: CsiNode | None) -> None:
        record = NO_CSI_NODE if record is None else record
        self._migrated[slot] = self._plugin_sets.encode(record.migrated) if record.migrated else 0
        self._drivers[slot] = self._driver_sets.encode(record.drivers) if record.drivers else 0
        self._is_limited[slot] = bool(record.limits)
        limits = record.limits
        for driver, column in self._limits.items():
            column[slot] = limits.get(driver, UNLIMITED)
        for driver in limits.keys() - self._limits.keys():
            column = self._limits[driver] = np.full(len(self._migrated), UNLIMITED, dtype=np.int64)
            column[slot] = limits[driver]

    def _grow(self, count: int) -> None:
        more = count - len(self._migrated)
        if more <= 0:
            return
        self._migrated = np.concatenate([self._migrated, np.zeros(more, dtype=np.int32)])
        self._drivers = np.concatenate([self._drivers, np.zeros(more, dtype=np.int32)])
        self._is_limited = np.concatenate([self._is_limited, np.zeros(more, dtype=np.bool_)])
        self._limits = {
            driver: np.concatenate([column, np.full(more, UNLIMITED, dtype=np.int64)])
            for driver, column in self._limits.items()
        }
