"""Runs of the conformance kit in the process of a test."""

from __future__ import annotations

from pathlib import Path

from berth_sdk.conformance import run
from berth_sdk.conformance.handle_double import HandleDouble
from berth_sdk.conformance.host import Target
from support.conforming_plugin import ConformingPlugin
from support.waiting import PATIENCE_S

SLOW = ("memory.cycles",)
"""Cases that are run where they are meant alone."""


def report_of(
    plugin: ConformingPlugin,
    folder: Path,
    level: str = "group",
    *only: str,
    double: HandleDouble | None = None,
) -> run.Report:
    """Run the cases with the first plugin of a server; `only`: these alone; else all but the slow ones."""
    with plugin.serving(folder) as address:
        target = Target(address, double=double)
        subject, *_ = run.subjects(run.hello_of(target))
        cases = [
            one for one in run.chosen(subject, level) if (one.id in only if only else one.id not in SLOW)
        ]
        return run.run(target, subject, cases, limit_s=PATIENCE_S)


def failures(report: run.Report) -> dict[str, str]:
    """Return the details of the failed cases, by the ids of the cases."""
    return {one.case.id: one.detail for one in report.results if one.result == "fail"}


def result_of(report: run.Report, case_id: str) -> tuple[str, str]:
    """Return the result and the detail of one case."""
    return next((one.result, one.detail) for one in report.results if one.case.id == case_id)
