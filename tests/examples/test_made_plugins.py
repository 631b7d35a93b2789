"""Plugins that `berth-sdk new` makes in Go, TypeScript, Rust and Java: built, tested, and scheduling."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from berth_sdk.__main__ import main
from berth_sdk.cli.new_compiled import LANGUAGES
from berth_sdk.cli.new_python import POINTS
from support.examples import EXAMPLES, example
from support.languages import run_alone

conformance = example("../tests/examples/conformance.py")
EVERY = ",".join(point.config_name for point in POINTS)
CLUSTER = """
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: "4", pods: "9"}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}, status: {allocatable: {cpu: "4", pods: "9"}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n3}, status: {allocatable: {cpu: "4", pods: "9"}}}
---
apiVersion: v1
kind: Pod
metadata: {name: avoids, annotations: {rack-aware.example.com/avoid: "n1,n3"}}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: prefers, annotations: {rack-aware.example.com/prefer: n1}}
spec: {containers: [{name: c, image: i}]}
"""
STEPS = {
    "go": (["./build.sh"], ["go", "vet", "./..."], ["go", "test", "./..."]),
    "typescript": (["./build.sh"], ["npm", "test"]),
    "rust": (["./build.sh"], ["./build.sh", "test"]),
    "java": (["./build.sh"], ["./build.sh", "test"]),
}
COMPILED_FAST = ("go", "typescript")
CASES = [
    pytest.param(language, points, id=f"{language}-{name}")
    for language in LANGUAGES
    for name, points in (("default", "filter,score"), ("all", EVERY))
    if name == "default" or language in COMPILED_FAST or os.environ.get("BERTH_MADE_PLUGINS") == "all"
]
"""With all points, the languages that take minutes to compile are left to `make soak`."""


def kit(words: list[str], folder: Path) -> dict[str, object]:
    """Return the report of the conformance kit about a program, which is started in the folder."""
    report: dict[str, object] = conformance.kit(["env", "-C", str(folder), *words])
    assert conformance.skipped_for_options(report) == []
    return report


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)  # Rust's crates take minutes to compile the first time
@pytest.mark.parametrize(("language", "points"), CASES)
def test_made_plugin_builds_passes_its_test_conforms_and_schedules(
    language: str, points: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = [tool.program for tool in LANGUAGES[language].tools if shutil.which(tool.program) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"{missing[0]} is not on PATH")
    monkeypatch.setenv("PROTOC", f"{sys.executable} -m grpc_tools.protoc")
    folder = tmp_path / "rack-aware"
    assert (
        main(["new", "rack-aware", "--language", language, "--points", points, "--folder", str(folder)]) == 0
    )
    if language == "rust":  # the crates are those of the examples
        (EXAMPLES / "rust" / "target").mkdir(exist_ok=True)
        (folder / "target").symlink_to(EXAMPLES / "rust" / "target")
    for words in STEPS[language]:
        done = run_alone(language, folder, words)
        assert done.returncode == 0, done.stdout
    if language == "go":
        assert run_alone(language, folder, ["gofmt", "-l", "."]).stdout == ""
    _, own = yaml.safe_load_all((folder / "scheduler.yaml").read_text())
    report = kit(own["plugins"][0]["command"], folder)
    assert (report["failed"], report["points"]) == (0, points.split(",")), report
    assert isinstance(report["passed"], int)
    assert report["passed"] > 30
    (folder / "mine.yaml").write_text(CLUSTER)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "berth_host",
            "simulate",
            "-f",
            "mine.yaml",
            "--config",
            "scheduler.yaml",
            "-o",
            "json",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    placed = {one["pod"]: one["node"] for one in json.loads(done.stdout)["placements"]}
    assert placed == {"default/avoids": "n2", "default/prefers": "n1"}
