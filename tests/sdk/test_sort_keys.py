"""Sort keys order as their values do."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.sort_keys import MAX_KEY_BYTES, descending, integer, join, string, time
from hypothesis import given
from hypothesis import strategies as st

INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
TIMES = st.floats(allow_nan=False)
TEXTS = st.text(max_size=12)
ROWS = st.tuples(INT64, TIMES, TEXTS)


def order(first: Any, second: Any) -> int:
    return int(first > second) - int(first < second)


@given(INT64, INT64)
def test_integers_keep_their_order(first: int, second: int) -> None:
    assert order(integer(first), integer(second)) == order(first, second)


@given(TIMES, TIMES)
def test_times_keep_their_order(first: float, second: float) -> None:
    assert order(time(first), time(second)) == order(first, second)


@given(TEXTS, TEXTS)
def test_strings_keep_the_order_of_code_points(first: str, second: str) -> None:
    assert order(string(first), string(second)) == order(first, second)


@given(TEXTS, TEXTS)
def test_descending_reverses_the_order(first: str, second: str) -> None:
    assert order(descending(string(first)), descending(string(second))) == order(second, first)


@given(ROWS, ROWS)
def test_joined_parts_order_as_the_tuples_do(first: Any, second: Any) -> None:
    def key(row: tuple[int, float, str]) -> bytes:
        return join(descending(integer(row[0])), string(row[2]), descending(time(row[1])))

    want = order((-first[0], first[2], -first[1]), (-second[0], second[2], -second[1]))
    assert order(key(first), key(second)) == want


@given(st.text(min_size=MAX_KEY_BYTES - 4, max_size=MAX_KEY_BYTES + 4), st.text(max_size=MAX_KEY_BYTES + 4))
def test_a_cut_key_never_orders_two_texts_wrongly(first: str, second: str) -> None:
    got = order(join(string(first)), join(string(second)))
    assert got in (0, order(first, second))
    assert len(join(string(first))) <= MAX_KEY_BYTES


def test_an_integer_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        integer(2**63)


def test_a_time_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        time(float("nan"))
