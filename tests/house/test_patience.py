"""A test waits for what must come for `support.waiting.PATIENCE_S`, not for seconds of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from support.places import TESTS

NOT_COMING: Final = {
    "cluster/test_failover.py": "less than the Lease lasts",
    "host/endpoints/test_front_door.py": "it writes until the peer takes no more",
    "bench/life/test_virtual_loop.py": "seconds of a virtual clock",
}
"""The files that wait for something else, and what it is."""


def own_seconds(source: str) -> Iterator[int]:
    """Yield the lines that wait on the loop for a number of seconds."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        place = {"timeout": 0, "wait_for": 1}.get(node.func.attr)
        if ast.unparse(node.func.value) != "asyncio" or place is None or len(node.args) <= place:
            continue
        seconds = node.args[place]
        if isinstance(seconds, ast.Constant) and seconds.value is not None:
            yield node.lineno


def test_no_wait_has_seconds_of_its_own() -> None:
    found = {
        name: lines
        for path in sorted(TESTS.rglob("*.py"))
        if (name := str(path.relative_to(TESTS))) not in NOT_COMING
        and (lines := list(own_seconds(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize("name", NOT_COMING)
def test_files_that_are_left_out_have_such_a_wait(name: str) -> None:
    assert list(own_seconds((TESTS / Path(name)).read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("asyncio.timeout(5)", True),
        ("asyncio.wait_for(event.wait(), 10)", True),
        ("asyncio.timeout(PATIENCE_S / 2)", False),
        ("asyncio.timeout(None)", False),
        ("collector.wait_for(bool)", False),
    ],
)
def test_waits_are_found(source: str, found: bool) -> None:
    assert bool(list(own_seconds(source))) is found
