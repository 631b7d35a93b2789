"""The SDK and the default plugins read clocks and chance at one place each, which a life replaces."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
HOMES: Final = {"clocks.py", "chance.py"}
CLOCKS: Final = {
    f"{name}{unit}"
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for unit in ("", "_ns")
}
CHANCE: Final = {"uuid": {"uuid1", "uuid4"}, "os": {"urandom"}, "datetime": {"now", "utcnow", "today"}}


def read_outside(source: str) -> Iterator[str]:
    """Yield each read of a real clock or of a real source of chance."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "uuid", "random"):
            taken = {alias.name for alias in node.names} - {"Random", "UUID", "sleep"}
            yield from (f"{node.module}.{name}" for name in sorted(taken))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module, name = node.value.id, node.attr
            if (
                (module == "time" and name in CLOCKS)
                or (module == "random" and name != "Random")
                or name in CHANCE.get(module, ())
            ):
                yield f"{module}.{name}"


@pytest.mark.parametrize("package", ["sdk/berth_sdk", "plugins"])
def test_real_time_and_chance_are_read_in_their_homes_alone(package: str) -> None:
    found = {
        str(file.relative_to(ROOT)): reads
        for file in sorted((ROOT / package).rglob("*.py"))
        if not (package.endswith("berth_sdk") and file.name in HOMES)
        and (reads := list(read_outside(file.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("import time\nprint(time.monotonic())", ["time.monotonic"]),
        ("from time import time_ns, sleep", ["time.time_ns"]),
        ("import uuid\nuuid.uuid4()\nuuid.UUID(int=0)", ["uuid.uuid4"]),
        ("import random\nrandom.Random(1)\nrandom.random()", ["random.random"]),
        ("import os\nos.urandom(2)\nos.path", ["os.urandom"]),
    ],
)
def test_reads_are_found(source: str, read: list[str]) -> None:
    assert list(read_outside(source)) == read
