"""docs/explanation/map.md names every folder that has code, and no folder that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.places import ROOT

PAGE = ROOT / "docs" / "explanation" / "map.md"
WHOLE = (
    "host/berth_host",
    "host/berth_kube",
    "host/berth_sim",
    "sdk/berth_sdk",
    "plugins/berth_plugins",
    "plugins/scheduler_plugins/berth_scheduler_plugins",
    "bench/berth_bench",
)
"""Every folder with Python files below these must have a line; of `tests` only the top-level folders."""


def named(page: str) -> set[str]:
    """Return the paths that the page names, from the root. A section about a folder names paths relative to
    it.
    """
    found: set[str] = set()
    base = ""
    for line in page.splitlines():
        if line.startswith("## "):
            match = re.search(r"`([^`]+)`", line)
            base = f"{match[1]}/" if match else ""
        found |= {
            f"{base}{path}".rstrip("/")
            for path in re.findall(r"`([\w./]+)`", line)
            if path.endswith(("/", ".py")) and not line.startswith("## ")
        }
    return found


def folders(root: Path) -> set[str]:
    """Return the folders that must have a line."""
    whole = {
        path.parent.relative_to(root).as_posix()
        for base in WHOLE
        for path in (root / base).rglob("*.py")
        if path.parent != root / base
    }
    tests = {path.relative_to(root).as_posix() for path in (root / "tests").iterdir() if path.is_dir()}
    return whole | tests - {"tests/__pycache__"}


def faults(page: str, root: Path) -> Iterable[str]:
    paths = named(page)
    yield from (f"{one}: has no line" for one in sorted(folders(root) - paths))
    yield from (f"{one}: is not there" for one in sorted(paths) if not (root / one).exists())


def test_every_folder_has_a_line_and_every_path_is_there() -> None:
    assert list(faults(PAGE.read_text(), ROOT)) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("| `queue/` | one |", "host/berth_host/cache: has no line"),
        ("| `queue/`, `cache/`, `gone/` | two |", "host/berth_host/gone: is not there"),
        ("| `queue/`, `cache/` | `queue/gone.py` |", "host/berth_host/queue/gone.py: is not there"),
    ],
)
def test_a_folder_without_a_line_and_a_line_without_a_folder_are_found(
    tmp_path: Path, line: str, fault: str
) -> None:
    for name in ("queue", "cache"):
        folder = tmp_path / "host" / "berth_host" / name
        folder.mkdir(parents=True)
        (folder / "module.py").touch()
    (tmp_path / "tests").mkdir()
    assert list(faults(f"## The host, `host/berth_host`\n{line}\n", tmp_path)) == [fault]
