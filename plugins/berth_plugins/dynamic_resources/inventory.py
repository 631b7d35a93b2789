"""`Inventory`: the pools of the cluster, updated slice by slice, and the nodes that can use each.

Nodes that can use the same devices in the same way form a group, so that the search runs once per group. A
node with slices of its own is a group of its own. All other nodes are grouped by the slices that match them.

Source: `dynamic-resource-allocation/structured/internal/incubating/pools_incubating.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from berth_sdk.errors import BerthError
from berth_sdk.handle import ObjectReader
from berth_sdk.slices import Work
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.dynamic_resources.devices import Device, Place, PoolId, Slice
from berth_plugins.dynamic_resources.rules import TaintRules


@dataclass(slots=True, eq=False)
class Pool:
    """The newest generation of one pool."""

    id: PoolId
    slices: list[Slice] = field(default_factory=list)
    is_incomplete: bool = False
    is_invalid: bool = False
    counters: dict[str, Mapping[str, int]] = field(default_factory=dict)
    node_names: frozenset[str] = frozenset()

    @staticmethod
    def of(pool_id: PoolId, slices: Iterable[Slice]) -> Pool:
        """Return the slices of the highest generation, by name, without older ones."""
        known = sorted(slices, key=lambda one: one.name)
        newest = max(one.generation for one in known)
        pool = Pool(pool_id, [one for one in known if one.generation == newest])
        pool.node_names = frozenset(
            one.place.node_name for one in pool.slices if one.place.node_name is not None
        )
        pool.is_incomplete = len(pool.slices) != pool.slices[0].slice_count
        for one in pool.slices:
            if one.repeats_counter_set or pool.counters.keys() & one.counters.keys():
                pool.is_invalid = True
            pool.counters.update(one.counters)
        for device in pool.devices:
            for name, amounts in device.consumes:
                if not amounts.keys() <= pool.counters.get(name, {}).keys() or name not in pool.counters:
                    pool.is_invalid = True
        return pool

    @property
    def devices(self) -> Iterable[Device]:
        """All devices of the pool, whichever nodes may use them."""
        return (device for one in self.slices for device in one.devices)


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A device of a slice that a node can use. `is_here`: the node can use this device as well."""

    device: Device
    slice: Slice
    is_here: bool


class NodePool:
    """The part of a pool that one node can use: its slices, device by device."""

    def __init__(self, pool: Pool, slices: Sequence[Slice], is_here: Callable[[Place], bool]) -> None:
        self.pool = pool
        self.is_incomplete = pool.is_incomplete
        self.candidates: list[Candidate] = []
        if self.is_incomplete:
            self.is_invalid = False
            return
        for one in slices:
            for device in one.devices:
                here = not one.per_device or is_here(device.place)
                self.candidates.append(Candidate(device, one, here))
        names = {candidate.device.id.device for candidate in self.candidates}
        self.is_invalid = pool.is_invalid or len(names) < len(self.candidates)

    @property
    def is_usable(self) -> bool:
        """True if devices of the pool may be taken at all."""
        return not self.is_incomplete and not self.is_invalid

    @cached_property
    def has_binding_conditions(self) -> bool:
        """True if a device has binding conditions. The search takes these pools last."""
        return any(candidate.device.binding_conditions for candidate in self.candidates)


class NodeGroup:
    """Rows of a table (intp[k]) whose nodes can use the same pools."""

    __slots__ = ("_find", "rows")

    def __init__(self, rows: NDArray[np.intp], find: Callable[[], list[NodePool]]) -> None:
        self.rows = rows
        self._find = find

    @property
    def pools(self) -> list[NodePool]:
        """The pools, in the order of the search."""
        return sorted(self._find(), key=lambda one: (one.has_binding_conditions, one.pool.id))


class Inventory:
    """All pools, from the ResourceSlices of `reader`, with the taints of `taint_rules`.

    `local_counters`: as in `Rules`.
    """

    def __init__(self, reader: ObjectReader, taint_rules: TaintRules, *, local_counters: bool = True) -> None:
        self._reader = reader
        self._taint_rules = taint_rules
        self._local_counters = local_counters
        self._version: int | None = None
        self._unread: set[str] = set()
        self._unbuilt: set[PoolId] = set()
        self._slices: dict[str, Slice] = {}
        self._by_pool: dict[PoolId, dict[str, Slice]] = {}
        self.pools: dict[PoolId, Pool] = {}
        self.broken: dict[str, str] = {}
        """Slices that cannot be read, with the error."""
        # Pools with slices of one node each, by that node; and pools that more than one node can use.
        self._local: dict[str, set[PoolId]] = {}
        self._wide: set[PoolId] = set()
        self._seen: dict[str, list[NodePool]] = {}
        """By node, what `local` returned, until one of these pools changes."""
        self._clock = 0
        self._wide_stamp = 0
        self._slots = _Slots(None, np.zeros(0, dtype=np.object_), {})

    def refresh(self) -> Work[None]:
        """Read the slices and the taint rules that changed since the last call. Yields after each slice and
        each pool; another caller meanwhile reads the rest.
        """
        self._note_changes()
        while self._unread:
            self._unbuilt |= self._read(self._unread.pop())
            yield
        while self._unbuilt:
            self._rebuild(self._unbuilt.pop())
            yield

    def _note_changes(self) -> None:
        version, rules = self._reader.version, self._taint_rules.refresh()
        if version == self._version and not rules:
            return
        moved = None if self._version is None else self._reader.moved_since(self._version)
        self._version = version
        if moved is None:
            self._unread |= {*self._slices, *self.broken, *(item.ref.name for item in self._reader.list())}
        else:
            self._unread |= {name for _, name in moved}
        if rules:
            self._unread |= {
                name for name, one in self._slices.items() if any(rule.concerns(one) for rule in rules)
            }

    def touch(self, pool_id: PoolId) -> None:
        """Record a change of the pool, or of the amounts in use."""
        pool = self.pools.get(pool_id)
        if pool is None:
            return
        self._clock += 1
        if pool_id in self._wide:
            self._wide_stamp = self._clock
        slots = self._slots
        for name in pool.node_names:
            slot = slots.slot_of.get(name)
            if slot is not None:
                slots.stamps[slot] = self._clock

    def seen_by(self, nodes: NodeTable) -> SeenPools:
        """Return the pools that the nodes can use, at this moment."""
        if self._slots.identity != nodes.names_identity:
            self._place(nodes)
        return SeenPools(self, nodes)

    def local(self, name: str) -> list[NodePool]:
        """Return the pools that only this node can use, as the node sees them."""
        seen = self._seen.get(name)
        if seen is None:
            pools = (
                self.pools[pool_id] for pool_id in self._local.get(name, ()) if pool_id not in self._wide
            )

            def is_here(place: Place) -> bool:
                return place.node_name == name if place.node_name is not None else place.everywhere

            found = (_seen(pool, is_here, local_counters=self._local_counters) for pool in pools)
            seen = self._seen[name] = [one for one in found if one is not None]
        return seen

    def _place(self, nodes: NodeTable) -> None:
        """Give each slot of the table the stamp of its node: a new one where the node is another one."""
        whole, old = nodes.whole, self._slots
        named = whole.names
        names = np.full(nodes.slot_count, None, dtype=np.object_)
        names[whole.slots] = named
        new = _Slots(nodes.names_identity, names, dict(zip(named, whole.slots.tolist(), strict=True)))
        known = min(len(old.names), len(names))
        same = np.zeros(len(names), dtype=np.bool_)
        same[:known] = old.names[:known] == names[:known]
        kept = np.flatnonzero(same)
        self._clock += 1
        new.stamps[:] = self._clock
        new.stamps[kept], new.is_local[kept] = old.stamps[kept], old.is_local[kept]
        for slot in np.flatnonzero(~same).tolist():
            new.is_local[slot] = names[slot] in self._local
        self._slots = new

    def _read(self, name: str) -> set[PoolId]:
        """Read the current version of one slice, and return the pools that it affects."""
        concerned: set[PoolId] = set()
        old = self._slices.pop(name, None)
        self.broken.pop(name, None)
        if old is not None:
            del self._by_pool[old.pool][name]
            concerned.add(old.pool)
        item = self._reader.get(name)
        if item is not None:
            try:
                new = self._taint_rules.applied(Slice.of(item))
            except (BerthError, KeyError, TypeError, AttributeError, ValueError) as err:
                self.broken[name] = f"{type(err).__name__}: {err}" if isinstance(err, KeyError) else str(err)
                return concerned
            self._slices[name] = new
            self._by_pool.setdefault(new.pool, {})[name] = new
            concerned.add(new.pool)
        return concerned

    def _rebuild(self, pool_id: PoolId) -> None:
        # Nodes of the old pool can use a different one now, also if nothing of it is left.
        self.touch(pool_id)
        old = self.pools.pop(pool_id, None)
        self._wide.discard(pool_id)
        for name in old.node_names if old is not None else ():
            self._local[name].discard(pool_id)
            self._seen.pop(name, None)
            if not self._local[name]:
                del self._local[name]
                self._slots.set_local(name, False)
        slices = self._by_pool.get(pool_id)
        if not slices:
            self._by_pool.pop(pool_id, None)
            return
        pool = self.pools[pool_id] = Pool.of(pool_id, slices.values())
        for name in pool.node_names:
            self._local.setdefault(name, set()).add(pool_id)
            self._seen.pop(name, None)
            self._slots.set_local(name, True)
        if any(
            one.place.node_name is None or (one.counters and not self._local_counters) for one in pool.slices
        ):
            self._wide.add(pool_id)
        self.touch(pool_id)


class _Slots:
    """The slots of a table, with the last change of each. `identity`: of the table's names. `stamps`
    (int64[slots]): the last change of pools of this node alone. `is_local`: whether such pools exist.
    """

    __slots__ = ("identity", "is_local", "names", "slot_of", "stamps")

    def __init__(self, identity: Hashable, names: NDArray[np.object_], slot_of: dict[str, int]) -> None:
        self.identity = identity
        self.names = names
        self.slot_of = slot_of
        self.stamps = np.zeros(len(names), dtype=np.int64)
        self.is_local = np.zeros(len(names), dtype=np.bool_)

    def set_local(self, name: str, is_local: bool) -> None:
        """Record whether a node has pools of its own, if the table has the node."""
        slot = self.slot_of.get(name)
        if slot is not None:
            self.is_local[slot] = is_local


class SeenPools:
    """The pools that the nodes of one table can use.

    `stamps` (int64[n]): by row, the last change of a pool that the node can use, or of the amounts in use.
    `places`: by row, a code of the node's selectors that match; None: no pool has a selector. An answer about
    a node holds while both stay equal. `slot_of`: the slots of the snapshot by name.
    """

    def __init__(self, inventory: Inventory, nodes: NodeTable) -> None:
        slots = inventory._slots
        self.slot_of: Mapping[str, int] = slots.slot_of
        self._inventory = inventory
        self._nodes = nodes
        self._wide = [inventory.pools[pool_id] for pool_id in sorted(inventory._wide)]
        self._places = _Places(self._wide, nodes, local_counters=inventory._local_counters)
        self._is_local = slots.is_local[nodes.slots]
        self.stamps: NDArray[np.int64] = np.maximum(slots.stamps[nodes.slots], inventory._wide_stamp)
        self.places = self._places.codes

    def groups(self, rows: NDArray[np.intp]) -> Iterator[NodeGroup]:
        """Yield the rows, grouped by the pools that their nodes can use."""
        is_local = self._is_local[rows]
        for row in rows[is_local].tolist():
            yield NodeGroup(
                np.array([row], dtype=np.intp), partial(self._pools_at, row, self._nodes.name(row))
            )
        for same in self._places.together(rows[~is_local]):
            yield NodeGroup(same, partial(self._places.seen_from, same.item(0), "", self._wide))

    def _pools_at(self, row: int, name: str) -> list[NodePool]:
        """Return the pools of a node that has some of its own."""
        return [*self._inventory.local(name), *self._places.seen_from(row, name, self._wide)]


class _Places:
    """The rows of a table for each place of the wide pools."""

    def __init__(self, pools: Sequence[Pool], nodes: NodeTable, *, local_counters: bool) -> None:
        self._local_counters = local_counters
        self._masks = {id(place): place.over(nodes) for place in _selecting(pools)}
        self.codes: NDArray[np.uint8] | None = None
        """One row of bits for each node, equal for nodes at the same places; None: there are no places."""
        if self._masks:
            self.codes = np.packbits(np.stack(list(self._masks.values()), axis=1), axis=1)

    def together(self, rows: NDArray[np.intp]) -> list[NDArray[np.intp]]:
        """Return `rows` in groups of equal code."""
        if not len(rows):
            return []
        if self.codes is None:
            return [rows]
        _, inverse = np.unique(self.codes[rows], axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        order = np.argsort(inverse, kind="stable")
        return np.split(rows[order], np.flatnonzero(np.diff(inverse[order])) + 1)

    def seen_from(self, row: int, name: str, pools: Sequence[Pool]) -> list[NodePool]:
        """Return the part of `pools` that a row's node can use. `name`: the node's name, if it has slices of
        its own.
        """

        def is_here(place: Place) -> bool:
            mask = self._masks.get(id(place))
            if mask is not None:
                return bool(mask[row])
            return place.node_name == name if place.node_name is not None else place.everywhere

        found = (_seen(pool, is_here, local_counters=self._local_counters) for pool in pools)
        return [one for one in found if one is not None]


def _seen(pool: Pool, is_here: Callable[[Place], bool], *, local_counters: bool) -> NodePool | None:
    """Return the part of a pool that a node can use; None for nothing."""
    mine = [one for one in pool.slices if (one.counters and not local_counters) or _is_relevant(one, is_here)]
    return NodePool(pool, mine, is_here) if mine else None


def _is_relevant(one: Slice, is_here: Callable[[Place], bool]) -> bool:
    if one.place.is_said:
        return is_here(one.place)
    return one.per_device and any(is_here(device.place) for device in one.devices)


def _selecting(pools: Iterable[Pool]) -> Iterable[Place]:
    """Yield the places that exclude some nodes and that are not one node with slices of its own."""
    for pool in pools:
        for one in pool.slices:
            if one.place.selector is not None:
                yield one.place
            elif one.per_device:
                for device in one.devices:
                    if not device.place.everywhere:
                        yield device.place
