"""Durations are read and written as Go does."""

from __future__ import annotations

import pytest
from berth_sdk.duration import format_duration, parse_duration
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "want_ns"),
    [
        ("0", 0),
        ("-0", 0),
        ("15s", 15_000_000_000),
        ("1h2m3.5s", 3_723_500_000_000),
        ("+1.5h", 5_400_000_000_000),
        (".5ms", 500_000),
        ("5.s", 5_000_000_000),
        ("1us", 1_000),
        ("1µs", 1_000),
        ("1μs", 1_000),
        ("-1s", -1_000_000_000),
        ("1.0000000001s", 1_000_000_000),
        ("9223372036854775807ns", 2**63 - 1),
    ],
)
def test_text_is_read(text: str, want_ns: int) -> None:
    assert parse_duration(text) == want_ns


@pytest.mark.parametrize(
    "text", ["", "5", "s", ".s", "5 s", "5sec", "1h30", "-", "9223372036854775808ns", "1e3s", "٣s", "1d"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


def test_missing_unit_is_named() -> None:
    with pytest.raises(ValueError, match="the unit is missing"):
        parse_duration("250")


@pytest.mark.parametrize(
    ("duration_ns", "want"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1µs"),
        (2_500_000, "2.5ms"),
        (2_500_000_000, "2.5s"),
        (600_000_000_000, "10m0s"),
        (3_600_000_000_000, "1h0m0s"),
        (-1_000_000_000, "-1s"),
    ],
)
def test_duration_is_written(duration_ns: int, want: str) -> None:
    assert format_duration(duration_ns) == want


@given(duration_ns=st.integers(-(2**63), 2**63 - 1))
def test_duration_that_is_written_is_read_back(duration_ns: int) -> None:
    assert parse_duration(format_duration(duration_ns)) == duration_ns
