"""Rows of equal content in the columns that plugins read have equal numbers; other rows have others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from berth_sdk.extension_points import NodeColumn, NodeLabel
from berth_sdk.kept import row_contents
from berth_sdk.kept.row_contents import (
    MOST_ANSWERS,
    ContentAnswers,
    Reads,
    RowContents,
    content_answers,
    contents_of,
)
from berth_sdk.node import Node, Taint
from berth_sdk.pod import HostPort
from berth_sdk.tables import SlotFollower
from berth_sdk.tables.node_columns import NodeColumns, NodeUsage
from hypothesis import given
from hypothesis import strategies as st

ZONE = NodeLabel("zone")
NODE = Node(
    name="n",
    labels={"zone": "a", "disk": "ssd"},
    annotations={"note": "x"},
    allocatable={"cpu": 4000, "pods": 110},
    declared_features=("Fast",),
)
USAGE = NodeUsage(requested={"cpu": 500}, non_zero_requested={"cpu": 500, "memory": 200}, pod_count=1)
CHANGES: dict[NodeColumn | NodeLabel, Callable[[Node, NodeUsage], tuple[Node, NodeUsage]]] = {
    NodeColumn.NAME: lambda node, usage: (replace(node, name="other"), usage),
    NodeColumn.LABELS: lambda node, usage: (replace(node, labels={**node.labels, "disk": "hdd"}), usage),
    ZONE: lambda node, usage: (replace(node, labels={**node.labels, "zone": "b"}), usage),
    NodeColumn.ANNOTATIONS: lambda node, usage: (replace(node, annotations={}), usage),
    NodeColumn.TAINTS: lambda node, usage: (replace(node, taints=(Taint("t"),)), usage),
    NodeColumn.UNSCHEDULABLE: lambda node, usage: (replace(node, unschedulable=True), usage),
    NodeColumn.ALLOCATABLE: lambda node, usage: (replace(node, allocatable={"cpu": 4000}), usage),
    NodeColumn.DECLARED_FEATURES: lambda node, usage: (replace(node, declared_features=()), usage),
    NodeColumn.REQUESTED: lambda node, usage: (node, replace(usage, requested={"cpu": 501})),
    NodeColumn.NON_ZERO_REQUESTED: lambda node, usage: (node, replace(usage, non_zero_requested={"cpu": 5})),
    NodeColumn.POD_COUNT: lambda node, usage: (node, replace(usage, pod_count=2)),
    NodeColumn.HOST_PORTS: lambda node, usage: (
        node,
        replace(usage, host_ports=frozenset({HostPort("", "TCP", 80)})),
    ),
}
ALL: Reads = frozenset(CHANGES)


def table(*rows: tuple[Node, NodeUsage]) -> NodeColumns:
    columns = NodeColumns()
    for number, (node, usage) in enumerate(rows):
        slot = columns.add(replace(node, name=node.name if node.name != "n" else f"n{number}"))
        columns.set_usage(slot, usage)
    return columns


def test_every_column_has_a_change() -> None:
    assert {one for one in CHANGES if isinstance(one, NodeColumn)} == set(NodeColumn)


@pytest.mark.parametrize("column", CHANGES, ids=str)
def test_rows_differ_in_the_columns_that_are_read_alone(column: NodeColumn | NodeLabel) -> None:
    columns = NodeColumns()
    slot = columns.add(NODE)
    columns.set_usage(slot, USAGE)
    seen, blind = RowContents(frozenset({column})), RowContents(ALL - {column, NodeColumn.LABELS})
    before = seen.of(columns, [slot]), blind.of(columns, [slot])
    node, usage = CHANGES[column](NODE, USAGE)
    columns.set_node(slot, node)
    columns.set_usage(slot, usage)
    assert seen.of(columns, [slot]) != before[0]
    assert blind.of(columns, [slot]) == before[1]
    columns.set_node(slot, NODE)
    columns.set_usage(slot, USAGE)
    assert (seen.of(columns, [slot]), blind.of(columns, [slot])) == before


def test_no_columns_make_all_rows_alike() -> None:
    changed = [change(NODE, USAGE) for change in CHANGES.values()]
    assert len(set(RowContents(frozenset()).of(table(*changed), range(len(changed))))) == 1


def test_numbers_follow_a_log_that_has_forgotten() -> None:
    columns = table((NODE, USAGE), (NODE, USAGE))
    contents = RowContents(frozenset({NodeColumn.POD_COUNT, NodeColumn.TAINTS}))
    first, second = contents.of(columns, [0, 1])
    assert first == second
    columns.set_usage(0, replace(USAGE, pod_count=3))
    columns.set_node(1, replace(NODE, name="n1", taints=(Taint("t"),)))
    columns.moved.forget()
    columns.node_moved.forget()
    assert len({first, *contents.of(columns, [0, 1])}) == 3


def test_slot_of_a_removed_node_has_the_content_of_the_next_one() -> None:
    columns = table((NODE, USAGE), (NODE, USAGE))
    contents = RowContents(frozenset({NodeColumn.NAME}))
    before = contents.of(columns, [0, 1])
    columns.remove(0)
    with pytest.raises(IndexError, match="slot 0 has no node"):
        contents.of(columns, [0])
    columns.reclaim()
    columns.add(Node(name="later"), 0)
    assert contents.of(columns, [0])[0] not in before


def test_numbers_of_forgotten_contents_are_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_contents, "_LEAST_CONTENTS", 2)
    columns = table((NODE, USAGE))
    contents = RowContents(frozenset({NodeColumn.POD_COUNT}))
    seen = []
    for count in range(20):
        columns.set_usage(0, replace(USAGE, pod_count=count))
        seen += contents.of(columns, [0])
    assert len(set(seen)) == 20


def test_thread_gets_no_number_of_a_row_that_another_thread_has_found_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns = table((NODE, USAGE), (NODE, USAGE))
    contents = RowContents(frozenset({NodeColumn.POD_COUNT}))
    contents.of(columns, [0, 1])
    columns.set_usage(0, replace(USAGE, pod_count=5))
    found: list[list[int]] = []
    other = threading.Thread(target=lambda: found.append(contents.of(columns, [0, 1])))
    moved_in = SlotFollower.moved_in

    def slowly(self: SlotFollower, columns: NodeColumns) -> list[int] | None:
        moved = moved_in(self, columns)
        if moved and not other.is_alive() and not found:
            other.start()
            other.join(0.2)  # a thread that does not wait for the first one ends here
        return moved

    monkeypatch.setattr(SlotFollower, "moved_in", slowly)
    mine = contents.of(columns, [0, 1])
    other.join()
    assert mine[0] != mine[1]
    assert found == [mine]


def test_the_oldest_of_too_many_answers_goes() -> None:
    answers: ContentAnswers[str] = ContentAnswers(frozenset())
    answers.keep(range(MOST_ANSWERS), map(str, range(MOST_ANSWERS)))
    answers.keep([0, -1], ["0 again", "-1"])
    assert len(answers) == MOST_ANSWERS
    assert answers.find([-1, 0, 1]) == ["-1", None, "1"]
    answers.clear()
    assert answers.find([1]) == [None]


def test_answers_end_with_their_table() -> None:
    answers: ContentAnswers[str] = ContentAnswers(frozenset({NodeColumn.POD_COUNT}))
    columns = table((NODE, USAGE))
    answers.keep(answers.numbers(columns, [0]), ["one pod"])
    other = table((NODE, replace(USAGE, pod_count=2)))
    assert answers.find(answers.numbers(other, [0])) == [None]


def test_plugins_that_read_the_same_compare_rows_once() -> None:
    columns = table((NODE, USAGE))
    taints = contents_of(columns, frozenset({NodeColumn.TAINTS}))
    assert contents_of(columns, frozenset({NodeColumn.TAINTS})) is taints
    for number in range(100):
        contents_of(columns, frozenset({NodeLabel(f"key-{number}")}))
    assert len(columns.contents) == 32
    assert contents_of(columns, frozenset({NodeColumn.TAINTS})) is not taints


def test_one_plugin_without_a_declaration_keeps_the_others_from_sharing() -> None:
    taints: Reads = frozenset({NodeColumn.TAINTS})
    assert content_answers([taints, None]) is None
    columns = table((NODE, USAGE), (replace(NODE, labels={"zone": "b"}), USAGE))
    joint = content_answers([taints, frozenset({ZONE})])
    assert joint is not None
    assert len(set(joint.numbers(columns, [0, 1]))) == 2


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(sorted(CHANGES, key=str)), st.booleans()), max_size=30
    ),
    st.sets(st.sampled_from(sorted(CHANGES, key=str))),
)
def test_equal_numbers_are_equal_content_after_any_changes(
    steps: list[tuple[int, NodeColumn | NodeLabel, bool]], reads: set[NodeColumn | NodeLabel]
) -> None:
    rows = [(replace(NODE, name=f"n{number}"), USAGE) for number in range(4)]
    columns = table(*rows)
    contents = RowContents(frozenset(reads))
    for slot, column, asks in steps:
        node, usage = CHANGES[column](*rows[slot])
        rows[slot] = replace(node, name=f"n{slot}"), usage
        columns.set_node(slot, rows[slot][0])
        columns.set_usage(slot, usage)
        if asks:
            contents.of(columns, [slot])
    numbers = contents.of(columns, range(4))
    for one in range(4):
        for other in range(one):
            same = [_part(column, rows[one]) == _part(column, rows[other]) for column in reads]
            assert (numbers[one] == numbers[other]) is all(same), (rows[one], rows[other])


def _part(column: NodeColumn | NodeLabel, row: tuple[Node, NodeUsage]) -> object:
    if isinstance(column, NodeLabel):
        return row[0].labels.get(column.key)
    name = column.name.lower()
    return getattr(row[0], name) if hasattr(row[0], name) else getattr(row[1], name)
