"""Provisioning: the nodes for which a claim can get a new volume, and whether there is room. Called at
Filter.

Source: `pkg/scheduler/framework/plugins/volumebinding/binder.go` (checkVolumeProvisions, hasEnoughCapacity)
and `pkg/apis/core/v1/helper/helpers.go` (MatchTopologySelectorTerms), v1.38.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from berth_sdk.errors import SelectorError
from berth_sdk.handle import Handle
from berth_sdk.kube_object import KubeObject
from berth_sdk.node_selectors import NodeSelector, NodeSelectorTerm
from berth_sdk.quantity import nano_value, whole_value, wrapped_value
from berth_sdk.selectors import LabelSelector
from berth_sdk.slices import Work
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.objects.records import Follower, Key, Late, Records
from berth_plugins.volumes.records import CSI_CAPACITIES, CSI_DRIVERS, Claim, StorageClass
from berth_plugins.volumes.volume_binding.groups import NodeGroups, Taken, first_reached

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_NO_NODE: Final = Late.known(NodeSelector())
_MORE_GROUPS: Final = 4096


@dataclass(frozen=True, slots=True)
class Capacity:
    """A CSIStorageCapacity. `limit_nano`: the largest volume, in billionths of a byte; None: not set.
    `total`: the free space, in bytes. `limit_wrapped`, `total_wrapped`: the same in bytes as kube-scheduler
    before 1.38 counts them (`wrapped_value`).
    """

    class_name: str
    limit_nano: int | None
    limit_wrapped: int
    total: int
    total_wrapped: int
    topology: Late[NodeSelector]

    @staticmethod
    def of(item: KubeObject) -> Capacity:
        """Read a capacity. A topology that is missing or cannot be read has no nodes. Raises
        QuantityError.
        """
        raw = item.parsed
        topology = raw.get("nodeTopology")
        return Capacity(
            raw.get("storageClassName") or "",
            limit_nano(item),
            wrapped_value(_limit(item) or 0),
            whole_value(raw.get("capacity") or 0),
            wrapped_value(raw.get("capacity") or 0),
            _NO_NODE if topology is None else Late(lambda: _topology(topology)),
        )


def _topology(raw: Mapping[str, Any]) -> Work[NodeSelector]:
    try:
        labels = yield from LabelSelector.read(raw, "nodeTopology")
    except SelectorError:
        return NodeSelector()
    return NodeSelector((NodeSelectorTerm(labels),))


def limit_nano(item: KubeObject) -> int | None:
    """Return the largest volume that a CSIStorageCapacity allows, in billionths of a byte. None: the object
    does not set it.
    """
    limit = _limit(item)
    return None if limit is None else nano_value(limit)


def _limit(item: KubeObject) -> Any:
    limit = item.get("maximumVolumeSize")
    return item.get("capacity") if limit is None else limit


@dataclass(slots=True)
class _Pools:
    """The capacities of one class, by namespace and name. `sizes`: the different limits, smallest first.
    `ranks`: the place of each item's limit among these; -1 where the item has none.
    """

    items: list[Capacity]
    sizes: list[int]
    ranks: NDArray[np.int64]
    groups: NDArray[np.int64]


class Provisioning:
    """The classes and capacities of all nodes. Call `catch_up` first, in every call that reads them."""

    def __init__(self, handle: Handle, classes: Records[StorageClass], *, exact: bool = True) -> None:
        """`exact`: sizes compare exactly; False: as 64 bits hold them."""
        self._exact = exact
        self._classes = classes
        self._drivers = Records(handle, CSI_DRIVERS, tracks_capacity)
        self._capacities = Records(handle, CSI_CAPACITIES, Capacity.of)
        self._follower: Follower | None = None
        self._groups = NodeGroups()
        self._keys: dict[str, list[Key]] = {}
        self._class_of: dict[Key, str] = {}
        self._pools: dict[str, _Pools] = {}

    def catch_up(self, nodes: NodeTable) -> Work[None]:
        """Apply the changed capacities, and the nodes that their topologies match.

        Yields while it reads the topology of changed capacities, and while it looks up their nodes.
        """
        if self._follower is None:
            self._follower = self._capacities.follow()
        for key in self._follower.pending():
            capacity = self._capacities.get(key[1], key[0])
            if capacity is not None:
                yield from capacity.topology.read()
            yield
        moved = self._follower.moved()
        if moved is None or len(self._groups) > 4 * len(self._class_of) + _MORE_GROUPS:
            self._groups.clear()
            self._keys, self._class_of, self._pools = {}, {}, {}
            moved = list(self._capacities.everything())
        for key in moved:
            self._put(key)
        for name in {class_name for class_name in self._keys if class_name not in self._pools}:
            self._pools[name] = self._pool(self._keys[name])
        yield from self._groups.catch_up(nodes)

    def nodes_for(self, storage_class: StorageClass, nodes: NodeTable) -> Work[NDArray[np.bool_]]:
        """Return bool[n]: where volumes of the class can be provisioned. Yields after each topology."""
        if storage_class.provisioner in ("", _NO_PROVISIONER):
            return np.zeros(len(nodes), dtype=np.bool_)
        if storage_class.topologies is None:
            return np.ones(len(nodes), dtype=np.bool_)
        mask = np.zeros(len(nodes), dtype=np.bool_)
        for selector in (yield from storage_class.topologies.read()):
            found = yield from selector.judged(nodes)
            if found is not False:
                mask |= found
            yield
        return mask

    def pools_for(
        self, storage_class: StorageClass, claim: Claim, positions: NDArray[np.int64], count: int
    ) -> tuple[list[Capacity], NDArray[np.int64]] | None:
        """Return (capacities, for each row the number of the first with room for the claim, -1: none).

        None: the driver does not publish its capacity.
        """
        if claim.requested_nano is None or not self._drivers.get(storage_class.provisioner):
            return None
        pools = self._pools.get(storage_class.name)
        if pools is None:
            return [], np.full(count, -1, dtype=np.int64)
        least = bisect_left(pools.sizes, claim.requested_nano if self._exact else claim.requested_wrapped)
        numbers = np.flatnonzero(pools.ranks >= least).astype(np.int64)
        codes = pools.groups.take(numbers)
        return pools.items, first_reached(numbers, codes, self._groups, positions, Taken(count), count)

    def _put(self, key: Key) -> None:
        before = self._class_of.pop(key, None)
        if before is not None:
            self._keys[before].remove(key)
            self._pools.pop(before, None)
            if not self._keys[before]:
                del self._keys[before]
        now = self._capacities.get(key[1], key[0])
        if now is None:
            return
        self._class_of[key] = now.class_name
        keys = self._keys.setdefault(now.class_name, [])
        keys.insert(bisect_left(keys, key), key)
        self._pools.pop(now.class_name, None)

    def _pool(self, keys: list[Key]) -> _Pools:
        items = [item for key in keys if (item := self._capacities.get(key[1], key[0])) is not None]
        limits = [
            None if item.limit_nano is None else item.limit_nano if self._exact else item.limit_wrapped
            for item in items
        ]
        sizes = sorted({limit for limit in limits if limit is not None})
        rank_of = {size: rank for rank, size in enumerate(sizes)}
        return _Pools(
            items,
            sizes,
            np.array([-1 if limit is None else rank_of[limit] for limit in limits], dtype=np.int64),
            np.array([self._groups.code_of(item.topology.value) for item in items], dtype=np.int64),
        )


def tracks_capacity(item: KubeObject) -> bool:
    """Return True if a CSIDriver publishes its free capacity."""
    return item.get("spec.storageCapacity") is True
