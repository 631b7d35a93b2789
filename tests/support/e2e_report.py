"""The state of each spec in Ginkgo's JSON report, and how two schedulers compare.

Called by tests/cluster/e2e/run.py. Source of the format: Ginkgo's `types.Report`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

KUBE: Final = "kube-scheduler"
BERTH: Final = "berth"
PASSED: Final = "passed"
MISSING: Final = "not run"
_SUITE: Final = "[sig-scheduling] "
_REASON_LENGTH: Final = 300


class ReportError(ValueError):
    """The file is not there, or is not a report of a suite that ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One spec of one run. `name` without the suite's; `state` in Ginkgo's words: passed, failed, timedout.

    `seconds`: how long it took; `reason`: why it failed or skipped itself, on one line.
    """

    name: str
    state: str
    seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One scheduler's specs, by name."""

    scheduler: str
    specs: dict[str, Spec]

    def state(self, name: str) -> str:
        """Return the spec's state; MISSING where the run has no such spec."""
        return self.specs[name].state if name in self.specs else MISSING

    @property
    def passed(self) -> set[str]:
        """Names of the specs that passed."""
        return {name for name, spec in self.specs.items() if spec.state == PASSED}


def read_run(scheduler: str, report: Path) -> Run:
    """Return the specs that ran; those that the filter left out are not among them.

    Raises ReportError, also for a suite that was cut short: its time was up, or somebody ended it.
    """
    try:
        suites = json.loads(report.read_text())
    except (OSError, ValueError) as error:
        raise ReportError(f"{report}: {error}") from None
    if cut := [why for suite in suites for why in suite["SpecialSuiteFailureReasons"] or ()]:
        raise ReportError(f"{report}: {'; '.join(cut)}")
    found = [_spec(entry) for suite in suites for entry in suite["SpecReports"] or () if _ran(entry)]
    if not found:
        raise ReportError(f"{report}: no spec ran")
    return Run(scheduler=scheduler, specs={spec.name: spec for spec in found})


def lost(runs: Sequence[Run]) -> list[str]:
    """Return the specs that berth fails and kube-scheduler passes in the same turn, a line each.

    The first run of the one is held against the first of the other, and so on; a run alone against nothing.
    """
    turns = zip(
        [run for run in runs if run.scheduler == KUBE],
        [run for run in runs if run.scheduler == BERTH],
        strict=False,
    )
    return [
        f"run {number}: {name}"
        for number, (kube, berth) in enumerate(turns, start=1)
        for name in sorted(kube.passed - berth.passed)
    ]


def table(runs: Sequence[Run]) -> str:
    """Markdown: a line per spec, a column per run with state and seconds; then the sums."""
    names = sorted({name for run in runs for name in run.specs})
    head = ["Spec", *(run.scheduler for run in runs)]
    lines = [_line(head), _line(["---"] * len(head))]
    lines += [_line([name.replace("|", "\\|"), *(_cell(run, name) for run in runs)]) for name in names]
    lines.append(_line(["**passed**", *(f"**{len(run.passed)} of {len(run.specs)}**" for run in runs)]))
    return "\n".join(lines)


def reasons(runs: Sequence[Run]) -> str:
    """Why specs did not pass, a line for each spec and run; empty where all passed."""
    lines = [
        f"- {run.scheduler}: {name}: {spec.state}: {spec.reason}"
        for run in runs
        for name, spec in sorted(run.specs.items())
        if spec.state != PASSED
    ]
    return "\n".join(lines)


def _ran(entry: dict[str, Any]) -> bool:
    # A spec that skips itself says why; one that the filter left out has nothing to say.
    if entry["LeafNodeType"] != "It" or entry["State"] == "pending":
        return False
    return entry["State"] != "skipped" or bool(_reason(entry))


def _spec(entry: dict[str, Any]) -> Spec:
    name = " ".join([*(entry["ContainerHierarchyTexts"] or ()), entry["LeafNodeText"]])
    return Spec(
        name=name.removeprefix(_SUITE),
        state=entry["State"],
        seconds=entry["RunTime"] / 1e9,
        reason=_reason(entry),
    )


def _reason(entry: dict[str, Any]) -> str:
    text = (entry.get("Failure") or {}).get("Message") or ""
    return " ".join(text.split())[:_REASON_LENGTH]


def _cell(run: Run, name: str) -> str:
    state = run.state(name)
    return state if state == MISSING else f"{state}, {run.specs[name].seconds:.0f} s"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
