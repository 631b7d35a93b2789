"""`sampled`: which parameters `make test` runs."""

from __future__ import annotations

import pytest
from support.tiers import mark_all_but_a_sample

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
    }
