"""Tables in which reading a part that the plugin did not declare raises UndeclaredError.

A limited table shares the columns of its original and adds no cost to a declared read: each set of needs has
a class of its own, whose undeclared accessors raise. Used by `runtime.declared`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, NoReturn, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from berth_sdk.kube_object import KubeObject
from berth_sdk.limits import CALL_PODS, NODES, PODS, CallPodLimits, Keys, NodeLimits, PodLimits
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.selected_pods import SelectedPods
from berth_sdk.tables.dictionary import Dictionary
from berth_sdk.tables.node_columns import NodeUsage
from berth_sdk.tables.node_table import NodeTable
from berth_sdk.tables.node_view import NodeView
from berth_sdk.tables.pod_changes import PodChanges
from berth_sdk.tables.pod_counts import PodCounts, Tally
from berth_sdk.tables.pod_table import PodTable, SharedReading
from berth_sdk.tables.pod_volumes import PodVolumes
from berth_sdk.undeclared import Undeclared

V = TypeVar("V", bound=Hashable)
T = TypeVar("T")
_SPARE_RECORDS: Final = 1024


# --- pods ------------------------------------------------------------------------------------------


class LimitedPodTable(PodTable):
    """A `PodTable` that returns limited records. It shares the data of its original, also when the data
    changes.
    """

    __slots__ = ("_lists", "_records", "limits")
    limits: PodLimits

    @classmethod
    def of_table(cls, table: PodTable, limits: PodLimits) -> PodTable:
        """Return the view of `table`, or the table itself where everything was declared."""
        if isinstance(limits, CallPodLimits) and limits.is_whole:
            return table
        seen = cls.__new__(cls)
        seen.__dict__ = table.__dict__
        seen.limits = limits
        seen._records = {}
        seen._lists = {}
        return seen

    _records: dict[str, tuple[Pod, Pod]]
    _lists: dict[int, tuple[Sequence[Pod], list[Pod]]]

    def record(self, pod: Pod) -> Pod:
        """Return the limited record of a pod: the same record while the pod is the same."""
        known = self._records.get(pod.uid)
        if known is not None and known[0] is pod:
            return known[1]
        if len(self._records) > 2 * len(self) + _SPARE_RECORDS:
            self._records = {uid: one for uid, one in self._records.items() if uid in self._row_of}
        seen = self.limits.limit(pod)
        self._records[pod.uid] = (pod, seen)
        return seen

    def pod(self, row: int) -> Pod:
        """Return the pod in a row, as a record."""
        return self.record(super().pod(row))

    def several(self, rows: NDArray[np.intp]) -> list[Pod]:
        """Return the pods in some rows, as records, in the order of `rows`."""
        return [self.record(pod) for pod in super().several(rows)]

    def on_node(self, index: int) -> list[Pod]:
        """Return the pods on the node in slot `index`, in the order of kube-scheduler's NodeInfo."""
        return list(self.pods_of(index))

    def pods_of(self, index: int) -> Sequence[Pod]:
        """Return the list of `on_node` without a copy. The list never changes."""
        held = super().pods_of(index)
        known = self._lists.get(index)
        if known is None or known[0] is not held:
            known = self._lists[index] = (held, [self.record(pod) for pod in held])
        return known[1]

    def captured(self) -> tuple[list[list[Pod]], frozenset[str]]:
        """Return the pods of every slot, and the uids of the pods that are only reserved."""
        held, assumed = super().captured()
        return [[self.record(pod) for pod in pods] for pods in held], assumed

    def label(self, key: str) -> tuple[NDArray[np.int32], Dictionary[str]]:
        """Return int32[n] codes of the label's values (0: absent), and their dictionary."""
        self.limits.labels.check(key, f"pods.label({key!r})")
        return super().label(key)

    def encoded(self, name: str, read: Callable[[Pod], V | None]) -> tuple[NDArray[np.int32], Dictionary[V]]:
        """Return int32[n] codes of the value that `read` finds in each limited record, and their
        dictionary.
        """
        if self._shares(read):
            return super().encoded(name, read)
        limit = self.limits.limit
        return super().encoded(self._column_of(name), lambda pod: read(limit(pod)))

    def readings(self, name: str, read: Callable[[Pod], V | None]) -> Dictionary[V]:
        """Return the dictionary of `encoded`."""
        column = self._readings.get(name if self._shares(read) else self._column_of(name))
        return self.encoded(name, read)[1] if column is None else column.values

    def _shares(self, read: Callable[[Pod], Any]) -> bool:
        """Return True for a reading that finds the same under these limits as without limits."""
        return isinstance(read, SharedReading) and self.limits.has(read.derived)

    def _column_of(self, name: str) -> str:
        """Return the name of the column with the values that `read` finds under these limits."""
        return f"{name}\n{self.limits.number}"


class LimitedPodChanges(PodChanges):
    """`PodChanges` with limited records. `origin`: the changes without limits."""

    def __init__(self, origin: PodChanges, limits: PodLimits, table: PodTable | None = None) -> None:
        """`table`: the limited view of the table of `origin`, where there is one."""
        if limits.are_known:
            seen = table or LimitedPodTable.of_table(origin.table, limits)
        else:
            seen = cast("PodTable", Undeclared("the table of the pods that leave", PODS))
        super().__init__(seen, origin.rows, origin.starts)
        self.origin = origin
        self.limits = limits

    def pods(self, row: int) -> tuple[Pod, ...]:
        """Return the pods of one row."""
        if self.limits.are_known:
            return super().pods(row)
        return tuple(self.limits.limit(pod) for pod in self.origin.pods(row))

    def take(self, positions: NDArray[Any]) -> PodChanges:
        """Return the changes of some rows, in the order given (intp[k])."""
        table = self.table if self.limits.are_known else None
        return LimitedPodChanges(self.origin.take(positions), self.limits, table)


@dataclass(frozen=True, slots=True, eq=False)
class _LimitedTally:
    """A tally of limited records. Equal to the same tally under the same limits."""

    tally: Any
    pods: LimitedPodTable

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _LimitedTally):
            return NotImplemented
        return self.pods.limits is other.pods.limits and bool(self.tally == other.tally)

    def __hash__(self) -> int:
        return hash(self.tally)

    def of(self, pod: Pod) -> int:
        """Return the count of one pod."""
        count: int = self.tally.of(self.pods.record(pod))
        return count

    @property
    def kind_of(self) -> Callable[[Pod], Hashable] | None:
        """The function that reads the kind of a limited record (`KindTally`); None: there are no kinds."""
        kind_of = getattr(self.tally, "kind_of", None)
        return None if kind_of is None else self.pods.limits.limited_reading(kind_of)

    def over(self, pods: PodTable) -> NDArray[np.int64]:
        """Return int64[number of pods]."""
        counts: NDArray[np.int64] = self.tally.over(self.pods)
        return counts


class LimitedPodCounts(PodCounts):
    """`PodCounts` with tallies of limited records, and with declared labels as domains."""

    __slots__ = ("_labels", "_limited_pods")
    _labels: Keys
    _limited_pods: LimitedPodTable

    @classmethod
    def of_counts(cls, counts: PodCounts, pods: LimitedPodTable, labels: Keys) -> PodCounts:
        """Return the view of `counts`. `labels`: the labels of nodes that may be read."""
        seen = cls.__new__(cls)
        seen.__dict__ = counts.__dict__
        seen._limited_pods = pods
        seen._labels = labels
        return seen

    def column(self, tally: Tally) -> NDArray[np.int64]:
        """Return int64[capacity], by slot: read-only, of this version."""
        return super().column(self._limited(tally))

    def by_domain(
        self, tally: Tally, topology_key: str, among: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """Return int64[number of codes], by the codes of the label `topology_key`."""
        self._labels.check(topology_key, f"nodes.label({topology_key!r})")
        return super().by_domain(self._limited(tally), topology_key, among)

    def sums(
        self, counts: NDArray[np.int64], topology_key: str, among: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """Return the sums of `by_domain` for any numbers by slot."""
        self._labels.check(topology_key, f"nodes.label({topology_key!r})")
        return super().sums(counts, topology_key, among)

    def _limited(self, tally: Tally) -> Tally:
        pods = self._limited_pods
        if type(tally) is SelectedPods and pods.limits.labels.prefixes is None:
            return tally  # by labels and namespace alone, which every plugin with pods may read
        return _LimitedTally(tally, pods)


class LimitedPodVolumes(PodVolumes):
    """`PodVolumes` with limited records."""

    __slots__ = ("_limited_pods", "_tuples")
    _limited_pods: LimitedPodTable
    _tuples: dict[int, tuple[tuple[Pod, ...], tuple[Pod, ...]]]

    @classmethod
    def of_volumes(cls, volumes: PodVolumes, pods: LimitedPodTable) -> PodVolumes:
        """Return the view of `volumes`."""
        seen = cls.__new__(cls)
        seen.__dict__ = volumes.__dict__
        seen._limited_pods = pods
        seen._tuples = {}
        return seen

    def on_slot(self, slot: int) -> tuple[Pod, ...]:
        """Return the pods with storage on the slot, in the order of kube-scheduler's NodeInfo."""
        held = super().on_slot(slot)
        known = self._tuples.get(slot)
        if known is None or known[0] is not held:
            record = self._limited_pods.record
            known = self._tuples[slot] = (held, tuple([record(pod) for pod in held]))
        return known[1]


# --- nodes -----------------------------------------------------------------------------------------


class LimitedNodeView(NodeView):
    """A `NodeView` with the declared parts; see `table_class`."""

    __slots__ = ()
    _limits: ClassVar[NodeLimits]

    @property
    def node(self) -> Node:
        """The node's record."""
        return self._limits.limit(self._node)

    @property
    def labels(self) -> Mapping[str, str]:
        """metadata.labels."""
        return self._limits.labels.read(self._node.labels)

    @property
    def annotations(self) -> Mapping[str, str]:
        """metadata.annotations."""
        return self._limits.annotations.read(self._node.annotations)

    @property
    def object(self) -> KubeObject | None:
        """The Node's JSON."""
        item = self._node.object
        views, key = self._table.columns.views, (self._limits, self.index)
        known = views.get(key)
        if known is None or known[0] is not item:
            known = views[key] = (item, self._limits.object(item))
        seen: KubeObject | None = known[1]
        return seen


class LimitedNodeTable(NodeTable):
    """A `NodeTable` with the declared parts; see `table_class`."""

    __slots__ = ()
    _limits: ClassVar[NodeLimits]
    _pod_limits: ClassVar[PodLimits]
    _call_pods: ClassVar[PodLimits]

    def take(self, positions: NDArray[Any] | Sequence[int]) -> NodeTable:
        """Return some rows: positions (intp[m]) or a mask (bool[n])."""
        return super().take(positions).seen_as(type(self))

    def unchanged(self, positions: NDArray[np.intp]) -> NodeTable:
        """Return the rows at `positions` as the snapshot has them, without the changes of a what-if."""
        return super().unchanged(positions).seen_as(type(self))

    def with_changes(
        self, removed: PodChanges, added: PodChanges, usages: Sequence[NodeUsage] | None = None
    ) -> NodeTable:
        """Return the same rows without the pods `removed` and with the pods `added`."""
        return super().with_changes(_origin(removed), _origin(added), usages).seen_as(type(self))

    @property
    def whole(self) -> NodeTable:
        """Every node of the snapshot, without changes."""
        return super().whole.seen_as(type(self))

    @property
    def changes(self) -> tuple[PodChanges, PodChanges] | None:
        """The removed and the added pods of the rows; None: no changes."""
        if self._changes is None:
            return None
        return self.limited_changes(self._changes.removed, self._changes.added)

    def limited_changes(self, removed: PodChanges, added: PodChanges) -> tuple[PodChanges, PodChanges]:
        """Return the changes with the records that the plugin may read."""
        table = self.pods if removed.table is self.columns.pods and self._pod_limits.are_known else None
        return (
            LimitedPodChanges(removed, self._pod_limits, table),
            LimitedPodChanges(added, self._call_pods),
        )

    def label(self, key: str) -> tuple[NDArray[np.int32], Dictionary[str]]:
        """Return int32[n] codes of the label's values (0: absent), and their dictionary."""
        self._limits.labels.check(key, f"nodes.label({key!r})")
        return super().label(key)

    def label_keys(self, keys: Iterable[str]) -> list[str]:
        """Return the `keys` that may be labels of nodes of the snapshot."""
        labels = self._limits.labels
        if labels.prefixes is None:
            return super().label_keys(keys)
        wanted = list(keys)
        for key in wanted:
            labels.check(key, f"nodes.label_keys({key!r})")
        return super().label_keys(wanted)

    def has_label(self, key: str, value: str) -> NDArray[np.bool_]:
        """Return bool[n]: the nodes whose label `key` is `value`."""
        self._limits.labels.check(key, f"nodes.label({key!r})")
        return super().has_label(key, value)

    @property
    def pods(self) -> PodTable:
        """All pods on all nodes of the snapshot."""
        return self._seen(self._pod_limits, super().pods, self._limited_pods)

    @property
    def pod_counts(self) -> PodCounts:
        """Counts of pods by node and by domain, over every node of the snapshot."""
        return self._seen((self._limits, self._pod_limits), super().pod_counts, self._limited_counts)

    @property
    def pod_volumes(self) -> PodVolumes:
        """The pods with storage, by slot, over every node of the snapshot."""
        return self._seen((self._pod_limits, "volumes"), super().pod_volumes, self._limited_volumes)

    def _seen(self, key: Hashable, table: T, make: Callable[[Any], Any]) -> T:
        known = self.columns.views.get(key)
        if known is None or known[0] is not table:
            known = self.columns.views[key] = (table, make(table))
        seen: T = known[1]
        return seen

    def _limited_pods(self, pods: PodTable) -> PodTable:
        return LimitedPodTable.of_table(pods, self._pod_limits)

    def _limited_counts(self, counts: PodCounts) -> PodCounts:
        return LimitedPodCounts.of_counts(counts, cast("LimitedPodTable", self.pods), self._limits.labels)

    def _limited_volumes(self, volumes: PodVolumes) -> PodVolumes:
        return LimitedPodVolumes.of_volumes(volumes, cast("LimitedPodTable", self.pods))


_STATE: Final = ("whole", "snapshot_size", "generation", "node_version", "slot_count", "names_version")
_OF_NODES: Final[Mapping[str, str]] = {
    "unschedulable": "unschedulable",
    "allocatable": "allocatable",
    "allocatable_of": "allocatable",
    "taint_set": "taints",
    "taint_sets": "taints",
    "declares_feature": "declared_features",
    "has_image": "images",
    "image": "images",
    "requested": "usage",
    "requested_of": "usage",
    "non_zero_requested": "usage",
    "non_zero_requested_of_both": "usage",
    "pod_count": "usage",
    "port_taken": "usage",
    "ports_taken": "usage",
}
"""The accessors of `NodeTable`, with the field of a node that each reads."""
_OF_NODE: Final[Mapping[str, str]] = {
    "taints": "taints",
    "unschedulable": "unschedulable",
    "allocatable": "allocatable",
    "usage": "usage",
    "requested": "usage",
    "non_zero_requested": "usage",
    "pod_count": "usage",
    "host_ports": "usage",
}
"""The accessors of `NodeView`, with the field of a node that each reads."""


@lru_cache(maxsize=256)
def table_class(nodes: NodeLimits, pods: PodLimits, whole_pod: bool) -> type[LimitedNodeTable]:
    """Return the class of tables with these limits. `whole_pod`: pods of calls have their objects."""
    view: dict[str, Any] = {"__slots__": (), "_limits": nodes}
    if nodes.labels.prefixes is None:
        view["labels"] = NodeView.labels
    if nodes.annotations.prefixes is None:
        view["annotations"] = NodeView.annotations
    table: dict[str, Any] = {
        "__slots__": (),
        "_limits": nodes,
        "_pod_limits": pods,
        "_call_pods": CALL_PODS[whole_pod],
        "_view": None,
    }
    if nodes.labels.prefixes is None:
        table["label"], table["has_label"] = NodeTable.label, NodeTable.has_label
    for accessors, kind, word, base in (
        (_OF_NODES, table, "nodes", NodeTable),
        (_OF_NODE, view, "node", NodeView),
    ):
        for name, field in accessors.items():
            if not nodes.has(field):
                kind[name] = _refusing(base, name, nodes.undeclared(field, f"{word}.{name}"))
    if not pods.are_known:
        for name in ("pods", "pod_counts"):
            table[name] = _refusing(NodeTable, name, Undeclared(f"nodes.{name}", PODS))
        table["known_pods"] = property(lambda self: None)
        view["pods"] = _refusing(NodeView, "pods", Undeclared("node.pods", PODS))
    if not pods.has("volumes"):
        undeclared = Undeclared("nodes.pod_volumes", "Need.pod_objects()")
        if pods.drops is not None:
            undeclared = pods.drops.undeclared("nodes.pod_volumes", pods.drops.touch("spec.volumes"))
        table["pod_volumes"] = _refusing(NodeTable, "pod_volumes", undeclared)
    if not nodes.has_state:
        for name in _STATE:
            table[name] = _refusing(NodeTable, name, Undeclared(f"nodes.{name}", NODES))
    table["_view"] = type("NodeView", (LimitedNodeView,), view)
    made: type[LimitedNodeTable] = type("NodeTable", (LimitedNodeTable,), table)
    return made


def _refusing(base: type, name: str, undeclared: Undeclared) -> Any:
    """Return the stand-in for a method or property that may not be read."""

    def refuse(_self: object, *_args: object, **_kwargs: object) -> NoReturn:
        undeclared.refuse()

    return property(refuse) if isinstance(getattr(base, name), property) else refuse


def _origin(changes: PodChanges) -> PodChanges:
    return changes.origin if isinstance(changes, LimitedPodChanges) else changes
