"""The promise that a class makes with `depends_on`, checked at every Filter and Score of a test.

A host keeps the answers of such a class, so a broken promise shows there as a pod on the wrong node. The test
host asks the plugin again: about the same nodes; about the nodes without their pods (NODE, NODES); about one
node alone (NODE, ROW).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from berth_sdk.errors import PluginAnswerError
from berth_sdk.extension_points import DependsOn
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable
from berth_sdk.testing.builders import make_table

T = TypeVar("T")
ALONE: Final = 8
"""The number of nodes that are asked about alone."""


def check_promise(
    what: str,
    depends_on: DependsOn | None,
    before: Mapping[str, T],
    nodes: NodeTable,
    ask: Callable[[NodeTable], Mapping[str, T]],
) -> None:
    """Check that `before`, the answers by node, follow from what `depends_on` names alone.

    `what`: the plugin and the method, for the message. `nodes`: the table of these answers. `ask`: asks the
    plugin about a table. Raises PluginAnswerError.
    """
    if depends_on is None or depends_on is DependsOn.OTHER:
        return
    for change, table in _tables(depends_on, nodes):
        for name, answer in ask(table).items():
            if answer != before[name]:
                raise PluginAnswerError(
                    f"{what} answers {words(before[name])} for node {name}, and {words(answer)} {change}, but"
                    f" the class declares depends_on {depends_on.name}, with which a host keeps the answer:"
                    f" declare {_cure(depends_on, change)}, or answer from what {depends_on.name} names alone"
                )


_AGAIN: Final = "when asked again about the same pod and nodes"
_EMPTY: Final = "without the pods on the nodes"
_ALONE: Final = "without the other nodes"


def _cure(depends_on: DependsOn, change: str) -> str:
    if change == _AGAIN:
        return "DependsOn.OTHER"
    if change == _EMPTY and depends_on is DependsOn.NODE:
        return "DependsOn.ROW"
    return "DependsOn.TABLE"


def _tables(depends_on: DependsOn, nodes: NodeTable) -> Iterator[tuple[str, NodeTable]]:
    """Yield what differs, and the table to ask about; each is a snapshot of its own, as kept answers are by
    snapshot.
    """
    rows = {view.name: (view.node, tuple(view.pods)) for view in nodes.whole}
    pods = [pod for _, on_node in rows.values() for pod in on_node]
    asked = nodes.names
    yield _AGAIN, _table(rows, asked, pods)
    if depends_on in (DependsOn.NODE, DependsOn.NODES):
        yield _EMPTY, _table(rows, asked, ())
    if depends_on in (DependsOn.NODE, DependsOn.ROW):
        for name in asked[:ALONE]:
            node, on_node = rows[name]
            yield _ALONE, make_table([node], on_node)


def _table(
    rows: Mapping[str, tuple[Node, tuple[Pod, ...]]], names: Sequence[str], pods: Sequence[Pod]
) -> NodeTable:
    table = make_table([node for node, _ in rows.values()], pods)
    positions = {name: position for position, name in enumerate(table.names)}
    return table if len(names) == len(rows) else table.take([positions[name] for name in names])


def words(answer: object) -> str:
    """Return an answer as a message shows it."""
    if answer is None:
        return "nothing (skipped)"
    if isinstance(answer, Status):
        return f"{answer.code.kube_name} ({answer.message})" if answer.message else answer.code.kube_name
    return str(answer)
