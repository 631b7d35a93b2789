"""The columns behind `NodeTable`: one slot per node, kept for the node's life.

The host's snapshot update, or a served plugin's delta, writes the columns between cycles. `NodeTable` reads
them, as read-only arrays.

Source of the fields: kube-scheduler `framework/types.go` NodeInfo, v1.36.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from berth_sdk.node import Node, Taint
from berth_sdk.pod import HostPort, Pod
from berth_sdk.tables.dictionary import Dictionary
from berth_sdk.tables.node_images import NodeImages
from berth_sdk.tables.pod_counts import PodCounts
from berth_sdk.tables.pod_volumes import PodVolumes
from berth_sdk.tables.read_only import extended, read_only
from berth_sdk.tables.resource_rows import ResourceRows
from berth_sdk.tables.slot_log import SlotLog
from berth_sdk.tables.used_ports import addresses_in_conflict
from berth_sdk.undeclared import Undeclared

if TYPE_CHECKING:
    from berth_sdk.tables.node_table import NodeTable
    from berth_sdk.tables.pod_table import PodTable

_FIRST_CAPACITY: Final = 16
NON_ZERO: Final = ("cpu", "memory")
_USUAL: Final = ("cpu", "memory", "ephemeral-storage", "pods")
MAX_LABELS: Final = 1024
"""The number of columns by label that are kept. Further ones are built at each read."""
_CARRIED_LABELS: Final = 256
"""The number of columns by label that stay, the oldest first, where an update finds twice as many."""
MAX_INT64: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    """A node's usage by pods, reserved pods included. cpu in milli, all else in base units."""

    requested: Mapping[str, int] = field(default_factory=dict)
    non_zero_requested: Mapping[str, int] = field(default_factory=dict)
    pod_count: int = 0
    host_ports: frozenset[HostPort] = frozenset()


def changed_usage(usage: NodeUsage, removed: Iterable[Pod], added: Iterable[Pod]) -> NodeUsage:
    """Return the usage of a node after the pods `removed` left and the pods `added` came.

    Host ports are a set, as in kube-scheduler's NodeInfo: of two pods with the same port, the first that
    leaves frees the port. A usage that is not known stays unknown. A total is limited to int64, which the
    columns can hold.
    """
    if isinstance(usage.requested, Undeclared):
        return usage
    requested = dict(usage.requested)
    non_zero = dict(usage.non_zero_requested)
    ports = set(usage.host_ports)
    count = usage.pod_count
    for sign, pods in ((-1, removed), (1, added)):
        for pod in pods:
            count += sign
            for name, value in pod.requests.items():
                requested[name] = min(requested.get(name, 0) + sign * value, MAX_INT64)
            for name, value in pod.non_zero_requests.items():
                non_zero[name] = min(non_zero.get(name, 0) + sign * value, MAX_INT64)
            normalized = {port.normalized for port in pod.host_ports}
            ports = ports - normalized if sign < 0 else ports | normalized
    return NodeUsage(
        requested=requested,
        non_zero_requested=non_zero,
        pod_count=count,
        host_ports=frozenset(ports),
    )


_normalized: Final = attrgetter("normalized")


class NodeColumns:
    """Columns with slots 0..capacity-1. A freed slot is reused only after `reclaim`.

    - `generation` (int64[capacity]): changes whenever a row changes; the writer sets it with `touch`.
      `generation_sum`: the sum of all.
    - `version`: grows with any change. `names_version`: grows when a node is added or removed.
      `nodes_version`: grows also when a Node object changes.
    - `moved`, `node_moved`: logs of the changed rows, for any change and for changes of Node objects.
    - `pods`: the pods on these nodes; None: not known.
    """

    def __init__(self) -> None:
        self.identity = object()
        """A token that identifies these columns, for code that must not hold a reference to them."""
        self.capacity = 0
        self.version = 0
        self.names_version = 0
        self.nodes_version = 0
        self.moved = SlotLog()
        self.node_moved = SlotLog()
        self.nodes: list[Node | None] = []
        self.usages: list[NodeUsage] = []
        self.names: NDArray[np.object_] = np.zeros(0, dtype=np.object_)
        self.index_of: dict[str, int] = {}
        self.live: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.generation: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.generation_sum = 0
        self.unschedulable: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.pod_count: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.taint_set: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self.taint_sets: Dictionary[tuple[Taint, ...]] = Dictionary()
        self.allocatable = ResourceRows(_USUAL, self._offers)
        self.requested = ResourceRows(_USUAL, self._requests)
        self.non_zero: NDArray[np.int64] = np.zeros((len(NON_ZERO), 0), dtype=np.int64)
        self.labels: dict[str, tuple[NDArray[np.int32], Dictionary[str]]] = {}
        self._labels_written = False
        self._label_keys: set[str] | None = None
        """The label keys that some node has, or had; None: no label was read yet."""
        self._no_label: tuple[NDArray[np.int32], Dictionary[str]] = (
            np.zeros(0, dtype=np.int32),
            Dictionary(),
        )
        """The column of every key that no node has."""
        self._rare: tuple[int, dict[str, list[tuple[int, str]]]] | None = None
        """The latest result of `_rare_labels`, with its version of the nodes."""
        self._most_keys = 0
        """The number of `_label_keys` above which an update counts them anew."""
        self.features: dict[str, NDArray[np.bool_]] = {}
        self.port_users: dict[tuple[str, int], dict[str, int]] = {}
        """By protocol and number, then by address: the slots where the port is in use, each a bit. One pod
        may use tens of thousands of ports, for which columns would be large.
        """
        self.images = NodeImages(self)
        self.pods: PodTable | None = None
        self.pod_counts = PodCounts(self)
        self.pod_volumes = PodVolumes(self)
        self._free: list[int] = []
        self._freed: list[tuple[int, int]] = []
        self._live_slots: NDArray[np.intp] | None = None
        self.whole: tuple[int, NodeTable] | None = None
        """The result of `NodeTable.of`, with its version."""
        self.taken: tuple[NDArray[Any], NDArray[np.intp], NDArray[np.intp]] | None = None
        """Positions that do not change, the rows that they were taken from, and the result."""
        self.few: tuple[int, list[int], NodeTable] | None = None
        """The last table of few rows that `NodeTable.take` made, with its version and slots."""
        self.views: dict[Hashable, tuple[Any, Any]] = {}
        """Views for plugins with limited needs: for each, the original record or table, and the view. See
        `limited_tables`.
        """
        self.contents: dict[Hashable, Any] = {}
        """The contents of the rows, by the set of columns; see `berth_sdk.kept.row_contents`."""
        self._grow(_FIRST_CAPACITY)

    # --- reading -----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.index_of)

    def live_slots(self) -> NDArray[np.intp]:
        """Return the slots in use, ascending; read-only."""
        if self._live_slots is None:
            self._live_slots = read_only(np.flatnonzero(self.live))
        return self._live_slots

    def label(self, key: str) -> tuple[NDArray[np.int32], Dictionary[str]]:
        """Return codes int32[capacity] (0: the node lacks the label) and their dictionary, built once.

        All keys that no node has share one column, so that a pod that names thousands of them costs nothing.
        """
        column = self.labels.get(key)
        if column is None:
            if key not in self._known_keys():
                return self._no_label
            column = self._label_column(key)
            if len(self.labels) < MAX_LABELS:
                self.labels[key] = column
        return column

    def label_keys(self, keys: Iterable[str]) -> list[str]:
        """Return the `keys` that some node has as a label, or had."""
        known = self._known_keys()
        return [key for key in keys if key in known]

    def _known_keys(self) -> set[str]:
        if self._label_keys is None:
            self._label_keys = self._keys_of_nodes()
        return self._label_keys

    def _label_column(self, key: str) -> tuple[NDArray[np.int32], Dictionary[str]]:
        values: Dictionary[str] = Dictionary()
        codes = np.zeros(self.capacity, dtype=np.int32)
        if len(self.labels) >= MAX_LABELS:
            for slot, value in self._rare_labels().get(key, ()):
                codes[slot] = values.encode(value)
            return codes, values
        for slot, node in self._live_nodes():
            found = node.labels.get(key)
            if found is not None:
                codes[slot] = values.encode(found)
        return codes, values

    def _rare_labels(self) -> Mapping[str, Sequence[tuple[int, str]]]:
        """Return (slot, value) of each node that has a label, for the labels without a kept column."""
        if self._rare is None or self._rare[0] != self.nodes_version:
            rare: dict[str, list[tuple[int, str]]] = {}
            for slot, node in self._live_nodes():
                for key, value in node.labels.items():
                    if key not in self.labels:
                        rare.setdefault(key, []).append((slot, value))
            self._rare = (self.nodes_version, rare)
        return self._rare[1]

    def _keys_of_nodes(self) -> set[str]:
        keys: set[str] = set()
        for _, node in self._live_nodes():
            keys.update(node.labels)
        return keys

    def feature(self, name: str) -> NDArray[np.bool_]:
        """Return bool[capacity]: the nodes that declare the feature, built once."""
        column = self.features.get(name)
        if column is None:
            column = np.zeros(self.capacity, dtype=np.bool_)
            for slot, node in self._live_nodes():
                column[slot] = name in node.declared_features
            self.features[name] = column
        return column

    def ports_in_conflict(self, ports: Iterable[HostPort]) -> NDArray[np.bool_]:
        """Return bool[capacity]: where one of `ports` is taken. 0.0.0.0 conflicts with every address."""
        slots = 0
        for port in ports:
            for _, users in self._users_in_conflict(port.normalized):
                slots |= users
        return self._at(slots)

    def users_in_conflict(self, port: HostPort) -> dict[HostPort, NDArray[np.bool_]]:
        """Return, for each port in use that conflicts with `port`, bool[capacity]: where the port is in
        use.
        """
        wanted = port.normalized
        return {
            HostPort(ip, wanted.protocol, wanted.port): self._at(users)
            for ip, users in self._users_in_conflict(wanted)
        }

    def _users_in_conflict(self, wanted: HostPort) -> Iterator[tuple[str, int]]:
        by_ip = self.port_users.get((wanted.protocol, wanted.port))
        if by_ip is not None:
            for ip in addresses_in_conflict(wanted.ip, by_ip):
                yield ip, by_ip[ip]

    def _at(self, slots: int) -> NDArray[np.bool_]:
        """Return bool[capacity]: the slots whose bits are set."""
        if not slots:
            return np.zeros(self.capacity, dtype=np.bool_)
        bits = np.frombuffer(slots.to_bytes(-(-self.capacity // 8), "little"), dtype=np.uint8)
        return np.unpackbits(bits, count=self.capacity, bitorder="little").view(np.bool_)

    def _live_nodes(self) -> Iterator[tuple[int, Node]]:
        for slot in self.index_of.values():
            node = self.nodes[slot]
            if node is not None:
                yield slot, node

    def _offers(self) -> Iterator[tuple[int, Mapping[str, int]]]:
        return ((slot, node.allocatable) for slot, node in self._live_nodes())

    def _requests(self) -> Iterator[tuple[int, Mapping[str, int]]]:
        return ((slot, usage.requested) for slot, usage in enumerate(self.usages) if usage.requested)

    # --- writing -----------------------------------------------------------------------------

    def begin_update(self) -> None:
        """Begin a new version. Rows written from now on get the current counts of images.

        Drops columns whose dictionary has far more values than there are nodes, and the newest of very many
        columns. The next read builds them again, with other codes, which counts as a change of the nodes.
        """
        self.images.begin_update()
        self._rare = None
        if self.allocatable.has_new:
            self.allocatable.begin_update()
        if self.requested.has_new:
            self.requested.begin_update()
        if self.labels and self._labels_written:
            self._labels_written = False
            most = 4 * len(self) + 4096
            self._drop_labels([key for key, (_, values) in self.labels.items() if len(values) > most])
            if self._label_keys is not None and len(self._label_keys) > max(most, self._most_keys):
                self._label_keys = self._keys_of_nodes()
                self._most_keys = 2 * len(self._label_keys)
        if len(self.labels) > 2 * _CARRIED_LABELS:
            self._drop_labels(list(self.labels)[_CARRIED_LABELS:])
        if self.pods is not None:
            self.pods.begin_update()

    def _drop_labels(self, keys: list[str]) -> None:
        for key in keys:
            del self.labels[key]
        if keys:
            self.nodes_version += 1

    def add(self, node: Node, slot: int | None = None) -> int:
        """Give `node` a slot, fill the columns of its object, and return the slot. `slot`: the slot that the
        host chose.
        """
        if slot is None:
            slot = self._free.pop() if self._free else len(self.index_of) + len(self._freed)
        if slot >= self.capacity:
            self._grow(max(slot + 1, 2 * self.capacity))
        self.names_version += 1
        self.index_of[node.name] = slot
        self.names[slot] = node.name
        self.live[slot] = True
        self._live_slots = None
        self.usages[slot] = NodeUsage()
        self.set_node(slot, node)
        return slot

    def touch(self, slot: int, generation: int, usage: NodeUsage | None = None) -> None:
        """Mark the row as written in this update, at `generation`. `usage`: the new usage by pods, as in
        `set_usage`; None: unchanged.
        """
        if usage is not None:
            self._fill_usage(slot, usage)
        self.generation_sum += generation - self.generation.item(slot)
        self.generation[slot] = generation
        if self.images.refresh_row(slot):
            self._images_read_anew(slot)
        self.moved.add(slot)
        self.version += 1

    def remove(self, slot: int, generation: int | None = None) -> None:
        """Clear a slot and the pods on it. The slot stays unused until `reclaim`.

        `generation`: of the removal; None: only the caller of `add` chooses slots, so `reclaim` is not
        needed.
        """
        node = self.nodes[slot]
        if node is None:
            return
        if self.pods is not None:
            self.pods.set_node_pods(slot, (), (), generation or 0)
        self.set_usage(slot, NodeUsage())
        self.set_node(slot, Node(name=node.name))
        self.nodes[slot] = None
        if self.index_of.get(node.name) == slot:
            del self.index_of[node.name]
        self.names_version += 1
        self.names[slot] = None
        self.live[slot] = False
        self.generation_sum -= self.generation.item(slot)
        self.generation[slot] = 0
        if generation is not None:
            self._freed.append((generation, slot))
        self._live_slots = None
        self.version += 1

    @property
    def has_freed(self) -> bool:
        """True while freed slots wait for `reclaim`."""
        return bool(self._freed)

    def reclaim(self, confirmed: int | None = None) -> None:
        """Make freed slots usable again, lowest first, after every copy has confirmed their removal.

        `confirmed`: only slots freed at this generation or before; None: all.
        """
        if self._freed:
            done = [slot for at, slot in self._freed if confirmed is None or at <= confirmed]
            self._freed = [(at, slot) for at, slot in self._freed if confirmed is not None and at > confirmed]
            self._free = sorted([*self._free, *done], reverse=True)

    def set_node(self, slot: int, node: Node) -> None:
        """Fill the columns that come from the Node object."""
        old = self.nodes[slot]
        self.nodes[slot] = node
        self.unschedulable[slot] = node.unschedulable
        self.taint_set[slot] = self.taint_sets.encode(node.taints) if node.taints else 0
        self.allocatable.set(slot, node.allocatable, old.allocatable if old else {})
        for key, (codes, values) in self.labels.items():
            value = node.labels.get(key)
            codes[slot] = 0 if value is None else values.encode(value)
        if self._label_keys is not None:
            self._label_keys.update(node.labels)
        self._labels_written = True
        for name, column in self.features.items():
            column[slot] = name in node.declared_features
        self.images.set_row(slot, old.images if old else (), node.images)
        self.nodes_version += 1
        self.node_moved.add(slot)
        self.moved.add(slot)
        self.version += 1

    def set_usage(self, slot: int, usage: NodeUsage) -> None:
        """Fill the columns that come from the pods on the node."""
        self._fill_usage(slot, usage)
        if self.images.refresh_row(slot):
            self._images_read_anew(slot)
        self.moved.add(slot)
        self.version += 1

    def _fill_usage(self, slot: int, usage: NodeUsage) -> None:
        old = self.usages[slot]
        self.usages[slot] = usage
        self.pod_count[slot] = usage.pod_count
        self.requested.set(slot, usage.requested, old.requested)
        amounts = usage.non_zero_requested
        for row, name in enumerate(NON_ZERO):
            self.non_zero[row, slot] = amounts.get(name, 0)
        if old.host_ports != usage.host_ports:
            self._drop_ports(slot, old.host_ports - usage.host_ports)
            for port in map(_normalized, usage.host_ports - old.host_ports):
                by_ip = self.port_users.setdefault((port.protocol, port.port), {})
                by_ip[port.ip] = by_ip.get(port.ip, 0) | 1 << slot

    def _images_read_anew(self, slot: int) -> None:
        node = self.nodes[slot]
        if node is not None and node.images:
            # The row's image counts follow the Node objects, and only now take their current values.
            self.node_moved.add(slot)

    def _drop_ports(self, slot: int, ports: Iterable[HostPort]) -> None:
        for port in map(_normalized, ports):
            by_ip = self.port_users[port.protocol, port.port]
            by_ip[port.ip] &= ~(1 << slot)
            if not by_ip[port.ip]:
                del by_ip[port.ip]
                if not by_ip:
                    del self.port_users[port.protocol, port.port]

    def _grow(self, capacity: int) -> None:
        more = capacity - self.capacity
        self.nodes.extend([None] * more)
        self.usages.extend([NodeUsage()] * more)
        self.names = np.concatenate([self.names, np.full(more, None, dtype=np.object_)])
        for name in ("live", "generation", "unschedulable", "pod_count", "taint_set"):
            setattr(self, name, extended(getattr(self, name), more))
        self.allocatable.grow(more)
        self.requested.grow(more)
        self.non_zero = extended(self.non_zero, more)
        for key, (codes, values) in self.labels.items():
            self.labels[key] = (extended(codes, more), values)
        self._no_label = (extended(self._no_label[0], more), self._no_label[1])
        self.features = {name: extended(column, more) for name, column in self.features.items()}
        self.images.grow(more)
        self.capacity = capacity
