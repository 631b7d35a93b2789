"""`proto/generate.py`, run as `make check` runs it, on a copy of the tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.places import ROOT

REPOSITORY = ROOT


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Copy the contract, its tools and the generated code."""
    no_caches = shutil.ignore_patterns("__pycache__")
    sdk = "sdk/berth_sdk"
    for folder in ("proto", f"{sdk}/plugin", f"{sdk}/query"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=no_caches)
    return tmp_path


def _generate(tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(tree / "proto/generate.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), "utf-8")


@pytest.mark.slow
def test_committed_tree_passes_the_check(tree: Path) -> None:
    done = _generate(tree, "--check")

    assert (done.returncode, done.stdout, done.stderr) == (0, "contract: no findings\n", "")


@pytest.mark.slow
@pytest.mark.long
def test_changed_comment_is_drift_until_generated(tree: Path) -> None:
    source = tree / "proto/berth/plugin/v1/common.proto"
    _edit(source, "// REQUIRED: the taint's key.", "// REQUIRED: the key of the taint.")

    done = _generate(tree, "--check")
    assert done.returncode == 1
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == [
        str(tree / "sdk/berth_sdk/plugin/v1/common_pb2.pyi"),
    ]
    assert "DRIFT" in done.stderr

    assert _generate(tree).returncode == 0
    assert _generate(tree, "--check").returncode == 0


@pytest.mark.slow
@pytest.mark.long
def test_edited_generated_code_is_drift(tree: Path) -> None:
    stub = tree / "sdk/berth_sdk/plugin/v1/queue_pb2_grpc.py"
    stub.write_bytes(stub.read_bytes().replace(b"\n", b"\r\n"))

    done = _generate(tree, "--check")

    assert done.returncode == 1
    assert f"{stub}:1: DRIFT" in done.stderr


@pytest.mark.slow
@pytest.mark.long
def test_missing_and_left_over_generated_code_is_drift(tree: Path) -> None:
    package = tree / "sdk/berth_sdk/plugin/v1"
    (package / "queue_pb2.py").rename(package / "queues_pb2.py")

    done = _generate(tree, "--check")
    assert done.returncode == 1
    assert f"{package / 'queue_pb2.py'}: DRIFT: is missing" in done.stderr
    assert f"{package / 'queues_pb2.py'}: DRIFT: has no source" in done.stderr

    assert _generate(tree).returncode == 0
    assert not (package / "queues_pb2.py").exists()
    assert _generate(tree, "--check").returncode == 0


@pytest.mark.slow
@pytest.mark.long
def test_every_kind_of_finding_fails_the_check(tree: Path) -> None:
    queue = tree / "proto/berth/plugin/v1/queue.proto"
    _edit(queue, "bool victims_pending = 6;", "bool victimsPending = 6;")
    _edit(queue, "  // OPTIONAL: how many attempts were made to schedule the pod; 0: none.\n", "")
    with queue.open("a", encoding="utf-8") as file:
        file.write("\n// Too early.\nmessage SignPodRequest {}\n")

    done = _generate(tree, "--check")

    assert done.returncode == 1
    for rule in (
        "FIELD_LOWER_SNAKE_CASE: berth.plugin.v1.QueuedPod.victimsPending",
        "COMMENT: berth.plugin.v1.QueuedPod.attempts",
        "NAME_KEPT_FREE: berth.plugin.v1.SignPodRequest",
        "DRIFT",
    ):
        assert rule in done.stderr


def test_source_that_does_not_compile_is_reported_in_the_compilers_words(tree: Path) -> None:
    _edit(tree / "proto/berth/plugin/v1/queue.proto", "uint32 attempts = 3;", "uint33 attempts = 3;")

    done = _generate(tree, "--check")

    assert done.returncode == 1
    assert '"uint33" is not defined' in done.stderr
    assert "Traceback" not in done.stderr
