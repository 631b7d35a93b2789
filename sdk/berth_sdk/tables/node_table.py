"""`NodeTable`: the candidate nodes of a call, as columns.

A view of some rows of `NodeColumns`, in ascending slot order unless stated otherwise. Every array is
read-only, has one entry per row, and belongs to one version of the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth_sdk.node import Node, Taint
from berth_sdk.pod import HostPort
from berth_sdk.tables.dictionary import Dictionary
from berth_sdk.tables.few import FEW
from berth_sdk.tables.node_columns import NON_ZERO, NodeColumns, NodeUsage
from berth_sdk.tables.node_view import NodeView
from berth_sdk.tables.pod_counts import PodCounts
from berth_sdk.tables.pod_volumes import PodVolumes
from berth_sdk.tables.read_only import read_only
from berth_sdk.tables.resource_rows import MAX_ROWS, ResourceRows
from berth_sdk.tables.row_changes import RowChanges, ToldUsages

if TYPE_CHECKING:
    from berth_sdk.tables.pod_changes import PodChanges
    from berth_sdk.tables.pod_table import PodTable

T = TypeVar("T", bound="NodeTable")


class NodeTable:
    """n candidate nodes. `slots` (intp[n]): their stable indices, as in the contract. A row is a position
    among the n.

    `changes`: pods removed from and added to each row, for what-if questions; see `berth_sdk.scenarios`.
    """

    __slots__ = ("_all", "_changes", "_limited", "_several_of", "_sorted", "columns", "is_whole", "slots")
    _view: ClassVar[type[NodeView]] = NodeView

    def __init__(
        self,
        columns: NodeColumns,
        slots: NDArray[np.intp] | None = None,
        changes: RowChanges | None = None,
    ) -> None:
        self.columns = columns
        """The columns behind the table, for the host and what keeps answers. A plugin reads the methods."""
        # One array for all tables of the same nodes: a cache with the array as its key then finds it by
        # identity.
        if slots is None:
            self.slots = columns.live_slots()
        else:
            self.slots = read_only(slots) if slots.flags.writeable else slots
        self._sorted: bool | None = True if slots is None else None
        self.is_whole = slots is None
        """True if the table has every node of the snapshot, in the order of their slots."""
        # If the table has all slots 0..n-1, columns need no copy.
        count = len(self.slots)
        self._all = bool(
            count
            and self.slots.item(-1) == count - 1
            and self.slots.item(0) == 0
            and (slots is None or self._ascending())
        )
        self._changes = changes
        self._several_of: dict[tuple[str, tuple[str, ...]], NDArray[np.int64]] = {}
        self._limited: dict[type[NodeTable], NodeTable] | None = None
        """The tables made by `seen_as`; None: none yet."""

    @classmethod
    def of(cls, columns: NodeColumns) -> NodeTable:
        """Return every node of `columns`, without changes. Returns the same table until a column changes."""
        if columns.whole is None or columns.whole[0] != columns.version:
            columns.whole = (columns.version, cls(columns))
        return columns.whole[1]

    def __len__(self) -> int:
        return len(self.slots)

    def __iter__(self) -> Iterator[NodeView]:
        return (self.node(i) for i in range(len(self)))

    # --- identity ----------------------------------------------------------------------------

    @property
    def snapshot_size(self) -> int:
        """The number of nodes of the whole snapshot."""
        return len(self.columns)

    @property
    def slot_count(self) -> int:
        """The highest possible slot plus one: the length of columns by slot, as of `pod_counts`."""
        return self.columns.capacity

    @property
    def names_version(self) -> int:
        """A number that changes when a node is added to the snapshot or removed."""
        return self.columns.names_version

    @property
    def names_identity(self) -> Hashable:
        """A value that stays equal until a node is added to the snapshot or removed; see `node_version`."""
        return self.columns.identity, self.columns.names_version

    def slots_of(self, names: Iterable[str]) -> list[int]:
        """Return the slots of nodes by name, -1 for nodes that the snapshot lacks."""
        known = self.columns.index_of
        names = list(names)
        try:
            return list(map(known.__getitem__, names))
        except KeyError:
            return [known.get(name, -1) for name in names]

    @property
    def names(self) -> list[str]:
        """The names, one per row."""
        names: list[str] = self._take(self.columns.names).tolist()
        return names

    def name(self, position: int) -> str:
        """Return the name of the node in a row."""
        return str(self.columns.names[self.slots.item(position)])

    def position(self, name: str) -> int | None:
        """Return the row of the node with this name, or None if the node is not a candidate."""
        slot = self.columns.index_of.get(name)
        return None if slot is None else self.position_of_slot(slot)

    def position_of_slot(self, slot: int) -> int | None:
        """Return the row of the node in a slot (see `slots`), or None if the node is not a candidate."""
        if self._all:
            return slot if slot < len(self.slots) else None
        if self._ascending():
            at = int(self.slots.searchsorted(slot))
            return at if at < len(self.slots) and self.slots[at] == slot else None
        found = np.flatnonzero(self.slots == slot)
        return int(found[0]) if len(found) else None

    def positions_of_slots(self, slots: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the rows of the nodes in some slots. The rows must be ascending, and the nodes must be
        candidates.
        """
        return slots if self._all else self.slots.searchsorted(slots)

    def known_positions(self, slots: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return (rows, slots) of the given slots (ascending) whose nodes are candidates."""
        count = len(self.slots)
        if self._all:
            here = slots if not len(slots) or slots.item(-1) < count else slots[slots < count]
            return here, here
        if self._ascending():
            rows = self.slots.searchsorted(slots)
            found = (rows < count) & (self.slots.take(rows, mode="clip") == slots) if count else slots < 0
            return rows[found], slots[found]
        at = [(row, slot) for slot in slots.tolist() if (row := self.position_of_slot(slot)) is not None]
        pairs = np.array(at, dtype=np.intp).reshape(-1, 2)
        pairs = pairs[pairs[:, 0].argsort()]
        return pairs[:, 0], pairs[:, 1]

    @property
    def is_ascending(self) -> bool:
        """True if the rows are in the order of their slots, as in every message of the contract."""
        return self._ascending()

    @property
    def generation(self) -> NDArray[np.int64]:
        """int64[n]: changes whenever anything about the node or its pods changes."""
        return self._take(self.columns.generation)

    @property
    def node_version(self) -> Hashable:
        """A value that stays equal until a Node object of the snapshot is added, changed or removed. Results
        that depend on Node objects alone may be cached until then.
        """
        return self.columns.identity, self.columns.nodes_version

    # --- the node's own columns ----------------------------------------------------------------

    @property
    def unschedulable(self) -> NDArray[np.bool_]:
        """bool[n]: spec.unschedulable."""
        return self._take(self.columns.unschedulable)

    def allocatable(self, resource: str) -> NDArray[np.int64]:
        """Return int64[n], cpu in milli, all else in base units; 0 where the node does not offer the
        resource.
        """
        return self._take(self.columns.allocatable.column(resource))

    def offers(self, resource: str) -> bool:
        """Return False if no node of the snapshot offers the resource: `allocatable` is 0 for all of them."""
        return self.columns.allocatable.has(resource)

    def allocatable_of(self, resources: tuple[str, ...]) -> NDArray[np.int64]:
        """Return int64[k, n]: `allocatable` of k resources, for little more than the cost of one."""
        return self._several("allocatable", resources)

    @property
    def taint_set(self) -> NDArray[np.int32]:
        """int32[n]: code of the node's taints in `taint_sets`; 0: no taints."""
        return self._take(self.columns.taint_set)

    @property
    def taint_sets(self) -> Dictionary[tuple[Taint, ...]]:
        """The distinct lists of taints, each in the node's order."""
        return self.columns.taint_sets

    def label(self, key: str) -> tuple[NDArray[np.int32], Dictionary[str]]:
        """Return int32[n] codes of the label's values (0: absent), and their dictionary."""
        codes, values = self.columns.label(key)
        return self._take(codes), values

    def label_keys(self, keys: Iterable[str]) -> list[str]:
        """Return the `keys` that may be labels of nodes of the snapshot. No node has any other of them: for
        thousands of keys, most of which no node has.
        """
        return self.columns.label_keys(keys)

    def has_label(self, key: str, value: str) -> NDArray[np.bool_]:
        """Return bool[n]: the nodes whose label `key` is `value`."""
        codes, values = self.columns.label(key)
        code = values.find(value)
        return np.equal(codes[: len(self.slots)] if self._all else codes.take(self.slots), code)

    def declares_feature(self, name: str) -> NDArray[np.bool_]:
        """Return bool[n]: the nodes whose status.declaredFeatures has `name`."""
        return self._take(self.columns.feature(name))

    def has_image(self, name: str) -> bool:
        """Return True if any node of the snapshot holds the image."""
        return self.columns.images.has(name)

    def image(self, name: str) -> tuple[NDArray[np.int64], int]:
        """Return int64[n] numbers of nodes with the image as each row shows them (0: not on this node), and
        the size in bytes.
        """
        counts, size_bytes = self.columns.images.column(name)
        return self._take(counts), size_bytes

    # --- usage by pods -------------------------------------------------------------------------

    def requested(self, resource: str) -> NDArray[np.int64]:
        """Return int64[n]: requests of the pods on the node, reserved ones included."""
        column = self._take(self.columns.requested.column(resource))
        return column if self._changes is None else read_only(self._changes.requested(column, resource))

    def requested_of(self, resources: tuple[str, ...]) -> NDArray[np.int64]:
        """Return int64[k, n]: `requested` of k resources."""
        if self._changes is None:
            return self._several("requested", resources)
        lines = self.columns.requested.rows(resources)
        if lines is None:
            return self._stacked(self.requested, resources)
        sums = self._lines(self.columns.requested.matrix, lines)
        return read_only(self._changes.requested_of(sums, resources))

    def non_zero_requested(self, resource: str) -> NDArray[np.int64]:
        """Return int64[n] for cpu or memory, with the defaults for containers that request nothing."""
        column = self._take(self.columns.non_zero[NON_ZERO.index(resource)])
        if self._changes is None:
            return column
        return read_only(self._changes.non_zero_requested(column, resource))

    @property
    def non_zero_requested_of_both(self) -> NDArray[np.int64]:
        """int64[2, n]: `non_zero_requested` of cpu and memory."""
        if self._changes is not None:
            return self._stacked(self.non_zero_requested, NON_ZERO)
        if self._all:
            return read_only(self.columns.non_zero[:, : len(self.slots)])
        taken: NDArray[np.int64] = self.columns.non_zero.take(self.slots, axis=1)
        taken.flags.writeable = False
        return taken

    @property
    def pod_count(self) -> NDArray[np.int64]:
        """int64[n]: pods on the node, reserved ones included."""
        column = self._take(self.columns.pod_count)
        return column if self._changes is None else read_only(self._changes.pod_count(column))

    def port_taken(self, port: HostPort) -> NDArray[np.bool_]:
        """Return bool[n]: where `port` conflicts with a port in use."""
        return self.ports_taken((port,))

    def ports_taken(self, ports: Iterable[HostPort]) -> NDArray[np.bool_]:
        """Return bool[n]: where one of `ports` conflicts with a port in use."""
        if self._changes is None:
            return self._take(self.columns.ports_in_conflict(ports))
        taken = np.zeros(len(self), dtype=np.bool_)
        for port in ports:
            users = self.columns.users_in_conflict(port)
            here = {used: self._take(slots) for used, slots in users.items()}
            taken |= self._changes.port_taken(port, here)
        return read_only(taken)

    def usages(self) -> list[NodeUsage]:
        """Return the usage of every row as a record, computed for all rows at once."""
        before = [self.columns.usages[slot] for slot in self.slots.tolist()]
        if self._changes is None:
            return before
        named = {name for usage in before for name in usage.requested}
        names = tuple(sorted(named | self._changes.new_resources(named)))
        if len(names) > MAX_ROWS:
            return [self._changes.usage(row, usage) for row, usage in enumerate(before)]
        requested = self.requested_of(names).T.tolist()
        non_zero = self.non_zero_requested_of_both.T.tolist()
        ports = self._changes.host_ports([usage.host_ports for usage in before])
        rows = zip(before, requested, non_zero, self.pod_count.tolist(), ports, strict=True)
        return [
            NodeUsage(
                requested=_known_amounts(names, amounts, usage.requested),
                non_zero_requested=_known_amounts(NON_ZERO, defaulted, usage.non_zero_requested),
                pod_count=count,
                host_ports=taken,
            )
            for usage, amounts, defaulted, count, taken in rows
        ]

    @property
    def pods(self) -> PodTable:
        """All pods on all nodes of the snapshot. Raises ValueError if the pods are not known."""
        if self.columns.pods is None:
            raise ValueError("this table has no pods: add Need.pods() to `needs`")
        return self.columns.pods

    @property
    def known_pods(self) -> PodTable | None:
        """All pods on all nodes of the snapshot; None: not known."""
        return self.columns.pods

    @property
    def pod_counts(self) -> PodCounts:
        """Counts of pods by node and by domain, over every node of the snapshot."""
        return self.columns.pod_counts

    @property
    def pod_volumes(self) -> PodVolumes:
        """The pods with storage, by slot, over every node of the snapshot."""
        return self.columns.pod_volumes

    # --- rows ----------------------------------------------------------------------------------

    def node(self, position: int) -> NodeView:
        """Return one row as an object."""
        slot = int(self.slots[position])
        usage = self.columns.usages[slot]
        if self._changes is not None:
            usage = self._changes.usage(position, usage)
        return self._view(
            _known(self.columns.nodes[slot]),
            slot,
            usage,
            int(self.columns.generation[slot]),
            self,
        )

    def node_named(self, name: str) -> NodeView | None:
        """Return the row of the node with this name as an object, or None."""
        position = self.position(name)
        return None if position is None else self.node(position)

    def take(self, positions: NDArray[Any] | Sequence[int]) -> NodeTable:
        """Return some rows: positions (intp[m]) or a mask (bool[n])."""
        chosen = np.asarray(positions, dtype=None if len(positions) else np.intp)
        if self._changes is None:
            if len(chosen) <= FEW and chosen.dtype != np.bool_:
                return self._few(chosen)
            return NodeTable(self.columns, self._slots_at(chosen))
        at = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        return NodeTable(self.columns, self.slots[at], self._changes.take(at))

    def _few(self, positions: NDArray[Any]) -> NodeTable:
        """Return some rows; the same table as last time for the same rows. All plugins that judge the changed
        rows then share the columns gathered in the table.
        """
        columns = self.columns
        slots = self.slots.take(positions)
        listed = slots.tolist()
        known = columns.few
        if known is None or known[0] != columns.version or known[1] != listed:
            known = columns.few = (columns.version, listed, NodeTable(columns, slots))
        return known[2]

    def _slots_at(self, positions: NDArray[Any]) -> NDArray[np.intp]:
        """Return the slots of some rows; the same array as last time for the same array of positions."""
        if positions.flags.writeable or positions.base is not None:
            return self._gathered_slots(positions)
        known = self.columns.taken
        if known is None or known[0] is not positions or known[1] is not self.slots:
            slots = read_only(self._gathered_slots(positions))
            known = self.columns.taken = (positions, self.slots, slots)
        return known[2]

    def _gathered_slots(self, positions: NDArray[Any]) -> NDArray[np.intp]:
        if positions.dtype == np.bool_ and len(positions) == len(self.slots):
            # Converting a mask to positions is faster than indexing with it, and often gives the slots
            # already.
            at: NDArray[np.intp] = positions.nonzero()[0]
            return at if self._all else self.slots.take(at)
        slots: NDArray[np.intp] = self.slots[positions]
        return slots

    def unchanged(self, positions: NDArray[np.intp]) -> NodeTable:
        """Return the rows at `positions` without the what-if changes of this table."""
        return NodeTable(self.columns, self.slots[positions])

    def with_changes(
        self, removed: PodChanges, added: PodChanges, usages: Sequence[NodeUsage] | None = None
    ) -> NodeTable:
        """Return the same rows without the pods `removed` and with the pods `added`.

        `usages`: the resulting usage of each row; None: it follows from the pods.
        """
        changed = NodeTable.__new__(NodeTable)
        changed.columns, changed.slots = self.columns, self.slots
        changed._all, changed._sorted, changed.is_whole = self._all, self._sorted, False
        changed._changes = (
            RowChanges(removed, added) if usages is None else ToldUsages(removed, added, usages)
        )
        changed._limited = None
        # The values in this cache do not depend on pods.
        changed._several_of = self._several_of if self._changes is None else {}
        return changed

    def seen_as(self, kind: type[T]) -> T:
        """Return the same rows as a table of class `kind`, which only adds limits. Every call returns the
        same table.
        """
        known = self._limited
        if known is None:
            known = self._limited = {}
        seen = known.get(kind)
        if seen is None:
            seen = known[kind] = kind.__new__(kind)
            seen.columns, seen.slots = self.columns, self.slots
            seen._all, seen._sorted, seen.is_whole = self._all, self._sorted, self.is_whole
            seen._changes, seen._several_of = self._changes, self._several_of
            seen._limited = None
        return seen  # type: ignore[return-value]  # made under its own class

    @property
    def changes(self) -> tuple[PodChanges, PodChanges] | None:
        """The removed and the added pods of the rows; None: the rows are as the snapshot has them."""
        return None if self._changes is None else (self._changes.removed, self._changes.added)

    @property
    def whole(self) -> NodeTable:
        """Every node of the snapshot, without changes."""
        return NodeTable.of(self.columns)

    # --- plumbing ------------------------------------------------------------------------------

    def take_of(self, column: NDArray[Any]) -> NDArray[Any]:
        """Return the rows' entries of a column by slot: read-only, and without a copy where possible."""
        return self._take(column)

    @property
    def is_snapshot(self) -> bool:
        """True if the rows are as the snapshot has them, without changes (`with_changes`)."""
        return self._changes is None

    def _take(self, column: NDArray[Any]) -> NDArray[Any]:
        taken = column[: len(self.slots)] if self._all else column.take(self.slots)
        taken.setflags(write=False)
        return taken

    def _ascending(self) -> bool:
        if self._sorted is None:
            self._sorted = len(self.slots) < 2 or bool((self.slots[1:] > self.slots[:-1]).all())
        return self._sorted

    def _several(self, kind: str, resources: tuple[str, ...]) -> NDArray[np.int64]:
        """Return several rows of a matrix. `kind`: the name of amounts of the columns, and of the method
        that reads one row of them.
        """
        known = self._several_of.get((kind, resources))
        if known is None:
            known = self._gathered(kind, resources)
            known.flags.writeable = False
            self._several_of[kind, resources] = known
        return known

    def _gathered(self, kind: str, resources: tuple[str, ...]) -> NDArray[np.int64]:
        amounts: ResourceRows = getattr(self.columns, kind)
        lines = amounts.rows(resources)
        if lines is None:
            return self._stacked(getattr(self, kind), resources)
        return self._lines(amounts.matrix, lines)

    def _lines(self, matrix: NDArray[np.int64], lines: slice | NDArray[np.intp]) -> NDArray[np.int64]:
        """Return some lines of a matrix of the columns, for the slots of the rows."""
        if self._all:
            return matrix[lines, : len(self.slots)]
        if isinstance(lines, slice):
            return matrix[lines].take(self.slots, axis=1)
        return matrix[lines[:, np.newaxis], self.slots]

    def _stacked(
        self, one: Callable[[str], NDArray[np.int64]], resources: Sequence[str]
    ) -> NDArray[np.int64]:
        stacked = np.zeros((len(resources), len(self.slots)), dtype=np.int64)
        for i, name in enumerate(resources):
            stacked[i] = one(name)
        return read_only(stacked)


def _known_amounts(names: Sequence[str], amounts: list[int], before: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts by name, without zeros for what there was none of before either."""
    return {name: amount for name, amount in zip(names, amounts, strict=True) if amount or name in before}


def _known(node: Node | None) -> Node:
    if node is None:
        raise IndexError("the table's slot is empty: the row belongs to another version")
    return node
