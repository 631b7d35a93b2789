"""Each module of the scheduler's parts and of the SDK has a test file of its name, or is listed in
`covered`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from house.covered import COVERED
from support.places import ROOT, TESTS

HOST, SDK = ROOT / "host" / "berth_host", ROOT / "sdk" / "berth_sdk"
HELD = (
    *(
        HOST / part
        for part in [
            "cycle",
            "groups",
            "preemption",
            "questions",
            "observers",
            "framework",
            "queue",
            "cache",
            "rpc",
            "attempt",
            "attach",
            "app",
            "process",
            "plugins",
        ]
    ),
    ROOT / "host" / "berth_sim" / "run",
    SDK,
)
ELSEWHERE = {name: test for names in COVERED.values() for name, test in names.items()}


def dotted(path: Path) -> str:
    """Return `berth_host.queue.heap` for `host/berth_host/queue/heap.py`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts[1:])


def path_of(name: str) -> Path | None:
    """Return the file of a module of this repository, or of the tests' support; None for others."""
    for top in (ROOT / "host", ROOT / "sdk", TESTS):
        base = top / Path(*name.split("."))
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.exists():
                return path
    return None


def namesake(path: Path) -> Path:
    """Return `tests/host/queue/test_heap.py` for `host/berth_host/queue/heap.py`."""
    _, package, *folders, file = path.relative_to(ROOT).parts
    return TESTS.joinpath(package.removeprefix("berth_"), *folders, f"test_{file}")


def modules() -> Iterator[Path]:
    """Yield all modules that need a test file."""
    for folder in HELD:
        for path in sorted(folder.rglob("*.py")):
            if not path.name.startswith("__") and "_pb2" not in path.name:
                yield path


MODULES = tuple(modules())


@cache
def imported(path: Path) -> frozenset[str]:
    """Return the modules that a file names anywhere, and that of a command that it starts."""
    text = path.read_text(encoding="utf-8")
    found = {f"{command}.__main__" for command in ("berth_host", "berth_sdk") if f'"-m", "{command}"' in text}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(found)


@cache
def reached(test: Path) -> set[str]:
    """Return all modules that a test uses, directly or indirectly."""
    known: set[str] = set()
    todo = [test]
    while todo:
        for name in imported(todo.pop()) - known:
            known.add(name)
            if (path := path_of(name)) is not None:
                todo.append(path)
    return known


def test_a_module_has_a_test_of_its_name_or_is_said_to_be_covered() -> None:
    wrong = []
    for path in MODULES:
        has_one, listed = namesake(path).exists(), dotted(path) in ELSEWHERE
        if not has_one and not listed:
            wrong.append(f"write {namesake(path).relative_to(ROOT)}, or see house/covered.py")
        if has_one and listed:
            wrong.append(f"{dotted(path)} has a test of its name: take it from house/covered.py")
    assert wrong == []


@pytest.mark.long
@pytest.mark.parametrize(("name", "test"), ELSEWHERE.items())
def test_test_that_covers_a_module_is_there_and_uses_it(name: str, test: str) -> None:
    assert path_of(name) in MODULES, f"{name} is gone: take it from house/covered.py"
    assert (TESTS / test).exists()
    assert name in reached(TESTS / test)
