"""Columns of nodes: their values, their changes, and that they are read-only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from berth_sdk.node import Node, NodeImage, Taint
from berth_sdk.pod import HostPort, Pod
from berth_sdk.tables import NodeColumns, NodeTable, NodeUsage, PodChanges, PodTable


def columns_of(*nodes: Node) -> NodeColumns:
    columns = NodeColumns()
    columns.begin_update()
    for generation, node in enumerate(nodes, 1):
        columns.touch(columns.add(node), generation)
    return columns


def node(name: str, **fields: Any) -> Node:
    return Node(name=name, **fields)


@pytest.fixture
def columns() -> NodeColumns:
    """Twenty nodes, more than the first capacity."""
    return columns_of(*(node(f"n{i}", allocatable={"cpu": i, "pods": 110}) for i in range(20)))


# --- columns -------------------------------------------------------------------------------------------


def test_columns_hold_the_values_of_the_nodes() -> None:
    taints = (Taint("k", "v", "NoSchedule"),)
    table = NodeTable(
        columns_of(
            node("a", unschedulable=True, labels={"zone": "x"}, taints=taints, declared_features=("F",)),
            node("b", allocatable={"cpu": 4000, "example.com/gpu": 2}),
        )
    )
    assert table.names == ["a", "b"]
    assert table.unschedulable.tolist() == [True, False]
    assert table.allocatable("cpu").tolist() == [0, 4000]
    assert table.allocatable("example.com/gpu").tolist() == [0, 2]
    assert table.allocatable("example.com/never-seen").tolist() == [0, 0]
    assert table.has_label("zone", "x").tolist() == [True, False]
    assert table.has_label("zone", "y").tolist() == [False, False]
    assert [table.taint_sets.values[code] for code in table.taint_set.tolist()] == [taints, None]
    assert table.declares_feature("F").tolist() == [True, False]
    assert table.generation.tolist() == [1, 2]


def test_columns_built_on_demand_follow_later_changes(columns: NodeColumns) -> None:
    table = NodeTable(columns)
    assert not table.has_label("zone", "x").any()
    assert not table.declares_feature("F").any()
    assert not table.port_taken(HostPort("", "", 80)).any()
    columns.set_node(3, node("n3", labels={"zone": "x"}, declared_features=("F",)))
    columns.set_usage(5, NodeUsage(host_ports=frozenset({HostPort("0.0.0.0", "TCP", 80)})))
    columns.add(node("late", labels={"zone": "x"}))
    table = NodeTable(columns)
    assert np.flatnonzero(table.has_label("zone", "x")).tolist() == [3, 20]
    assert np.flatnonzero(table.declares_feature("F")).tolist() == [3]
    assert np.flatnonzero(table.port_taken(HostPort("", "", 80))).tolist() == [5]
    columns.set_node(3, node("n3"))
    assert not NodeTable(columns).has_label("zone", "x")[3]


def test_removed_resource_of_a_node_reads_zero(columns: NodeColumns) -> None:
    columns.set_node(3, node("n3", allocatable={"cpu": 7}))
    columns.set_usage(4, NodeUsage(requested={"cpu": 1}, pod_count=2))
    columns.set_usage(4, NodeUsage(requested={"example.com/gpu": 1}, pod_count=1))
    table = NodeTable(columns)
    assert (table.allocatable("cpu")[3], table.allocatable("pods")[3]) == (7, 0)
    assert (table.requested("cpu")[4], table.requested("example.com/gpu")[4]) == (0, 1)
    assert table.pod_count[4] == 1


PORT_CASES = [
    pytest.param(HostPort("", "", 80), HostPort("10.0.0.1", "TCP", 80), True, id="wildcard wanted"),
    pytest.param(HostPort("10.0.0.1", "TCP", 80), HostPort("", "", 80), True, id="wildcard used"),
    pytest.param(HostPort("10.0.0.1", "", 80), HostPort("10.0.0.2", "", 80), False, id="other address"),
    pytest.param(HostPort("", "UDP", 80), HostPort("", "TCP", 80), False, id="other protocol"),
    pytest.param(HostPort("", "", 81), HostPort("", "", 80), False, id="other port"),
]


@pytest.mark.parametrize(("wanted", "used", "taken"), PORT_CASES)
def test_port_conflicts_by_address_protocol_and_number(
    columns: NodeColumns, wanted: HostPort, used: HostPort, taken: bool
) -> None:
    usage = NodeUsage(host_ports=frozenset({used.normalized}))
    columns.set_usage(2, usage)
    assert bool(NodeTable(columns).port_taken(wanted)[2]) == taken
    comes = PodChanges.of([[Pod(name="a", uid="a", host_ports=(used,))]])
    overlaid = NodeTable(columns).take([1]).with_changes(PodChanges.none(1), comes)
    assert overlaid.port_taken(wanted).tolist() == [taken]
    leaves = NodeTable(columns).take([2]).with_changes(comes, PodChanges.none(1))
    assert leaves.port_taken(wanted).tolist() == [False]


def test_no_array_can_be_written_to(columns: NodeColumns) -> None:
    whole = NodeTable(columns)
    for table in (whole, whole.take([3, 1])):
        for column in (
            table.slots,
            table.generation,
            table.unschedulable,
            table.allocatable("cpu"),
            table.allocatable("never seen"),
            table.requested("cpu"),
            table.non_zero_requested("memory"),
            table.pod_count,
            table.taint_set,
            table.label("zone")[0],
            table.declares_feature("F"),
            table.image("x")[0],
            table.port_taken(HostPort("", "", 80)),
        ):
            with pytest.raises(ValueError, match="read-only"):
                column[0] = 1


# --- rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "name", "position"),
    [
        pytest.param(None, "n7", 7, id="whole"),
        pytest.param([0, 1, 2], "n2", 2, id="beginning"),
        pytest.param([0, 1, 2], "n7", None, id="beyond the beginning"),
        pytest.param([2, 7, 9], "n7", 1, id="ascending"),
        pytest.param([2, 7, 9], "n8", None, id="not among ascending"),
        pytest.param([2, 7, 9], "n19", None, id="after the last"),
        pytest.param([9, 7, 2], "n2", 2, id="in another order"),
        pytest.param([9, 7, 2], "n3", None, id="not among those"),
        pytest.param([5, 5], "n5", 0, id="twice"),
        pytest.param(None, "ghost", None, id="unknown"),
    ],
)
def test_position_is_the_row_of_a_named_candidate(
    columns: NodeColumns, rows: list[int] | None, name: str, position: int | None
) -> None:
    table = NodeTable(columns) if rows is None else NodeTable(columns).take(rows)
    assert table.position(name) == position
    view = table.node_named(name)
    assert (view.name if view else None) == (None if position is None else name)


@pytest.mark.parametrize("gone", [None, 3])
def test_a_mask_takes_the_rows_where_it_is_true(columns: NodeColumns, gone: int | None) -> None:
    if gone is not None:
        columns.remove(gone)
    table = NodeTable(columns)
    mask = np.arange(len(table)) % 3 == 0
    once_more = mask.copy()
    once_more.flags.writeable = False
    for chosen in (mask, once_more, once_more):
        some = table.take(chosen)
        assert some.names == [name for i, name in enumerate(table.names) if i % 3 == 0]
        assert not some.slots.flags.writeable
    with pytest.raises(IndexError):
        table.take(mask[:-1])


def test_rows_are_taken_by_position_or_by_mask(columns: NodeColumns) -> None:
    some = NodeTable(columns).take([4, 8, 2])
    assert some.names == ["n4", "n8", "n2"]
    assert some.allocatable("cpu").tolist() == [4, 8, 2]
    assert some.take([2, 0]).names == ["n2", "n4"]
    assert some.take(np.array([True, False, True])).names == ["n4", "n2"]
    assert (len(some), some.snapshot_size, len(some.whole)) == (3, 20, 20)


def test_changes_can_be_overlaid_and_follow_their_rows(columns: NodeColumns) -> None:
    comes = [
        [Pod(name=f"p{i}", uid=f"p{i}", requests={"cpu": i}, non_zero_requests={"memory": i})] for i in (7, 8)
    ]
    changes = (PodChanges.none(2), PodChanges.of(comes))
    table = NodeTable(columns).take([3, 3]).with_changes(*changes)
    assert table.requested("cpu").tolist() == [7, 8]
    assert table.non_zero_requested("memory").tolist() == [7, 8]
    assert table.pod_count.tolist() == [1, 1]
    assert table.take(np.array([False, True])).requested("cpu").tolist() == [8]
    assert table.take([1, 0]).node(0).requested == {"cpu": 8}
    assert table.take([1, 1]).requested("cpu").tolist() == [8, 8]
    assert table.unchanged(np.array([1])).requested("cpu").tolist() == [0]
    assert NodeTable(columns).requested("cpu")[3] == 0


def test_node_view_reads_one_row(columns: NodeColumns) -> None:
    columns.pods = PodTable()
    columns.pods.set_node_pods(3, [Pod(name="a", uid="a")], (), 1)
    columns.set_usage(3, NodeUsage(requested={"cpu": 1}, pod_count=1))
    view = NodeTable(columns).node(3)
    assert (view.name, view.index, view.allocatable["cpu"], view.requested) == ("n3", 3, 3, {"cpu": 1})
    assert (view.pod_count, [pod.name for pod in view.pods]) == (1, ["a"])


def test_error_of_a_table_without_pods_names_the_need(columns: NodeColumns) -> None:
    with pytest.raises(ValueError, match=r"add Need\.pods\(\)"):
        _ = NodeTable(columns).pods


def test_whole_table_is_made_once_per_version(columns: NodeColumns) -> None:
    table = NodeTable.of(columns)
    assert NodeTable.of(columns) is table
    columns.set_usage(1, NodeUsage())
    assert NodeTable.of(columns) is not table


# --- slots ---------------------------------------------------------------------------------------------


def test_slot_of_a_removed_node_is_not_reused_before_reclaim(columns: NodeColumns) -> None:
    columns.set_usage(
        3, NodeUsage(requested={"cpu": 5}, host_ports=frozenset({HostPort("0.0.0.0", "TCP", 80)}))
    )
    columns.remove(3, generation=50)
    assert columns.add(node("new")) == 20
    columns.reclaim(49)
    assert columns.add(node("newer")) == 21
    columns.reclaim(50)
    assert columns.add(node("newest")) == 3
    table = NodeTable(columns)
    assert table.requested("cpu")[3] == 0
    assert not table.port_taken(HostPort("", "", 80)).any()
    assert (len(table), table.position("n3"), table.position("newest")) == (22, None, 3)


def test_lowest_free_slot_is_given_first(columns: NodeColumns) -> None:
    for slot in (9, 2, 5):
        columns.remove(slot, generation=1)
    columns.reclaim()
    assert [columns.add(node(name)) for name in "xyz"] == [2, 5, 9]


def test_removing_a_node_removes_its_pods(columns: NodeColumns) -> None:
    columns.pods = PodTable()
    columns.pods.set_node_pods(3, [Pod(name="a", uid="a")], (), 1)
    columns.remove(3, generation=2)
    assert len(columns.pods) == 0


def test_table_of_another_version_does_not_show_an_empty_slot(columns: NodeColumns) -> None:
    stale = NodeTable(columns).take([3])
    columns.remove(3, generation=2)
    with pytest.raises(IndexError, match="belongs to another version"):
        stale.node(0)


def test_label_column_with_too_many_values_is_dropped() -> None:
    columns = columns_of(node("a", labels={"id": "0"}))
    columns.label("id")
    for i in range(1, 4200):
        columns.set_node(0, node("a", labels={"id": str(i)}))
    columns.begin_update()
    codes, values = columns.label("id")
    assert values.values[int(codes[0])] == "4199"
    assert len(values) == 2


# --- images --------------------------------------------------------------------------------------------

IMAGE = (NodeImage(("img", "img:alias"), 100),)


def counts(columns: NodeColumns, name: str = "img") -> list[int]:
    found: list[int] = NodeTable(columns).image(name)[0].tolist()
    return found


def test_image_counts_are_as_of_the_rows_last_copy() -> None:
    columns = columns_of(node("a", images=IMAGE), node("b"), node("c", images=IMAGE))
    assert (counts(columns), counts(columns, "img:alias")) == ([2, 0, 2], [2, 0, 2])
    columns.begin_update()
    columns.set_node(1, node("b", images=IMAGE))
    assert counts(columns) == [2, 3, 2]
    columns.begin_update()
    columns.touch(0, 9)
    assert counts(columns) == [3, 3, 2]


def test_image_size_is_that_of_the_first_report_while_any_node_has_it() -> None:
    columns = columns_of(node("a", images=IMAGE))
    columns.begin_update()
    columns.set_node(columns.add(node("b")), node("b", images=(NodeImage(("img",), 7),)))
    assert NodeTable(columns).image("img")[1] == 100
    columns.set_node(0, node("a"))
    assert NodeTable(columns).image("img")[1] == 100
    columns.set_node(1, node("b"))
    assert (counts(columns), NodeTable(columns).image("img")[1]) == ([0, 0], 0)
    columns.set_node(0, node("a", images=(NodeImage(("img",), 7),)))
    assert NodeTable(columns).image("img")[1] == 7


def test_old_rows_keep_their_count_however_often_others_change() -> None:
    columns = columns_of(node("old", images=IMAGE), node("b", images=IMAGE), node("c"))
    for _ in range(200):
        for images in (IMAGE, ()):
            columns.begin_update()
            columns.set_node(2, node("c", images=images))
    assert counts(columns) == [2, 2, 0]
    columns.begin_update()
    columns.set_node(2, node("c", images=IMAGE))
    assert counts(columns) == [2, 2, 3]


def test_image_counts_that_no_row_reads_are_dropped() -> None:
    columns = columns_of(node("a", images=IMAGE), node("b"))
    for _ in range(1000):
        for images in (IMAGE, ()):
            columns.begin_update()
            columns.set_node(1, node("b", images=images))
            columns.touch(0, 1)
    assert counts(columns) == [1, 0]
    assert columns.images.kept_count < 100
