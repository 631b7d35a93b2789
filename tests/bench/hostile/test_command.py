"""`berth bench hostile` as a user runs it, on the embedded cluster; `tests/cluster/test_hostile.py` has real
servers.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from berth_bench.hostile.cases import CASES

from ..conftest import Run

SMALL = ("--nodes", "3", "--bytes", "10000")


def test_names_are_listed(run: Run) -> None:
    done = run("bench", "hostile", "--list")
    assert done.exit_code == 0
    assert done.output.splitlines() == [case.name for case in CASES]
    assert run("bench", "hostile", "--list", "node/taints").output == "node/taints\n"


def test_unknown_case_is_reported_with_the_known_kinds(run: Run) -> None:
    done = run("bench", "hostile", "nodes")
    assert done.exit_code == 2
    assert (
        "there is no case nodes: --list prints the names, and there are cases about pod, node, "
        in done.output
    )


@pytest.mark.long
@pytest.mark.slow
def test_each_case_is_a_line_with_berths_figures(run: Run) -> None:
    names = ("pod/tolerations", "pod/scheduling gates", "budget/values of the selector")
    done = run("bench", "hostile", "--embedded", *SMALL, *names, "-o", "json")
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["case"] for line in lines] == list(names)
    assert [line["berth"]["attempt"]["answer"] for line in lines] == ["bound", "gated", "bound"]
    for line in lines:
        assert (line["nodes"], line["kube"], line["verdict"]) == (3, None, "ok")
        assert 9_000 < line["size_bytes"] <= 10_000
        assert line["hold_s"] > 0
        assert line["held_by"]
        assert (
            line["command"] == f"berth bench hostile {shlex.quote(line['case'])} {' '.join(SMALL)} --embedded"
        )


@pytest.mark.long
@pytest.mark.slow
def test_without_the_programs_berth_is_measured_alone_and_the_remedy_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    done = run("bench", "hostile", *SMALL, "node/taints")
    assert done.exit_code == 0, done.output
    assert "run `make envtest`" in done.stderr
    head, line, _, note, total = done.stdout.splitlines()
    assert head.split()[:3] == ["CASE", "SIZE", "BYTES"]
    assert line.startswith("node/taints")
    assert note.startswith("There is no kube-scheduler to compare with")
    assert total == "1 of 1 cases keep the limits."
