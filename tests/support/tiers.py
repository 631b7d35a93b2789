"""Which of a test's parameters `make test` runs; the others get the marker `long` of `make test-all`.

A property has a quarter of its examples in `make test`, and all of them in `make test-rest`, which runs every
property once more. Each run draws other examples.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence

import pytest

IN_PROCESS, ON_THE_WIRE = "in_process", "socket"
SHARE = 4
"""`make test` runs one example of so many."""
LEAST = 2


class Examples:
    """`are_few`: this run leaves long tests out, so that its properties have few examples."""

    are_few = False


def examples(whole: int) -> int:
    """Return how many of `whole` examples this run has."""
    return max(whole // SHARE, min(whole, LEAST)) if Examples.are_few else whole


def begin(markers: str) -> None:
    """Take note of what the run chooses with `-m`, before a module with properties is imported."""
    Examples.are_few = "long" not in markers.replace("not long", "")


def mark_properties(items: Sequence[pytest.Item]) -> None:
    """Where properties have all of their examples, mark them as `long`: `-m long` chooses them."""
    if Examples.are_few or "hypothesis" not in sys.modules:
        return
    from hypothesis import is_hypothesis_test

    for item in items:
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            item.add_marker(pytest.mark.long)


def mark_all_but_a_sample(items: Sequence[pytest.Item]) -> None:
    """Mark as `long` what a function's `sampled(every=n)` leaves out: all but each nth of its parameters.

    Where a test takes both transports, each nth parameter is taken on each of them, so that none is left out.
    A function that is not sampled has all of its parameters in process, and on the wire one of SHARE.
    """
    functions: defaultdict[tuple[object, str, str | None], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function):
            functions[item.parent, item.originalname, transport_of(item)].append(item)
    for (_, _, transport), tests in functions.items():
        usual = SHARE if transport == ON_THE_WIRE else 1
        for index, item in enumerate(tests):
            sampled = item.get_closest_marker("sampled")
            if index % (usual if sampled is None else sampled.kwargs["every"]):
                item.add_marker(pytest.mark.long)


def transport_of(item: pytest.Function) -> str | None:
    """Return how a test asks a plugin; None for a test without the fixture `ask`."""
    call = getattr(item, "callspec", None)
    value = None if call is None else call.params.get("ask")
    return value if isinstance(value, str) else None
