"""The rows with the highest total, and the few rows that a page shows."""

from __future__ import annotations

import numpy as np
import pytest
from berth_host.framework.score_table import ScoreTable
from berth_sdk.node import Node
from berth_sdk.tables import NodeColumns, NodeTable
from hypothesis import given
from hypothesis import strategies as st

COLUMNS = NodeColumns()
COLUMNS.add(Node(name="n0"))
NODES = NodeTable(COLUMNS)
TOTALS = st.lists(st.integers(-3, 3), min_size=1, max_size=20)


def table(total: list[int]) -> ScoreTable:
    return ScoreTable(NODES, np.asarray(total, dtype=np.int64))


@given(total=TOTALS)
def test_best_rows_are_all_with_the_highest_total_ascending(total: list[int]) -> None:
    assert table(total).best().tolist() == [row for row, value in enumerate(total) if value == max(total)]


@given(total=TOTALS, count=st.integers(1, 25))
def test_the_top_rows_have_the_highest_totals(total: list[int], count: int) -> None:
    rows = table(total).top(count).tolist()
    assert rows == sorted(set(rows))
    assert sorted((total[row] for row in rows), reverse=True) == sorted(total, reverse=True)[:count]


def test_best_rows_are_searched_once_or_known_before() -> None:
    scores = table([1, 5, 5])
    assert scores.best() is scores.best()
    scores.leaders = np.asarray([2], dtype=np.intp)
    assert scores.best().tolist() == [2]


@pytest.mark.parametrize("count", [1, 2])
def test_of_a_tie_that_is_too_large_the_first_rows_are_shown(count: int) -> None:
    assert table([0, 9, 9, 9]).top(count).tolist() == [1, 2][:count]


def test_an_empty_table_is_filled_in_later() -> None:
    scores = ScoreTable.empty(NODES)
    assert len(scores.total) == 0
    scores.total = np.asarray([4], dtype=np.int64)
    assert scores.best().tolist() == [0]
