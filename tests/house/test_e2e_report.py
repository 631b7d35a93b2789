"""Reports of two schedulers: which specs ran, the contents of the table, and specs that only berth fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.e2e_report import BERTH, KUBE, ReportError, Run, Spec, lost, read_run, reasons, table

Json = dict[str, Any]


def entry(name: str, state: str, message: str = "", **more: Any) -> Json:
    """Return one spec, with the fields that Ginkgo writes and the reader reads."""
    return {
        "ContainerHierarchyTexts": ["[sig-scheduling] Area [Serial]", "inner"],
        "LeafNodeText": name,
        "LeafNodeType": "It",
        "State": state,
        "RunTime": 2_400_000_000,
        "Failure": {"Message": message},
        **more,
    }


def report(folder: Path, *entries: Json, cut: str = "") -> Path:
    path = folder / "report.json"
    suite = {"SpecReports": entries, "SpecialSuiteFailureReasons": [cut] if cut else None}
    path.write_text(json.dumps([suite]))
    return path


def run(scheduler: str, **states: str) -> Run:
    specs = {
        name: Spec(name=name, state=state, seconds=1, reason="" if state == "passed" else "too late")
        for name, state in states.items()
    }
    return Run(scheduler=scheduler, specs=specs)


def test_spec_names_are_made_of_their_containers_without_the_suite(tmp_path: Path) -> None:
    found = read_run(
        BERTH, report(tmp_path, entry("works", "passed"), entry("is late", "timedout", "a\n  b"))
    )
    assert found.scheduler == BERTH
    assert list(found.specs.values()) == [
        Spec(name="Area [Serial] inner works", state="passed", seconds=2.4),
        Spec(name="Area [Serial] inner is late", state="timedout", seconds=2.4, reason="a b"),
    ]


def test_spec_that_the_filter_left_out_did_not_run_and_one_that_skipped_itself_did(tmp_path: Path) -> None:
    path = report(
        tmp_path,
        entry("filtered", "skipped"),
        entry("pending", "pending"),
        entry("before", "passed", LeafNodeType="BeforeSuite", ContainerHierarchyTexts=None),
        entry("needs zones", "skipped", "Requires at least 2 zones"),
    )
    assert [(spec.name, spec.state) for spec in read_run(KUBE, path).specs.values()] == [
        ("Area [Serial] inner needs zones", "skipped")
    ]


def test_suite_that_was_cut_short_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"report\.json: Interrupted by User"):
        read_run(BERTH, report(tmp_path, entry("works", "passed"), cut="Interrupted by User"))


def test_no_report_a_broken_one_and_one_without_specs_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"gone\.json: .*No such file"):
        read_run(BERTH, tmp_path / "gone.json")
    (tmp_path / "half.json").write_text("[{")
    with pytest.raises(ReportError, match=r"half\.json"):
        read_run(BERTH, tmp_path / "half.json")
    with pytest.raises(ReportError, match="no spec ran"):
        read_run(BERTH, report(tmp_path, entry("filtered", "skipped")))


@pytest.mark.parametrize(
    ("state", "behind"),
    [({"a": "passed"}, []), ({"a": "failed"}, ["run 1: a"]), ({"b": "passed"}, ["run 1: a"])],
)
def test_berth_is_behind_where_it_fails_or_lacks_what_kube_scheduler_passes(
    state: dict[str, str], behind: list[str]
) -> None:
    assert lost([run(KUBE, a="passed", c="failed"), run(BERTH, **state)]) == behind


def test_runs_are_compared_turn_by_turn() -> None:
    runs = [
        run(KUBE, a="passed", b="failed"),
        run(BERTH, a="passed", b="failed"),
        run(KUBE, a="failed", b="passed"),
        run(BERTH, a="passed", b="failed"),
    ]
    assert lost(runs) == ["run 2: b"]
    assert lost(runs[1:2]) == []


def test_table_has_a_line_per_spec_and_counts_those_that_passed() -> None:
    assert table([run(KUBE, b="passed", a="failed"), run(BERTH, b="passed")]).splitlines() == [
        "| Spec | kube-scheduler | berth |",
        "| --- | --- | --- |",
        "| a | failed, 1 s | not run |",
        "| b | passed, 1 s | passed, 1 s |",
        "| **passed** | **1 of 2** | **1 of 1** |",
    ]


def test_specs_that_did_not_pass_have_their_reasons() -> None:
    assert reasons([run(KUBE, a="failed", b="passed")]) == "- kube-scheduler: a: failed: too late"
    assert reasons([run(KUBE, b="passed")]) == ""
