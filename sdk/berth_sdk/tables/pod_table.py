"""`PodTable`: the pods on the snapshot's nodes, as columns beside `NodeTable`.

The host's snapshot, or a served plugin's copy, updates the table between cycles. Plugins read it through
`nodes.pods`. It has every pod on a node, reserved ones that are not bound yet included.

Source: kube-scheduler `framework/types.go` (NodeInfo.Pods), v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth_sdk.pod import Pod
from berth_sdk.tables.dictionary import Dictionary
from berth_sdk.tables.read_only import extended, read_only

V = TypeVar("V", bound=Hashable)
_FIRST_CAPACITY: Final = 64
MAX_LABELS: Final = 1024
"""The number of columns by label that are kept. Further ones are built at each read."""
_COUNTED_AFTER: Final = 1024
"""The number of pods that are written or removed before an update counts the values of columns again."""
_CARRIED_LABELS: Final = 256
"""The number of columns by label that stay, the oldest first, where an update finds twice as many."""
MAX_RESOURCES: Final = 512
"""The number of columns by resource that are kept. Further ones are built at each read."""
_CARRIED_RESOURCES: Final = 128
"""The number of columns by resource that stay, the oldest first, where an update finds twice as many."""
_FIXED: Final = (
    "_node_index",
    "_priority",
    "_namespace",
    "_start_time_s",
    "_terminating",
    "_assumed",
    "_generation",
)


@dataclass(frozen=True, slots=True, eq=False)
class SharedReading(Generic[V]):
    """A function for `PodTable.encoded` that reads the summary of a pod, and at most one field that comes
    from the pod's object.

    All plugins that declare the field share the column, and no limited record of a pod is made for it.
    `derived`: the field; "": none.
    """

    read: Callable[[Pod], V | None]
    derived: str = ""

    def __call__(self, pod: Pod) -> V | None:
        """Return the value of one pod; None: it has none."""
        return self.read(pod)


class _Encoded:
    """One dictionary-encoded column, and the function that reads its value from a pod."""

    __slots__ = ("codes", "read", "values")

    def __init__(self, read: Callable[[Pod], Any], capacity: int) -> None:
        self.read = read
        self.values: Dictionary[Any] = Dictionary()
        self.codes: NDArray[np.int32] = np.zeros(capacity, dtype=np.int32)

    def set(self, row: int, pod: Pod) -> None:
        value = self.read(pod)
        self.codes[row] = 0 if value is None else self.values.encode(value)


class PodTable:
    """n pods in rows 0..n-1 without gaps: the last row takes the place of a removed row.

    Arrays have one entry per row, are read-only, and belong to one version of the snapshot. A row keeps its
    pod only within a version. Columns by label, by resource and by `encoded` are built at the first read and
    updated from then on.
    """

    def __init__(self) -> None:
        self._capacity = 0
        self._pods: list[Pod] = []
        self._row_of: dict[str, int] = {}
        self._on_node: list[list[Pod]] = []
        self._assumed_uids: set[str] = set()
        self._node_index: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._priority: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._namespace: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._start_time_s: NDArray[np.float64] = np.zeros(0, dtype=np.float64)
        self._terminating: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._assumed: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._generation: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._requests: dict[str, NDArray[np.int64]] = {}
        self._requested: set[str] | None = None
        """The resources that some pod requests, or requested; None: none was read yet."""
        self._nothing: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """The column of every resource that no pod requests."""
        self._most_requested = 0
        """The number of `_requested` above which the next update counts them anew."""
        self._labels: dict[str, _Encoded] = {}
        self._label_keys: set[str] | None = None
        """The label keys that some pod has, or had; None: no label was read yet."""
        self._no_label: tuple[NDArray[np.int32], Dictionary[str]] = (
            np.zeros(0, dtype=np.int32),
            Dictionary(),
        )
        """The column of every key that no pod has."""
        self._most_keys = 0
        """The number of `_label_keys` above which the next update counts them anew."""
        self._readings: dict[str, _Encoded] = {}
        self._uncounted = 0
        """The pods that were written or removed since the values of columns were counted."""
        self.namespaces: Dictionary[str] = Dictionary()
        """The namespaces that `namespace` encodes."""
        self._grow(_FIRST_CAPACITY)

    @classmethod
    def of(cls, pods: Sequence[Pod]) -> PodTable:
        """Return a table of these pods in this order, on no node: for pods that a what-if question adds."""
        table = cls()
        for row, pod in enumerate(pods):
            if row == table._capacity:
                table._grow(2 * row)
            table._pods.append(pod)
            table._row_of[pod.uid] = row
            table._set(pod, row, -1, False, 0)
        return table

    def __len__(self) -> int:
        return len(self._pods)

    # --- reading: rows -------------------------------------------------------------------------

    def pod(self, row: int) -> Pod:
        """Return the pod in a row, as a record."""
        return self._pods[row]

    def several(self, rows: NDArray[np.intp]) -> list[Pod]:
        """Return the pods in some rows, as records, in the order of `rows`."""
        if len(rows) < 2:
            return [self._pods[row] for row in rows.tolist()]
        return list(itemgetter(*rows.tolist())(self._pods))

    def position(self, uid: str) -> int | None:
        """Return the row of the pod with `uid`, or None."""
        return self._row_of.get(uid)

    def on_node(self, index: int) -> list[Pod]:
        """Return the pods on the node in slot `index`, in the order of kube-scheduler's NodeInfo."""
        return self._on_node[index].copy() if index < len(self._on_node) else []

    def rows_on_node(self, index: int) -> NDArray[np.intp]:
        """Return the rows of the pods on the node in slot `index`, in the same order."""
        pods = self._on_node[index] if index < len(self._on_node) else []
        return np.fromiter((self._row_of[pod.uid] for pod in pods), dtype=np.intp, count=len(pods))

    # --- reading: columns ------------------------------------------------------------------------

    @property
    def node_index(self) -> NDArray[np.int32]:
        """int32[n]: the slot of the pod's node, as in `NodeTable.slots`."""
        return self._view(self._node_index)

    @property
    def priority(self) -> NDArray[np.int64]:
        """int64[n]: spec.priority."""
        return self._view(self._priority)

    @property
    def namespace(self) -> NDArray[np.int32]:
        """int32[n]: codes of `namespaces`."""
        return self._view(self._namespace)

    @property
    def start_time_s(self) -> NDArray[np.float64]:
        """float64[n]: status.startTime in Unix seconds; nan: the pod has not started."""
        return self._view(self._start_time_s)

    @property
    def terminating(self) -> NDArray[np.bool_]:
        """bool[n]: True if the pod has a deletion timestamp."""
        return self._view(self._terminating)

    @property
    def assumed(self) -> NDArray[np.bool_]:
        """bool[n]: True if the host has reserved the pod's node and not seen the binding yet."""
        return self._view(self._assumed)

    @property
    def generation(self) -> NDArray[np.int64]:
        """int64[n]: changes whenever the pod's record, node or place among the node's pods changes."""
        return self._view(self._generation)

    def requests(self, resource: str) -> NDArray[np.int64]:
        """Return int64[n], cpu in milli, all else in base units; 0 where the pod does not request the
        resource.
        """
        column = self._requests.get(resource)
        if column is None:
            known = self._requested
            if known is None:
                known = self._requested = self._requested_by_pods()
            if resource not in known:
                return self._view(self._nothing)
            column = np.zeros(self._capacity, dtype=np.int64)
            column[: len(self)] = [pod.requests.get(resource, 0) for pod in self._pods]
            if len(self._requests) < MAX_RESOURCES:
                self._requests[resource] = column
        return self._view(column)

    def _requested_by_pods(self) -> set[str]:
        names: set[str] = set()
        for pod in self._pods:
            names.update(pod.requests)
        return names

    def label(self, key: str) -> tuple[NDArray[np.int32], Dictionary[str]]:
        """Return int32[n] codes of the label's values (0: absent), and their dictionary.

        All keys that no pod has share one column, so that a selector that names thousands of them costs
        nothing.
        """
        column = self._labels.get(key)
        if column is None:
            keys = self._label_keys
            if keys is None:
                keys = self._label_keys = self._keys_of_pods()
            if key not in keys:
                codes, values = self._no_label
                return self._view(codes), values
            if len(self._labels) >= MAX_LABELS:
                return self._encoded({}, key, lambda pod: pod.labels.get(key))
        return self._encoded(self._labels, key, lambda pod: pod.labels.get(key))

    def _keys_of_pods(self) -> set[str]:
        keys: set[str] = set()
        for pod in self._pods:
            keys.update(pod.labels)
        return keys

    def encoded(self, name: str, read: Callable[[Pod], V | None]) -> tuple[NDArray[np.int32], Dictionary[V]]:
        """Return int32[n] codes of the value that `read` finds in each pod (0: None), and their dictionary.

        For values without a column, such as affinity terms. `name`: the column's name, which should begin
        with the plugin's name. One name must always have the same `read`, which must depend on the pod alone.
        """
        return self._encoded(self._readings, name, read)

    def readings(self, name: str, read: Callable[[Pod], V | None]) -> Dictionary[V]:
        """Return the dictionary of `encoded`, for code that only tests in every cycle whether it is empty."""
        column = self._readings.get(name)
        return self.encoded(name, read)[1] if column is None else column.values

    # --- writing ---------------------------------------------------------------------------------

    def set_node_pods(
        self, index: int, pods: Sequence[Pod], assumed: Collection[str], generation: int
    ) -> list[str]:
        """Set the pods on slot `index` to `pods`, and return the uids of the pods that left the slot.

        A row keeps its generation if its record and its place among the node's pods stay the same. `assumed`:
        uids of the pods (on this slot or others) that are only reserved.
        """
        while index >= len(self._on_node):
            self._on_node.append([])
        held = self._on_node[index]
        before = {pod.uid: pod for pod in held}
        for place, pod in enumerate(pods):
            uid = pod.uid
            is_assumed = uid in assumed
            if before.pop(uid, None) is not pod or is_assumed != (uid in self._assumed_uids):
                self._put(pod, index, is_assumed, generation)
            elif place >= len(held) or held[place] is not pod:
                self._generation[self._row_of[uid]] = generation
        left = list(before)
        for uid in left:
            self._remove(uid, index)
        # A new list that never changes: `pods_of` returns it.
        self._on_node[index] = list(pods)
        return left

    def pods_of(self, index: int) -> Sequence[Pod]:
        """Return the list of `on_node` without a copy. The list never changes. For code that follows
        tables.
        """
        return self._on_node[index] if index < len(self._on_node) else ()

    def captured(self) -> tuple[list[list[Pod]], frozenset[str]]:
        """Return the pods of every slot, and the uids of the pods that are only reserved, as they are now.

        For code that reads a version while the table changes. The inner lists never change.
        """
        return self._on_node.copy(), frozenset(self._assumed_uids)

    def is_assumed(self, uid: str) -> bool:
        """Return True if the pod with `uid` is only reserved."""
        return uid in self._assumed_uids

    def generation_of(self, uid: str) -> int:
        """Return the generation of the pod with `uid`, which must be in the table."""
        return int(self._generation[self._row_of[uid]])

    def begin_update(self) -> None:
        """Begin an update. Drops columns whose dictionary has far more values than there are pods, and the
        newest of very many columns by label or by resource. The next read builds them again.

        The values are counted after `_COUNTED_AFTER` changes, as a change adds one value to a column.
        """
        for kept, carried in ((self._labels, _CARRIED_LABELS), (self._requests, _CARRIED_RESOURCES)):
            if len(kept) > 2 * carried:
                for key in list(kept)[carried:]:
                    del kept[key]
        if self._uncounted >= _COUNTED_AFTER:
            self._uncounted = 0
            most = 4 * len(self) + 4096
            for columns in (self._labels, self._readings):
                for key in [key for key, column in columns.items() if len(column.values) > most]:
                    del columns[key]
        if self._requested is None and self._label_keys is None:
            return
        most = 4 * len(self) + 4096
        if self._requested is not None and len(self._requested) > max(most, self._most_requested):
            self._requested = self._requested_by_pods()
            self._most_requested = 2 * len(self._requested)
        if self._label_keys is not None and len(self._label_keys) > max(most, self._most_keys):
            self._label_keys = self._keys_of_pods()
            self._most_keys = 2 * len(self._label_keys)

    # --- plumbing ----------------------------------------------------------------------------------

    def _put(self, pod: Pod, index: int, assumed: bool, generation: int) -> None:
        row = self._row_of.get(pod.uid)
        if row is None:
            row = self._row_of[pod.uid] = len(self._pods)
            if row == self._capacity:
                self._grow(2 * self._capacity)
            self._pods.append(pod)
        else:
            self._pods[row] = pod
        self._set(pod, row, index, assumed, generation)

    def _set(self, pod: Pod, row: int, index: int, assumed: bool, generation: int) -> None:
        self._uncounted += 1
        self._node_index[row] = index
        self._priority[row] = pod.priority
        self._namespace[row] = self.namespaces.encode(pod.namespace)
        self._start_time_s[row] = np.nan if pod.started_at_s is None else pod.started_at_s
        self._terminating[row] = pod.terminating
        self._assumed[row] = assumed
        if assumed:
            self._assumed_uids.add(pod.uid)
        else:
            self._assumed_uids.discard(pod.uid)
        self._generation[row] = generation
        for resource, column in self._requests.items():
            column[row] = pod.requests.get(resource, 0)
        if self._requested is not None:
            self._requested.update(pod.requests)
        if self._label_keys is not None:
            self._label_keys.update(pod.labels)
        for columns in (self._labels, self._readings):
            for encoded in columns.values():
                encoded.set(row, pod)

    def _remove(self, uid: str, index: int) -> None:
        row = self._row_of[uid]
        if self._node_index[row] != index:
            return  # the pod is on another node already
        self._uncounted += 1
        del self._row_of[uid]
        self._assumed_uids.discard(uid)
        last = len(self._pods) - 1
        moved = self._pods.pop()
        if row == last:
            return
        self._pods[row] = moved
        self._row_of[moved.uid] = row
        for name in _FIXED:
            column = getattr(self, name)
            column[row] = column[last]
        for column in self._requests.values():
            column[row] = column[last]
        for columns in (self._labels, self._readings):
            for encoded in columns.values():
                encoded.codes[row] = encoded.codes[last]

    def _encoded(
        self, columns: dict[str, _Encoded], key: str, read: Callable[[Pod], Any]
    ) -> tuple[NDArray[np.int32], Dictionary[Any]]:
        column = columns.get(key)
        if column is None:
            column = columns[key] = _Encoded(read, self._capacity)
            for row, pod in enumerate(self._pods):
                column.set(row, pod)
        return self._view(column.codes), column.values

    def _view(self, column: NDArray[Any]) -> NDArray[Any]:
        return read_only(column[: len(self._pods)])

    def _grow(self, capacity: int) -> None:
        more = capacity - self._capacity
        for name in _FIXED:
            setattr(self, name, extended(getattr(self, name), more))
        self._requests = {name: extended(column, more) for name, column in self._requests.items()}
        self._no_label = (extended(self._no_label[0], more), self._no_label[1])
        self._nothing = extended(self._nothing, more)
        for columns in (self._labels, self._readings):
            for encoded in columns.values():
                encoded.codes = extended(encoded.codes, more)
        self._capacity = capacity
