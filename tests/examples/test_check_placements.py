"""The check from outside finds what is wrong with a result."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from support.examples import ROOT

SPEC = importlib.util.spec_from_file_location("check_placements", ROOT / "examples/openb/check_placements.py")
assert SPEC is not None
assert SPEC.loader is not None
check = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One node with 2 CPU, three pods that want one each."""
    node = {
        "kind": "Node",
        "metadata": {"name": "n0"},
        "status": {"allocatable": {"cpu": "2", "pods": "10"}},
    }
    containers = [{"resources": {"requests": {"cpu": "1000m"}}}]
    pods = [
        {"kind": "Pod", "metadata": {"name": f"p{i}"}, "spec": {"containers": containers}} for i in range(3)
    ]
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": [node, *pods]}))
    return tmp_path


def result(placed: list[int], pending: list[int], message: str = "0/1 nodes are available") -> dict[str, Any]:
    return {
        "placements": [{"pod": f"default/p{i}", "node": "n0"} for i in placed],
        "pending": [{"pod": f"default/p{i}", "message": message} for i in pending],
    }


@pytest.mark.parametrize(
    ("got", "problem"),
    [
        pytest.param(result([0, 1, 2], []), "over-committed", id="three CPUs on two"),
        pytest.param(result([0], [1, 2]), "fits on n0", id="one could have been placed"),
        pytest.param(result([0, 1], []), "2 pods are listed", id="a pod is lost"),
        pytest.param(result([0, 1], [2], message=""), "without a reason", id="unexplained"),
    ],
)
def test_each_kind_of_mistake_is_found(folder: Path, got: dict[str, Any], problem: str) -> None:
    assert any(problem in line for line in check.violations(folder, got))


def test_right_result_has_no_violation(folder: Path) -> None:
    assert list(check.violations(folder, result([0, 1], [2]))) == []
