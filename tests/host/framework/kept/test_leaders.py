"""The best rows, updated after changes of totals, are the same as after a search through all totals."""

from __future__ import annotations

import numpy as np
from berth_host.framework.kept.leaders import Leaders
from hypothesis import given
from hypothesis import strategies as st

ROWS = 6
CHANGES = st.dictionaries(st.integers(0, ROWS - 1), st.integers(0, 3), max_size=3)


@given(
    first=st.lists(st.integers(0, 3), min_size=ROWS, max_size=ROWS),
    steps=st.lists(st.tuples(CHANGES, st.booleans()), max_size=12),
)
def test_leaders_are_the_rows_with_the_highest_total(
    first: list[int], steps: list[tuple[dict[int, int], bool]]
) -> None:
    total = np.asarray(first, dtype=np.int64)
    leaders = Leaders()
    for changes, looks in steps:
        for row, value in changes.items():
            total[row] = value
        leaders.change(sorted(changes), total)
        if looks:
            assert leaders.of(total).tolist() == np.flatnonzero(total == total.max()).tolist()
    leaders.forget()
    assert leaders.of(total).tolist() == np.flatnonzero(total == total.max()).tolist()


def test_returned_rows_are_not_changed_later() -> None:
    total = np.asarray([1, 1, 0], dtype=np.int64)
    leaders = Leaders()
    before = leaders.of(total)
    total[1] = 0
    leaders.change([1], total)
    assert (before.tolist(), leaders.of(total).tolist()) == ([0, 1], [0])
