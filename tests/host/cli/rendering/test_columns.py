"""Aligned columns."""

from __future__ import annotations

from berth_host.cli.rendering.columns import columns, count_of


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    got = columns(("A", "N"), [("long one", "1"), ("b", "100")], right=(1,), indent=2)
    assert got.splitlines() == ["  A            N", "  long one     1", "  b          100"]


def test_lines_have_no_trailing_spaces_and_no_rows_is_the_header() -> None:
    assert columns(("A", "BB"), [("x", "")]).splitlines() == ["A   BB", "x"]
    assert columns(("A", "B"), []) == "A   B"
    assert columns((), []) == ""


def test_count_other_than_one_has_the_plural() -> None:
    assert [count_of(n, "node") for n in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]


def test_table_that_is_wider_than_the_terminal_folds_its_widest_text() -> None:
    rows = [("short", "a sentence of many words that is folded", "12345")]
    got = columns(("NAME", "TEXT", "COUNT"), rows, right=(2,), width=40)
    assert got.splitlines() == [
        "NAME  TEXT                         COUNT",
        "short a sentence of many words     12345",
        "      that is folded",
    ]
    assert columns((), rows, width=80) == columns((), rows)


def test_header_has_the_given_style() -> None:
    assert columns(("A",), [("1",)], heading=str.lower) == "a\n1"
