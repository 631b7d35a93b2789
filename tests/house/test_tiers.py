"""`sampled`: which parameters `make test` runs; and how many examples of a property."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import Examples, begin, examples, mark_all_but_a_sample, mark_properties

TRANSPORTS = ["in_process", "socket"]


@pytest.mark.parametrize("number", range(7))
@pytest.mark.sampled(every=3)
def test_numbers(number: int) -> None:
    """Is a test, and one of those that the next test looks at."""


@pytest.mark.parametrize("ask", TRANSPORTS)
@pytest.mark.parametrize("number", range(4))
@pytest.mark.sampled(every=2)
def test_numbers_on_transports(number: int, ask: str) -> None:
    """Is a test, and one of those that the next test looks at."""


@pytest.mark.parametrize("ask", TRANSPORTS)
@pytest.mark.parametrize("number", range(6))
def test_numbers_that_are_not_sampled(number: int, ask: str) -> None:
    """Is a test, and one of those that the next test looks at."""


def test_first_of_so_many_is_no_long_one_on_each_transport(request: pytest.FixtureRequest) -> None:
    module = request.node.getparent(pytest.Module)
    items = [item for collected in [module.collect()] for item in collected if "numbers" in item.name]
    mark_all_but_a_sample(items)
    kept = {item.name for item in items if item.get_closest_marker("long") is None}
    assert kept == {
        "test_numbers[0]",
        "test_numbers[3]",
        "test_numbers[6]",
        "test_numbers_on_transports[0-in_process]",
        "test_numbers_on_transports[0-socket]",
        "test_numbers_on_transports[2-in_process]",
        "test_numbers_on_transports[2-socket]",
        *(f"test_numbers_that_are_not_sampled[{number}-in_process]" for number in range(6)),
        "test_numbers_that_are_not_sampled[0-socket]",
        "test_numbers_that_are_not_sampled[4-socket]",
    }


@given(st.booleans())
@settings(max_examples=1)
def test_property(value: bool) -> None:
    """Is a property, and the one that the tests below look at."""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what this run chose."""
    monkeypatch.setattr(Examples, "are_few", Examples.are_few)


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    ("chosen", "count"),
    [("not long", 15), ("not slow", 15), ("", 15), ("long", 60), ("long or not long", 60)],
)
def test_properties_have_all_of_their_examples_where_long_tests_run(chosen: str, count: int) -> None:
    begin(chosen)
    assert examples(60) == count
    assert [examples(few) for few in (3, 1)] == ([3, 1] if count == 60 else [2, 1])


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(("chosen", "is_long"), [("not long", False), ("long", True)])
def test_properties_are_run_once_more_with_all_of_their_examples(
    request: pytest.FixtureRequest, chosen: str, is_long: bool
) -> None:
    module = request.node.getparent(pytest.Module)
    (item,) = [item for item in module.collect() if item.name == "test_property"]
    begin(chosen)
    mark_properties([item])
    assert (item.get_closest_marker("long") is not None) is is_long
