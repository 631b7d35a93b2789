"""percentageOfNodesToScore 1..99."""

from __future__ import annotations

import numpy as np
import pytest
from berth_host.cycle.attempt import SearchStart
from berth_host.cycle.sampling import cut, rotated, wanted_count
from berth_host.model.node_statuses import NodeStatuses
from berth_sdk.node import Node
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeColumns, NodeTable


@pytest.mark.parametrize(
    ("nodes", "percentage", "want"),
    [(99, 10, 99), (100, 10, 100), (1000, 5, 100), (1000, 42, 420), (5000, 10, 500)],
)
def test_wanted_count_follows_the_reference(nodes: int, percentage: int, want: int) -> None:
    assert wanted_count(nodes, percentage) == want


def statuses(count: int) -> NodeStatuses:
    columns = NodeColumns()
    for i in range(count):
        columns.add(Node(name=f"n{i}"))
    return NodeStatuses(NodeTable(columns))


def test_search_stops_behind_the_last_node_it_needs() -> None:
    found = statuses(6)
    rejected = np.array([False, True, False, False, True, False])
    rows = np.arange(6)
    found.reject(rows, Verdicts.reject_where(rejected, Status.unschedulable("no")), "P")
    order = rotated(rows, 4)
    feasible, visited = cut(found, order, rows[~rejected], wanted=2)
    assert order.tolist() == [4, 5, 0, 1, 2, 3]
    assert (feasible.tolist(), visited) == ([5, 0], 3)
    assert found.rejected_count == 1  # node 4 was looked at, node 1 was not
    assert found.reasons() == {"no": 1}


def test_search_that_finds_too_few_looks_at_all() -> None:
    found = statuses(4)
    rows = np.arange(4)
    feasible, visited = cut(found, rows, rows[:2], wanted=3)
    assert (feasible.tolist(), visited) == ([0, 1], 4)


def test_next_search_starts_behind_this_one_modulo_all_nodes() -> None:
    start = SearchStart()
    start.advance(7, 10)
    start.advance(7, 10)
    assert start.next_start == 4
    start.advance(3, 0)
    assert start.next_start == 0
