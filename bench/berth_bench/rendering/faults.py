"""Render the results of `berth bench faults` as text, without `-o`."""

from __future__ import annotations

from collections.abc import Sequence

from berth_host.cli.rendering.columns import columns

from berth_bench.faults.figures import Standing
from berth_bench.faults.turn import Phase

_HEADER = ("PLUGIN", "MEASURED", "PODS/S", "P99 MS", "ASKED/POD", "PODS/S RATIO", "P99 RATIO")


def faults_text(standings: Sequence[Standing]) -> str:
    """Return two lines for each case: over both batches, and after the warm-up."""
    rows = []
    for one in standings:
        ratios = one.ratios
        after = f"after {one.size.warm_up_s:g} s"
        rows.append(_row(one.case, "all", one.whole, ratios["pods_per_second"], ratios["p99_ms"]))
        rows.append(
            _row(one.case, after, one.settled, ratios["settled_pods_per_second"], ratios["settled_p99_ms"])
        )
    return columns(_HEADER, rows, right=range(2, len(_HEADER))) + "\n"


def _row(case: str, measured: str, phase: Phase, rate: float | None, p99: float | None) -> tuple[str, ...]:
    return (
        case,
        measured,
        f"{phase.pods_per_second:.0f}",
        f"{phase.p99_ms:.2f}",
        f"{phase.asked_per_pod:.2f}",
        "-" if rate is None else f"{rate:.2f}",
        "-" if p99 is None else f"{p99:.2f}",
    )
