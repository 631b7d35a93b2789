"""The independent check finds every violation in a result."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.places import ROOT

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
def test_each_kind_of_violation_is_reported(folder: Path, got: dict[str, Any], problem: str) -> None:
    assert any(problem in line for line in check.violations(folder, got))


def test_correct_result_has_no_violation(folder: Path) -> None:
    assert list(check.violations(folder, result([0, 1], [2]))) == []


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        pytest.param(
            "default/p0,n0\ndefault/p1,n0\ndefault/p9,n0\n", "p9 is in no manifest", id="no such pod"
        ),
        pytest.param("default/p0,n0\ndefault/p1,n7\ndefault/p2,\n", "is on node n7", id="no such node"),
        pytest.param("default/p0,n0\ndefault/p0,n0\ndefault/p2,\n", "p0 is listed 2 times", id="a pod twice"),
    ],
)
def test_object_that_is_in_no_manifest_is_reported(folder: Path, lines: str, problem: str) -> None:
    path = folder / "placements.csv"
    path.write_text(lines)
    found = list(check.violations(folder, check.read_placements(path)))
    assert any(problem in line for line in found)


@pytest.mark.parametrize("line", ["default/p0", "default/p0,n0,remark", ""])
def test_malformed_placement_line_is_refused(folder: Path, line: str) -> None:
    path = folder / "placements.csv"
    path.write_text(f"default/p1,n0\n{line}\n")
    with pytest.raises(ValueError, match=r"placements\.csv:2: must be pod,node"):
        check.read_placements(path)


PREFIX = "gpu-share.berth.io"


@pytest.fixture
def gpu_folder(tmp_path: Path) -> Path:
    """One node with two GPUs; two pods that want 600 milli of one, and one that wants all of both."""
    node = {
        "kind": "Node",
        "metadata": {"name": "n0"},
        "status": {
            "allocatable": {"cpu": "9", "pods": "9", f"{PREFIX}/gpu": "2", f"{PREFIX}/gpu-milli": "2000"}
        },
    }

    def pod(name: str, count: int, milli: int) -> dict[str, Any]:
        annotations = {f"{PREFIX}/gpu-count": str(count), f"{PREFIX}/gpu-milli": str(milli)}
        requests = {"cpu": "1", f"{PREFIX}/gpu": str(count), f"{PREFIX}/gpu-milli": str(count * milli)}
        spec = {"containers": [{"resources": {"requests": requests}}]}
        return {"kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec}

    pods = [pod("p0", 1, 600), pod("p1", 1, 400), pod("p2", 2, 1000), pod("p3", 1, 1000)]
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": [node, *pods]}))
    return tmp_path


def placements(folder: Path, **indices: str) -> dict[str, Any]:
    """Return the rows of `berth bench --dump-placements`; a pod without indices is pending."""
    lines = [
        f'default/{name},n0,"{PREFIX}/gpu-index={indices[name]}"' if name in indices else f"default/{name},"
        for name in ("p0", "p1", "p2", "p3")
    ]
    path = folder / "placements.csv"
    path.write_text("\n".join(lines) + "\n")
    found: dict[str, Any] = check.read_placements(path)
    return found


@pytest.mark.parametrize(
    ("indices", "problem"),
    [
        pytest.param(
            {"p0": "0", "p1": "0", "p2": "0,1"}, "GPU 0 over-committed by 1000 milli", id="index twice"
        ),
        pytest.param({"p2": "0,0"}, "wants 2 GPUs and got 0,0", id="one GPU for two"),
        pytest.param({"p0": "2"}, "has no GPU 2", id="no such GPU"),
        pytest.param({"p0": ""}, "wants 1 GPUs and got none", id="not told"),
        pytest.param({"p0": "x"}, "got x, which are no GPU indices", id="no number"),
        pytest.param({"p0": "-1"}, "got -1, which are no GPU indices", id="negative"),
        pytest.param(
            {"p0": "0", "p3": "1"}, "pod default/p1 is pending, and fits on n0", id="room for a share"
        ),
    ],
)
def test_each_shared_gpu_is_checked(gpu_folder: Path, indices: dict[str, str], problem: str) -> None:
    got = placements(gpu_folder, **indices)
    assert any(problem in line for line in check.violations(gpu_folder, got, shared_gpus=True))


def test_full_shared_gpus_are_no_violation(gpu_folder: Path) -> None:
    got = placements(gpu_folder, p0="0", p1="0", p3="1")
    assert list(check.violations(gpu_folder, got, shared_gpus=True)) == []
    assert list(check.violations(gpu_folder, got))  # three pods on two whole GPUs


@pytest.mark.parametrize(
    ("wanted", "placed", "problem"),
    [
        pytest.param("T4", True, "got GPUs of model A10", id="another model"),
        pytest.param("A10|T4", True, "", id="one of two models"),
        pytest.param("T4", False, "", id="none of its model"),
        pytest.param("A10|T4", False, "is pending, and fits on n0", id="one of its model is free"),
    ],
)
def test_gpu_models_are_checked(tmp_path: Path, wanted: str, placed: bool, problem: str) -> None:
    node = {
        "kind": "Node",
        "metadata": {"name": "n0", "labels": {f"{PREFIX}/model": "A10"}},
        "status": {"allocatable": {"pods": "9", f"{PREFIX}/gpu": "1"}},
    }
    annotations = {f"{PREFIX}/gpu-milli": "600", f"{PREFIX}/gpu-model": wanted}
    metadata = {"name": "p0", "annotations": annotations}
    pod = {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{}]}}
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": [node, pod]}))
    got = placements(tmp_path, **({"p0": "0"} if placed else {}))
    got["pending"] = got["pending"][: int(not placed)]
    lines = list(check.violations(tmp_path, got, shared_gpus=True))
    assert len(lines) == bool(problem)
    assert all(problem in line for line in lines)


def test_whole_gpus_that_are_only_requested_count_as_well(tmp_path: Path) -> None:
    node = {
        "kind": "Node",
        "metadata": {"name": "n0"},
        "status": {"allocatable": {"pods": "9", f"{PREFIX}/gpu": "1"}},
    }
    spec = {"containers": [{"resources": {"requests": {f"{PREFIX}/gpu": "1"}}}]}
    pods = [{"kind": "Pod", "metadata": {"name": name}, "spec": spec} for name in ("p0", "p1", "p2", "p3")]
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": [node, *pods]}))
    assert list(check.violations(tmp_path, placements(tmp_path, p0="0"), shared_gpus=True)) == []
    twice = check.violations(tmp_path, placements(tmp_path, p0="0", p1="0"), shared_gpus=True)
    assert list(twice) == ["node n0: GPU 0 over-committed by 1000 milli"]


@pytest.mark.parametrize(
    "content", [b"\xff{", b"{", b"[]", b"{}", b'{"placements": [5], "pending": []}', b"5"]
)
def test_file_of_another_form_is_refused_without_a_traceback(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_bytes(content)
    script = ROOT / "examples/openb/check_placements.py"
    for option in ("--result", "--placements"):
        words = [
            sys.executable,
            str(script),
            "--manifests",
            str(tmp_path),
            option,
            str(tmp_path / "result.json"),
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), done
        assert done.stderr.strip()
