"""tests/cluster/e2e/run.py: its exit code, with fake runs."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.e2e_report import BERTH, KUBE, ReportError, Run, Spec
from support.places import ROOT


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Load the script as a module, which finds its programs."""
    found = importlib.util.spec_from_file_location("e2e_run", ROOT / "tests/cluster/e2e/run.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    monkeypatch.setattr(module, "missing_programs", str)
    monkeypatch.setattr(module, "missing_e2e_programs", str)
    return module


def play(tool: Any, states: dict[str, str], asked: list[tuple[str, str]]) -> None:
    """Make runs end at once, each with one spec in its scheduler's state; `asked` records each run."""

    async def one_run(scheduler: str, folder: Path, focus: Sequence[str], *, pod_groups: bool) -> Run:
        asked.append((f"{scheduler} with pod groups" if pod_groups else scheduler, folder.name))
        if not states[scheduler]:
            raise ReportError("no report")
        spec = Spec(name="spec", state=states[scheduler], seconds=1, reason="why")
        return Run(scheduler=scheduler, specs={"spec": spec})

    tool.one_run = one_run


@pytest.mark.parametrize(
    ("kube", "berth", "code"),
    [("passed", "passed", 0), ("failed", "failed", 0), ("passed", "failed", 1), ("passed", "", 2)],
)
@pytest.mark.parametrize("flags", [[], ["--at-once"]])
def test_exit_code_tells_whether_berth_is_behind(
    tool: Any, capsys: pytest.CaptureFixture[str], kube: str, berth: str, code: int, flags: list[str]
) -> None:
    play(tool, {KUBE: kube, BERTH: berth}, [])
    assert tool.main(flags) == code
    told = capsys.readouterr()
    assert ("berth fails what kube-scheduler passes: run 1: spec" in told.err) is (code == 1)
    assert ("| spec |" in told.out) is (code != 2)


def test_schedulers_take_turns(tool: Any) -> None:
    asked: list[tuple[str, str]] = []
    play(tool, {KUBE: "passed", BERTH: "passed"}, asked)
    assert tool.main(["--runs", "2"]) == 0
    assert asked == [(KUBE, f"{KUBE}-1"), (BERTH, "berth-1"), (KUBE, f"{KUBE}-2"), (BERTH, "berth-2")]


def test_specs_of_pod_groups_run_with_their_gate(tool: Any) -> None:
    asked: list[tuple[str, str]] = []
    play(tool, {KUBE: "passed", BERTH: "passed"}, asked)
    assert tool.main(["--pod-groups", "--at-once"]) == 0
    assert [name for name, _ in asked] == [f"{KUBE} with pod groups", f"{BERTH} with pod groups"]


def test_scheduler_alone_is_compared_with_nothing(tool: Any) -> None:
    play(tool, {BERTH: "failed"}, [])
    assert tool.main(["--scheduler", "berth"]) == 0


def test_missing_programs_and_a_folder_that_is_there_are_errors(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        tool.main(["--keep", str(tmp_path)])
    assert ended.value.code == 2
    monkeypatch.setattr(tool, "missing_e2e_programs", lambda: "no kwok")
    with pytest.raises(SystemExit):
        tool.main([])
    assert "is there already" in (told := capsys.readouterr().err)
    assert "no kwok" in told
