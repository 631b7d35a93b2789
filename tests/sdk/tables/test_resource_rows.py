"""The rows of resources: made at the first read, bounded, and equal to a recount."""

from __future__ import annotations

from random import Random

from berth_sdk.tables import NodeTable, PodTable
from berth_sdk.tables.node_columns import NodeColumns, NodeUsage
from berth_sdk.tables.resource_rows import MAX_ROWS
from berth_sdk.testing import make_node, make_pod


def test_resources_that_nobody_asks_for_take_no_rows_and_the_others_are_bounded() -> None:
    offers = {f"example.com/r{i}": 1 + i for i in range(3000)}
    columns = NodeColumns()
    columns.pods = PodTable()
    slot = columns.add(make_node("n1", allocatable=offers))
    columns.set_usage(slot, NodeUsage(requested=offers))
    columns.pods.set_node_pods(slot, [make_pod("p", node="n1", requests=offers)], (), 1)
    table = NodeTable.of(columns)
    assert len(columns.allocatable.matrix) < 16
    assert table.offers("example.com/r9")
    for name, amount in offers.items():
        assert (
            table.allocatable(name)[0] == table.requested(name)[0] == table.pods.requests(name)[0] == amount
        )
    assert table.requested_of(("cpu", "example.com/r2999")).tolist() == [[0], [3000]]
    assert table.pods.requests("example.com/r0").base is table.pods.requests("example.com/r0").base
    last = "example.com/r2999"
    assert table.pods.requests(last).base is not table.pods.requests(last).base  # built at each read
    assert len(columns.allocatable.matrix) == len(columns.requested.matrix) <= 1024
    columns.begin_update()
    assert len(columns.allocatable.matrix) == len(columns.requested.matrix) <= 256
    columns.set_node(slot, make_node("n1", allocatable={"cpu": 1, "example.com/r1": 7}))
    columns.set_usage(slot, NodeUsage(requested={"example.com/r2": 8}))
    table = NodeTable.of(columns)
    for name in ("example.com/r1", "example.com/r2", "example.com/r2998"):
        assert table.allocatable(name).tolist() == [7 if name.endswith("r1") else 0]
        assert table.requested(name).tolist() == [8 if name.endswith("r2") else 0]
    columns.add(make_node("n2", allocatable=offers))
    assert NodeTable.of(columns).allocatable_of(("example.com/r1", "pods")).tolist() == [[7, 2], [110, 110]]


def test_update_drops_rows_that_were_only_read_since_the_last_one() -> None:
    offers = {f"example.com/r{i}": 1 for i in range(MAX_ROWS)}
    columns = NodeColumns()
    columns.add(make_node("n1", allocatable=offers))
    columns.begin_update()
    for name in offers:
        NodeTable.of(columns).allocatable(name)
    assert len(columns.allocatable.matrix) > 256
    columns.begin_update()
    assert len(columns.allocatable.matrix) <= 256


def test_update_forgets_names_that_no_node_has_any_more() -> None:
    columns = NodeColumns()
    slot = columns.add(make_node("n1"))
    for step in range(4):
        columns.begin_update()
        offers = {f"example.com/r{step}-{i}": 1 for i in range(1000)}
        columns.set_node(slot, make_node("n1", allocatable=offers))
    columns.begin_update()
    assert not columns.allocatable.has("example.com/r0-0")
    assert columns.allocatable.has("example.com/r3-0")


def test_amounts_are_those_of_a_recount_whatever_is_read_in_between() -> None:
    """One resource more than there are rows: each read, update and change in turn."""
    random, columns, slots = Random(7), NodeColumns(), []
    names = [f"example.com/r{i}" for i in range(MAX_ROWS + 8)]
    offers: dict[int, dict[str, int]] = {}
    for i in range(40):
        slots.append(columns.add(make_node(f"n{i}")))
    for step in range(300):
        slot = random.choice(slots)
        offers[slot] = dict.fromkeys(random.sample(names, 200), 1 + step)
        columns.set_node(slot, make_node(f"n{slots.index(slot)}", allocatable=offers[slot]))
        for name in random.sample(names, 20):
            wanted = [offers.get(one, {}).get(name, 0) for one in slots]
            assert NodeTable.of(columns).allocatable(name).tolist() == wanted
        if not step % 50:
            columns.begin_update()
