"""Keeps a plugin's verdicts and scores, while they are right, for later pods that are equal to the plugin.

Used by `runtime.plugin_runtime`, in the host and in a plugin's own process. An answer ends when something in
the tables changes that it depends on (`DependsOn`), never after a time. Two forms:

    RowColumns     NODE, ROW, NODES   a number per node and pod signature; rows that moved are asked again
    TableAnswers   TABLE              whole answers, dropped as soon as anything moved

For the plugins in its own process the host keeps the answers of the first form itself, several plugins at a
time.

Bounded: the pod signatures used least recently are dropped.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn
from berth_sdk.handle import Handle, ObjectReader
from berth_sdk.kept.known_slots import KnownSlots
from berth_sdk.kept.status_codes import StatusCodes
from berth_sdk.needs import Need, NeedKind
from berth_sdk.pod import Pod
from berth_sdk.results import FilterResult
from berth_sdk.signature import wishes
from berth_sdk.status import Verdicts
from berth_sdk.tables import Moved, NodeTable, SlotFollower
from berth_sdk.tables.node_columns import NodeColumns
from berth_sdk.tables.read_only import extended

T = TypeVar("T")
Rows = NDArray[np.intp]
Sign = Callable[[Pod, NodeTable], Hashable]
MAX_SIGNATURES: Final = 64
_LOG: Final = logging.getLogger("berth_sdk.plugin")
_MAX_STATUSES: Final = 4096


class RowColumn:
    """One number per slot for one pod signature: a score, or the code of a status (0: success).

    `by`: the part of a row that decides it, NODE, ROW or NODES.
    """

    __slots__ = (
        "_by",
        "_follower",
        "_known",
        "_numbers",
        "_read",
        "_read_rows",
        "codes",
    )

    def __init__(self, dtype: type[np.signedinteger[Any]], by: DependsOn | None) -> None:
        self._by = by
        self._follower = SlotFollower(Moved.ROW if by is DependsOn.ROW else Moved.NODE)
        self._known = KnownSlots()
        self._numbers: NDArray[Any] = np.zeros(0, dtype=dtype)
        self._read: NDArray[Any] | None = None
        self._read_rows: Rows | None = None
        self.codes = StatusCodes()

    def catch_up(self, columns: NodeColumns) -> None:
        """Forget the rows that moved since the last time; with NODES all of them when a Node did."""
        if len(self._known) < columns.capacity:
            self._read = None
            self._known.grow(columns.capacity)
            self._numbers = extended(self._numbers, columns.capacity - len(self._numbers))
        moved = self._follower.moved_in(columns)
        if moved is None or (moved and self._by is DependsOn.NODES):
            self._known.clear()
        elif moved:
            self._known.forget(moved)

    def missing(self, nodes: NodeTable) -> Rows:
        """Positions in `nodes` of the rows that are not known, ascending."""
        return self._known.missing(nodes)

    def keep(self, nodes: NodeTable, positions: Rows, numbers: NDArray[Any]) -> None:
        """Remember `numbers`, one for each of `positions` of `nodes`."""
        slots = nodes.slots if len(positions) == len(nodes) else nodes.slots.take(positions)
        self._numbers[slots] = numbers
        self._known.learn(slots, in_use=nodes.snapshot_size)
        self._read = None

    def forget(self, slots: Rows) -> None:
        """Forget these rows."""
        self._known.forget(slots.tolist())

    def read(self, nodes: NodeTable) -> NDArray[Any]:
        """The number of each row; read-only, and of this call: the next one writes to the same memory.

        The very array of the call before where nothing was written since and the rows are the same.
        """
        if not nodes.is_whole:
            return nodes.take_of(self._numbers)
        rows = nodes._columns.live_slots()
        if self._read is None or self._read_rows is not rows:
            self._read, self._read_rows = nodes.take_of(self._numbers), rows
        return self._read

    def keep_verdicts(self, nodes: NodeTable, positions: Rows, verdicts: Verdicts) -> None:
        """Remember verdicts as their codes."""
        if len(verdicts.statuses) == 1:
            self.keep(nodes, positions, np.zeros(len(positions), dtype=np.int32))
            return
        codes = np.asarray([self.codes.encode(status) for status in verdicts.statuses], dtype=np.int32)
        self.keep(nodes, positions, codes.take(verdicts.groups))

    def verdicts(self, nodes: NodeTable) -> Verdicts:
        """The verdict of each row."""
        if len(self.codes) == 1:
            return _feasible(len(nodes))
        return Verdicts(self.read(nodes), tuple(self.codes.statuses))


class RowColumns:
    """Columns by pod. `by`: NODE, ROW or NODES. `versions`: the versions of the objects
    that the plugin reads beside the nodes.
    """

    def __init__(
        self,
        dtype: type[np.signedinteger[Any]],
        by: DependsOn,
        *,
        versions: Callable[[], Hashable] = tuple,
        sign: Sign | None = None,
        max_signatures: int = MAX_SIGNATURES,
    ) -> None:
        self._dtype = dtype
        self._sign = sign or _all_wishes
        self._by = by
        self._versions = versions
        self._version: Hashable = None
        self._max = max_signatures
        self._columns: OrderedDict[Hashable, RowColumn] = OrderedDict()

    def __len__(self) -> int:
        return len(self._columns)

    def column(self, state: CycleState, pod: Pod, nodes: NodeTable) -> RowColumn:
        """The column of pods with this signature on the table that `nodes` is part of, as of now."""
        version = self._versions()
        if self._version != version:
            # Answers that depend on other objects are not known row by row.
            self._columns.clear()
            self._version = version
        key = _signature(state, pod, nodes, self._sign, version)
        column = self._columns.get(key)
        if state.signed_at != version:
            # The pod may be equal to others by now than when it was signed: a column for this call alone.
            column = RowColumn(self._dtype, self._by)
        elif column is None or len(column.codes) > _MAX_STATUSES:
            column = self._columns[key] = RowColumn(self._dtype, self._by)
            if len(self._columns) > self._max:
                self._columns.popitem(last=False)
        else:
            self._columns.move_to_end(key)
        column.catch_up(nodes._columns)
        return column


class TableAnswers(Generic[T]):
    """Whole answers by pod and candidates, of one version of the tables. `versions`: the versions of the
    objects that the plugin reads beside the nodes.
    """

    def __init__(
        self,
        versions: Callable[[], Hashable],
        *,
        sign: Sign | None = None,
        max_signatures: int = MAX_SIGNATURES,
    ) -> None:
        self._versions = versions
        self._sign = sign or _all_wishes
        self._max = max_signatures
        self._version: tuple[int, Hashable] | None = None
        self._table: NodeColumns | None = None
        self._by_key: OrderedDict[Hashable, tuple[Rows, T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_key)

    def find(self, state: CycleState, pod: Pod, nodes: NodeTable) -> T | None:
        """The answer about an equal pod and the same rows, if nothing has moved since."""
        table, objects = nodes._columns, self._versions()
        version = (table.version, objects)
        if self._table is not table or self._version != version:
            self._table, self._version = table, version
            self._by_key.clear()
            return None
        if not self._by_key:
            return None
        found = self._by_key.get(_signature(state, pod, nodes, self._sign, objects))
        if found is None or state.signed_at != objects:
            return None
        rows, answer = found
        return answer if rows is nodes.slots or np.array_equal(rows, nodes.slots) else None

    def keep(self, state: CycleState, pod: Pod, nodes: NodeTable, answer: T) -> None:
        """Remember an answer given right after `find` found none, unless an object changed since the pod was
        signed: the pod may be equal to others by now.
        """
        objects = self._versions()
        key = _signature(state, pod, nodes, self._sign, objects)
        if state.signed_at != objects or self._version != (nodes._columns.version, objects):
            return
        self._by_key[key] = (nodes.slots, answer)
        if len(self._by_key) > self._max:
            self._by_key.popitem(last=False)


class KeptAnswers:
    """The kept answers of one plugin to Filter and Score, by their `DependsOn`; None: no answers are kept.

    `depends_on` and `needs`: as the plugin declares them. `on_forget`: called by `forget`, for callers that
    keep answers of this plugin themselves. `sign`: the plugin's own, if it has one. `rows`
    False: the host keeps answers by row.
    """

    def __init__(
        self,
        plugin: str,
        depends_on: DependsOn | None,
        needs: Iterable[Need],
        handle: Handle | None,
        sign: Sign | None,
        *,
        rows: bool = True,
    ) -> None:
        self._handle = handle
        self._forgotten = 0
        self.on_forget: list[Callable[[], None]] = []
        self._resources = [need.resource for need in needs if need.kind is NeedKind.OBJECT]
        self._readers: list[ObjectReader] | None = None
        sign = None if sign is None else _Signing(plugin, sign)
        self.verdicts: RowColumns | TableAnswers[FilterResult] | None = None
        self.scores: RowColumns | TableAnswers[NDArray[np.int64]] | None = None
        if depends_on in (DependsOn.NODE, DependsOn.ROW, DependsOn.NODES):
            if rows:
                self.verdicts = RowColumns(np.int32, depends_on, versions=self.versions, sign=sign)
                self.scores = RowColumns(np.int64, depends_on, versions=self.versions, sign=sign)
        elif depends_on is DependsOn.TABLE and (handle is not None or not self._resources):
            self.verdicts = TableAnswers(self.versions, sign=sign)
            self.scores = TableAnswers(self.versions, sign=sign)

    def forget(self) -> None:
        """Drop all kept answers: the plugin says by a requeue that something has changed. An answer that is
        under way when this is called is not kept either.
        """
        self._forgotten += 1
        for forget in self.on_forget:
            forget()

    def versions(self) -> tuple[int, ...]:
        """How often `forget` was called, and the versions of the objects that the plugin reads beside the
        tables: kept answers hold while these are equal.
        """
        if self._handle is None or not self._resources:
            return (self._forgotten,)
        if self._readers is None:
            self._readers = [self._handle.objects(resource) for resource in self._resources]
        return (self._forgotten, *[reader.version for reader in self._readers])


def _all_wishes(pod: Pod, nodes: NodeTable) -> bytes:
    return wishes(pod)


def _signature(state: CycleState, pod: Pod, nodes: NodeTable, sign: Sign, versions: Hashable) -> Hashable:
    """Return the pod's signature, made once in a cycle. `versions`: those of the declared objects now, which
    may change within a cycle, unlike the tables.
    """
    if state.signature is None:
        state.signature, state.signed_at = sign(pod, nodes), versions
    return state.signature


class _Signing:
    """A plugin's own `sign`, where it raises or cannot be hashed a signature that is equal to no other."""

    __slots__ = ("_plugin", "_sign", "_warned")

    def __init__(self, plugin: str, sign: Sign) -> None:
        self._plugin = plugin
        self._sign = sign
        self._warned = False

    def __call__(self, pod: Pod, nodes: NodeTable) -> Hashable:
        try:
            signature = self._sign(pod, nodes)
            hash(signature)
        except Exception as err:  # noqa: BLE001 (only a shortcut: asked in full, the plugin may well answer)
            if not self._warned:
                self._warned = True
                _LOG.warning(
                    "%s cannot sign pod %s, and shares nothing for it: %r", self._plugin, pod.key, err
                )
            return object()
        return signature


@lru_cache(maxsize=8)
def _feasible(count: int) -> Verdicts:
    verdicts = Verdicts.feasible(count)
    verdicts.groups.flags.writeable = False
    return verdicts
