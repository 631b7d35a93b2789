"""The content of rows in the columns that plugins read, so that rows that are alike share an answer.

`RowContents` gives equal numbers to slots of equal content, and follows the changes of the table. A number is
never given to another content, so an answer kept by number holds for as long as the pod's signature and the
declared objects do. `ContentAnswers` keeps answers by number. Used by the host and by the SDK.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth_sdk.extension_points import NodeColumn, NodeLabel
from berth_sdk.node import Node
from berth_sdk.tables import Moved, NodeTable, SlotFollower
from berth_sdk.tables.node_columns import NodeColumns, NodeUsage

V = TypeVar("V")
Reads: TypeAlias = frozenset[NodeColumn | NodeLabel]
MOST_ANSWERS: Final = 256
"""The number of contents whose answers are kept for one signature."""
MOST_ROWS: Final = 64
"""The number of rows whose answers several in-process plugins look up by content. One call to each of them
about more rows takes less time.
"""
_MOST_SETS: Final = 32
"""The number of sets of columns that one table compares its rows in."""
_LEAST_CONTENTS: Final = 4096
_MAKING: Final = threading.Lock()
_OF_NODE: Final[dict[NodeColumn, Callable[[Node], Hashable]]] = {
    NodeColumn.NAME: lambda node: node.name,
    NodeColumn.LABELS: lambda node: frozenset(node.labels.items()),
    NodeColumn.ANNOTATIONS: lambda node: frozenset(node.annotations.items()),
    NodeColumn.TAINTS: lambda node: node.taints,
    NodeColumn.UNSCHEDULABLE: lambda node: node.unschedulable,
    NodeColumn.ALLOCATABLE: lambda node: frozenset(node.allocatable.items()),
    NodeColumn.DECLARED_FEATURES: lambda node: node.declared_features,
}
# In the order in which pods added them: two orders of the same requests have two numbers, which is rare.
_OF_PODS: Final[dict[NodeColumn, Callable[[NodeUsage], Hashable]]] = {
    NodeColumn.REQUESTED: lambda usage: tuple(usage.requested.items()),
    NodeColumn.NON_ZERO_REQUESTED: lambda usage: tuple(usage.non_zero_requested.items()),
    NodeColumn.POD_COUNT: lambda usage: usage.pod_count,
    NodeColumn.HOST_PORTS: lambda usage: usage.host_ports,
}


class RowContents:
    """A number for the content of each slot in the columns `reads`: equal numbers, equal content.

    Equal contents may have different numbers: the plugin is then called once more, and answers the same.
    Several threads may
    call `of`: plugins of one process share the table, and each plugin has a thread of its own at Score.
    """

    __slots__ = (
        "_lock",
        "_node_follower",
        "_node_reads",
        "_nodes",
        "_nodes_at",
        "_of_nodes",
        "_of_rows",
        "_pod_reads",
        "_row_follower",
        "_rows",
    )

    def __init__(self, reads: Reads) -> None:
        self._lock = threading.Lock()
        labels = sorted([one.key for one in reads if isinstance(one, NodeLabel)])
        self._node_reads = tuple(
            [read for one, read in _OF_NODE.items() if one in reads] + list(map(_label, labels))
        )
        self._pod_reads = tuple([read for one, read in _OF_PODS.items() if one in reads])
        self._node_follower, self._row_follower = SlotFollower(Moved.NODE), SlotFollower(Moved.ROW)
        self._nodes_at: tuple[object, int] | None = None
        """The table, and its version of the nodes, up to which `_nodes` holds."""
        self._nodes: list[int] = []
        """By slot: the number for the columns of the Node object; 0: not known."""
        self._rows: list[int] = []
        """By slot: the number for all columns; 0: not known."""
        self._of_nodes, self._of_rows = _Numbers(), _Numbers()

    def of(self, columns: NodeColumns, slots: Sequence[int]) -> list[int]:
        """Return the numbers of these slots of the snapshot."""
        with self._lock:
            nodes_at = columns.identity, columns.nodes_version
            if self._nodes_at != nodes_at:
                self._nodes_at = nodes_at
                _catch_up(self._nodes, self._node_follower, columns)
            if not self._pod_reads:
                return [self._nodes[slot] or self._number_of_node(columns, slot) for slot in slots]
            _catch_up(self._rows, self._row_follower, columns)
            return [self._rows[slot] or self._number_of_row(columns, slot) for slot in slots]

    def _number_of_node(self, columns: NodeColumns, slot: int) -> int:
        node = columns.nodes[slot]
        if node is None:
            raise IndexError(f"slot {slot} has no node: ask about slots of the snapshot")
        number = self._nodes[slot] = self._of_nodes.of(
            tuple([read(node) for read in self._node_reads]), len(columns)
        )
        return number

    def _number_of_row(self, columns: NodeColumns, slot: int) -> int:
        usage = columns.usages[slot]
        node = self._nodes[slot] or self._number_of_node(columns, slot)
        number = self._rows[slot] = self._of_rows.of(
            (node, *[read(usage) for read in self._pod_reads]), len(columns)
        )
        return number


class _Numbers:
    """Numbers from 1, one for each content. The contents are forgotten when there are too many; their numbers
    are not used again.
    """

    __slots__ = ("_last", "_numbers")

    def __init__(self) -> None:
        self._last = 0
        self._numbers: dict[Hashable, int] = {}

    def of(self, content: Hashable, node_count: int) -> int:
        """Return the number of a content. `node_count`: the contents of so many rows are remembered twice
        over.
        """
        number = self._numbers.get(content)
        if number is None:
            if len(self._numbers) >= max(_LEAST_CONTENTS, 2 * node_count):
                self._numbers.clear()
            number = self._numbers[content] = self._last = self._last + 1
        return number


class ContentAnswers(Generic[V]):
    """The answers of some plugins about pods with one signature, by the content of a row.

    `reads`: the columns that any of these plugins reads. A new answer replaces the oldest of too many.
    """

    __slots__ = ("_answers", "_contents", "_reads", "_table")

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._contents: RowContents | None = None
        # The identity in place of the columns, as in `SlotFollower`.
        self._table: object = None
        self._answers: dict[int, V] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def numbers(self, columns: NodeColumns, slots: Sequence[int]) -> list[int]:
        """Return the numbers of the contents of these slots."""
        contents = self._contents
        if contents is None or self._table is not columns.identity:
            # Another table's numbers stand for other contents.
            self._table = columns.identity
            contents = self._contents = contents_of(columns, self._reads)
            self._answers.clear()
        return contents.of(columns, slots)

    def find(self, numbers: Iterable[int]) -> list[V | None]:
        """Return the answers about these contents; None where there is none."""
        return list(map(self._answers.get, numbers))

    def keep(self, numbers: Iterable[int], answers: Iterable[V]) -> None:
        """Keep an answer for each of these contents."""
        known = self._answers
        for number, answer in zip(numbers, answers, strict=True):
            known[number] = answer
            if len(known) > MOST_ANSWERS:
                del known[next(iter(known))]

    def drop(self, numbers: Iterable[int]) -> None:
        """Forget the answers about these contents."""
        for number in numbers:
            self._answers.pop(number, None)

    def clear(self) -> None:
        """Forget all answers."""
        self._answers.clear()


class Alike:
    """Rows in groups of equal content, so that a plugin is asked about the first row of each.

    `first`: the positions of these rows, ascending. `group`: for each row, the number of its group, which is
    the place of its first row in `first`.
    """

    __slots__ = ("first", "group")

    def __init__(self, numbers: Sequence[int]) -> None:
        """`numbers`: the content of each row."""
        groups: dict[int, int] = {}
        first: list[int] = []
        group: list[int] = []
        for position, number in enumerate(numbers):
            at = groups.get(number)
            if at is None:
                at = groups[number] = len(first)
                first.append(position)
            group.append(at)
        self.first: NDArray[np.intp] = np.array(first, dtype=np.intp)
        self.group: NDArray[np.intp] = np.array(group, dtype=np.intp)


def alike_rows(nodes: NodeTable, reads: Reads | None) -> Alike | None:
    """Return the rows of a table in groups of equal content; None if it takes no fewer questions to ask about
    groups.

    `reads`: None if the plugin declares none. Rows of a what-if have contents that no table has.
    """
    if reads is None or len(nodes) < 2 or not nodes.is_snapshot:
        return None
    columns = nodes.columns
    alike = Alike(contents_of(columns, reads).of(columns, nodes.slots.tolist()))
    return alike if len(alike.first) < len(nodes) else None


def contents_of(columns: NodeColumns, reads: Reads) -> RowContents:
    """Return the contents of a table's rows in these columns: the same for all plugins that read the same."""
    known = columns.contents
    contents: RowContents | None = known.get(reads)
    if contents is None:
        with _MAKING:
            if len(known) >= _MOST_SETS:
                del known[next(iter(known))]
            contents = known.setdefault(reads, RowContents(reads))
    return contents


def content_answers(declared: Iterable[Reads | None]) -> ContentAnswers[Any] | None:
    """Return a place for the joint answers of plugins that read these columns; None if one declares none."""
    joint: Reads = frozenset()
    for reads in declared:
        if reads is None:
            return None
        joint |= reads
    return ContentAnswers(joint)


def _label(key: str) -> Callable[[Node], Hashable]:
    return lambda node: node.labels.get(key)


def _catch_up(numbers: list[int], follower: SlotFollower, columns: NodeColumns) -> None:
    """Set the content number of every changed slot to 0, so that it is computed again."""
    if len(numbers) < columns.capacity:
        numbers.extend([0] * (columns.capacity - len(numbers)))
    moved = follower.moved_in(columns)
    if moved is None:
        numbers[:] = [0] * len(numbers)
    else:
        for slot in moved:
            numbers[slot] = 0
