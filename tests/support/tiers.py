"""Which of a test's parameters `make test` runs; the others get the marker `long` of `make test-all`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

IN_PROCESS, ON_THE_WIRE = "in_process", "socket"


def mark_all_but_a_sample(items: Sequence[pytest.Item]) -> None:
    """Mark as `long` what a function's `sampled(every=n)` leaves out: all but each nth of its parameters.

    Where a test takes both transports, each nth parameter is taken on each of them, so that none is left out.
    """
    functions: defaultdict[tuple[object, str, str | None], list[pytest.Item]] = defaultdict(list)
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is not None and isinstance(item, pytest.Function):
            functions[item.parent, item.originalname, transport_of(item)].append(item)
    for tests in functions.values():
        for index, item in enumerate(tests):
            sampled = item.get_closest_marker("sampled")
            assert sampled is not None
            if index % sampled.kwargs["every"]:
                item.add_marker(pytest.mark.long)


def transport_of(item: pytest.Function) -> str | None:
    """Return how a test asks a plugin; None for a test without the fixture `ask`."""
    call = getattr(item, "callspec", None)
    value = None if call is None else call.params.get("ask")
    return value if isinstance(value, str) else None
