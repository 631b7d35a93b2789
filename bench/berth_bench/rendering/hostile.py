"""Render the rows of `berth bench hostile` as text, without `-o`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from berth_host.cli.rendering.columns import columns

from berth_bench.hostile.figures import Attempt, Row, Side

_HEADER: Final = (
    "CASE",
    "SIZE",
    "BYTES",
    "KUBE CPU S",
    "BERTH CPU S",
    "RATIO",
    "NEXT: KUBE",
    "BERTH",
    "RATIO",
    "HOLD MS",
    "ANSWER",
    "VERDICT",
)
NO_SERVERS: Final = (
    "There is no kube-scheduler to compare with: these are berth's figures on the embedded cluster."
)


def hostile_text(rows: Sequence[Row]) -> str:
    """Return a line for each case, then the number of cases by verdict."""
    kept = sum(row.verdict == "ok" for row in rows)
    text = f"{columns(_HEADER, [_row(one) for one in rows], right=range(1, 10))}\n\n"
    if all(row.kube is None for row in rows):
        text += f"{NO_SERVERS}\n"
    return f"{text}{kept} of {len(rows)} cases keep the limits.\n"


def _row(row: Row) -> tuple[str, ...]:
    return (
        row.case,
        str(row.size),
        str(row.size_bytes),
        _cpu(row.kube, "attempt"),
        _cpu(row.berth, "attempt"),
        _number(row.ratio),
        _cpu(row.kube, "following"),
        _cpu(row.berth, "following"),
        _number(row.following_ratio),
        "-" if row.berth is None else f"{1000 * row.hold_s:.0f}",
        "-" if row.berth is None else row.berth.attempt.answer,
        row.verdict if row.size else f"refused: {row.limited_by}",
    )


def _cpu(side: Side | None, name: str) -> str:
    if side is None:
        return "-"
    attempt: Attempt = getattr(side, name)
    return f"{attempt.cpu_s:.2f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
