"""`check_reads`: finds the column that a class reads and `Plugin.reads` lacks.

Each undeclared part of a node's row is changed while the rest stays. If an answer changes as well, the class
reads the part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import ExtensionPoint, NodeColumn, NodeLabel
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node, NodeImage, Taint
from berth_sdk.pod import HostPort, Pod
from berth_sdk.status import Code
from berth_sdk.tables import NodeTable, NodeUsage
from berth_sdk.testing.host import PluginHost
from berth_sdk.testing.promises import words

_OTHER: Final = "example.com/other"
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_BARE: Final = KubeObject.of({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}})


@dataclass(frozen=True, slots=True)
class _Row:
    """One node as the plugin sees it, in parts that can be changed one by one."""

    node: Node
    usage: NodeUsage
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class _Change:
    """A row that differs from another one in `part` alone. `part`: as an author writes it. `has_column`:
    False for parts that `reads` cannot name.
    """

    part: str
    row: _Row
    has_column: bool = True


def check_reads(host: PluginHost, *pods: Pod) -> None:
    """Check that the plugin of `host` reads no part of a node's row that its `reads` lacks.

    For each of `pods` and each node, every such part is changed: to its value on the other nodes of the host,
    and to a few other values. Filter and Score must answer as before. So let the nodes, and the pods on them,
    differ in all that the class might read.

    Raises AssertionError, which names the part, and ValueError for a class that declares no `reads`.

    >>> from berth_sdk import DependsOn, Plugin, Status
    >>> from berth_sdk.testing import make_node, make_pod
    >>> class AvoidSpot(Plugin):
    ...     depends_on, reads = DependsOn.NODE, (NodeColumn.TAINTS,)
    ...     def filter(self, state, pod, node):
    ...         return Status.unschedulable("spot") if node.labels.get("pool") == "spot" else Status.success()
    >>> host = PluginHost(AvoidSpot, nodes=[make_node("n1", labels={"pool": "spot"}), make_node("n2")])
    >>> check_reads(host, make_pod("web"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    AssertionError: AvoidSpot.reads lacks NodeLabel('pool'): after a change of it on node n1, ...
    """
    descriptor = host.runtime.descriptor
    if descriptor.reads is None:
        raise ValueError(f"{descriptor.name} declares no reads: there is nothing to check")
    table = host.table()
    rows = [_row(table, position) for position in range(len(table))]
    for position, row in enumerate(rows):
        others = rows[:position] + rows[position + 1 :]
        for pod in pods:
            # A table of its own for each question: answers about rows of one table may be shared.
            before = _answer(host, pod, _table(host, table, rows, position, row), position)
            for change in _changes(row, others, pod, descriptor.reads):
                changed = _table(host, table, rows, position, change.row)
                try:
                    after = _answer(host, pod, changed, position)
                except Exception as err:  # noqa: BLE001 (an answer that the class did not give before)
                    after = dict.fromkeys(before, f"raises {err!r}")
                for point, found in after.items():
                    if found != before[point]:
                        raise AssertionError(
                            _message(descriptor.name, change, row, pod, (point, before[point], found))
                        )


def _message(plugin: str, change: _Change, row: _Row, pod: Pod, answers: tuple[str, object, object]) -> str:
    point, before, after = answers[0], words(answers[1]), words(answers[2])
    cure = (
        f"{plugin}.reads lacks {change.part}"
        if change.has_column
        else f"{plugin} declares reads, and its answers depend on {change.part}, which no column has"
    )
    advice = f"add {change.part} to reads" if change.has_column else "remove reads"
    return (
        f"{cure}: after a change of it on node {row.node.name}, {point} answers {after} in place of {before}"
        f" for pod {pod.key}; {advice}, or answer without it"
    )


# --- rows ------------------------------------------------------------------------------------------


def _row(table: NodeTable, position: int) -> _Row:
    slot = int(table.slots[position])
    node = table.columns.nodes[slot]
    assert node is not None
    return _Row(node, table.columns.usages[slot], tuple(table.pods.on_node(slot)))


def _table(host: PluginHost, table: NodeTable, rows: list[_Row], position: int, row: _Row) -> NodeTable:
    """Return the host's table with another row in one position."""
    changed = host.table()
    columns, slot = changed.columns, int(table.slots[position])
    if row.node.name != rows[position].node.name:
        columns.remove(slot)
        columns.add(row.node, slot)
    elif row.node is not rows[position].node:
        columns.set_node(slot, row.node)
    columns.set_usage(slot, row.usage)
    if columns.pods is not None:
        columns.pods.set_node_pods(slot, row.pods, (), 1)
    return NodeTable(columns)


def _changes(
    row: _Row, others: list[_Row], pod: Pod, reads: frozenset[NodeColumn | NodeLabel]
) -> Iterator[_Change]:
    """Return the row with one undeclared part changed at a time."""
    for column, field in _FIELDS.items():
        if column in reads or column is NodeColumn.LABELS:
            continue
        values = [field.read(other) for other in others] + list(field.values(row, pod))
        for value in values:
            if value != field.read(row):
                yield _Change(f"NodeColumn.{column.name}", field.write(row, value))
    if NodeColumn.LABELS not in reads:
        yield from _other_labels(row, others, reads)
    for images in ((), (NodeImage((f"{_OTHER}:v1",), 1 << 30),), *(other.node.images for other in others)):
        if images != row.node.images:
            yield _Change("the node's images", _with_node(row, images=images), has_column=False)
    yield _Change("the Node's JSON", _with_node(row, object=_BARE), has_column=False)
    for pods in ((), *(other.pods for other in others)):
        if pods != row.pods:
            yield _Change("the pods on the node", replace(row, pods=pods), has_column=False)


def _other_labels(
    row: _Row, others: list[_Row], reads: frozenset[NodeColumn | NodeLabel]
) -> Iterator[_Change]:
    """Return the row with one label more, less or changed, for labels that are not declared."""
    known = row.node.labels
    values: dict[str, set[str]] = {_OTHER: set()}
    for one in (row, *others):
        for key, value in one.node.labels.items():
            values.setdefault(key, set()).add(value)
    for key in sorted(values):
        if NodeLabel(key) in reads:
            continue
        for value in sorted({*values[key], "other"} - {known.get(key, "")}):
            yield _Change(f"NodeLabel({key!r})", _with_node(row, labels={**known, key: value}))
        if key in known:
            left = {name: value for name, value in known.items() if name != key}
            yield _Change(f"NodeLabel({key!r})", _with_node(row, labels=left))


@dataclass(frozen=True, slots=True)
class _Field:
    """One column: how it is read from a row, written to it, and values beside those of other rows."""

    read: Callable[[_Row], Any]
    write: Callable[[_Row, Any], _Row]
    values: Callable[[_Row, Pod], list[Any]]


def _of_node(name: str, values: Callable[[_Row, Pod], list[Any]]) -> _Field:
    return _Field(
        lambda row: getattr(row.node, name), lambda row, value: _with_node(row, **{name: value}), values
    )


def _of_usage(name: str, values: Callable[[_Row, Pod], list[Any]]) -> _Field:
    return _Field(
        lambda row: getattr(row.usage, name),
        lambda row, value: replace(row, usage=replace(row.usage, **{name: value})),
        values,
    )


def _with_node(row: _Row, **fields: Any) -> _Row:
    return replace(row, node=replace(row.node, **fields))


def _amounts(known: Mapping[str, int], full: Mapping[str, int]) -> list[dict[str, int]]:
    """Return these amounts without all or one of them, and with one of `full` in place."""
    return [
        {},
        *({name: value for name, value in known.items() if name != gone} for gone in known),
        *({**known, name: value} for name, value in full.items()),
    ]


_FIELDS: Final[Mapping[NodeColumn, _Field]] = {
    NodeColumn.NAME: _of_node("name", lambda row, pod: [f"{row.node.name}-other", pod.node_name or _OTHER]),
    NodeColumn.ANNOTATIONS: _of_node(
        "annotations",
        lambda row, pod: [
            {},
            {**row.node.annotations, _OTHER: "other"},
            *({**row.node.annotations, key: "other"} for key in row.node.annotations),
        ],
    ),
    NodeColumn.TAINTS: _of_node(
        "taints",
        lambda row, pod: [(), *((*row.node.taints, Taint(_OTHER, "other", effect)) for effect in _EFFECTS)],
    ),
    NodeColumn.UNSCHEDULABLE: _of_node("unschedulable", lambda row, pod: [not row.node.unschedulable]),
    NodeColumn.ALLOCATABLE: _of_node(
        "allocatable",
        lambda row, pod: _amounts(
            row.node.allocatable, {name: value * 2 + 1 for name, value in row.node.allocatable.items()}
        ),
    ),
    NodeColumn.DECLARED_FEATURES: _of_node(
        "declared_features", lambda row, pod: [(), (*row.node.declared_features, "Other")]
    ),
    NodeColumn.REQUESTED: _of_usage(
        "requested", lambda row, pod: _amounts(row.usage.requested, row.node.allocatable)
    ),
    NodeColumn.NON_ZERO_REQUESTED: _of_usage(
        "non_zero_requested",
        lambda row, pod: _amounts(
            row.usage.non_zero_requested,
            {name: row.node.allocatable.get(name, 1) for name in ("cpu", "memory")},
        ),
    ),
    NodeColumn.POD_COUNT: _of_usage(
        "pod_count", lambda row, pod: [0, 1, row.node.allocatable.get("pods", 110)]
    ),
    NodeColumn.HOST_PORTS: _of_usage(
        "host_ports",
        lambda row, pod: [
            frozenset(),
            row.usage.host_ports | {HostPort("", "TCP", 1)} | {port.normalized for port in pod.host_ports},
        ],
    ),
}


# --- answers ---------------------------------------------------------------------------------------


def _answer(host: PluginHost, pod: Pod, nodes: NodeTable, position: int) -> dict[str, object]:
    """Return the answers about one row. PreFilter and PreScore get all rows."""
    runtime, row = host.runtime, nodes.take([position])
    state = CycleState("check-reads", plugin=runtime.descriptor.name)
    said: dict[str, object] = {}
    if runtime.descriptor.has(ExtensionPoint.FILTER):
        asked = True
        if runtime.descriptor.has(ExtensionPoint.PRE_FILTER):
            asked = host.run(runtime.pre_filter(state, pod, nodes)).status.is_success
        said["Filter"] = (
            host.run(runtime.filter(state, pod, row, own=True)).verdicts.status(0) if asked else None
        )
    if runtime.descriptor.has(ExtensionPoint.SCORE):
        status = host.run(runtime.pre_score(state, pod, nodes))
        if status.code is Code.SUCCESS:
            said["Score"] = int(host.run(runtime.score(state, pod, row))[0])
        else:
            said["Score"] = None
    return said
