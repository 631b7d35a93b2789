"""The report of a shadow as text, for `kubectl berth shadow` and the end of `berth scheduler --shadow`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from berth_sdk.rfc3339 import parse_time

from berth_host.cli.rendering.columns import columns, count_of
from berth_host.cli.rendering.why import age

_SHOWN: Final = 20
_WORDS: Final = {
    "same": "same node",
    "tie": "another node with the same score",
    "unschedulable": "no node in both",
    "other_node": "another node",
    "only_real": "only the real scheduler found a node",
    "only_shadow": "only the shadow found a node",
    "undecided": "bound before the shadow tried",
}


def shadow_text(report: Mapping[str, Any]) -> str:
    """Return the share of agreement, and tables of outcomes, plugins, times and the last differences."""
    now_s = parse_time(report["answeredAt"])
    compared, agreed = report["compared"], report["agreed"]
    share = f": {100 * agreed / compared:.1f} % agree" if compared else ""
    since = age(now_s - parse_time(report["since"]))
    sections = [f"{count_of(compared, 'decision')} compared in {since}{share}; {report['open']} open"]
    rows = [(_WORDS.get(name, name), str(count)) for name, count in report["outcomes"].items() if count]
    if rows:
        sections.append(columns(("OUTCOME", "PODS"), rows, right=(1,)))
    times = [
        (what, str(figures["pods"]), _milliseconds(figures["mean"]), _milliseconds(figures["p99"]))
        for what, figures in (
            ("decision of the shadow", report["decisionMs"]),
            ("real scheduler, queued to bound", report["realMs"]),
        )
        if figures["pods"]
    ]
    if times:
        sections.append(columns(("TIME", "PODS", "MEAN", "P99"), times, right=(1, 2, 3)))
    plugins = [
        (one["plugin"] or "-", _WORDS.get(one["outcome"], one["outcome"]), str(one["pods"]))
        for one in report["plugins"]
    ]
    if plugins:
        sections.append(columns(("PLUGIN", "DIFFERENCE", "PODS"), plugins, right=(2,)))
    lines = [_line(one, now_s) for one in report["differences"][:_SHOWN]]
    if lines:
        sections.append(columns(("POD", "AGO", "SHADOW", "REAL", "PLUGIN", "REASON"), lines, right=(1,)))
    if len(report["differences"]) > _SHOWN:
        sections[-1] += f"\n{len(report['differences']) - _SHOWN} more with -o json"
    return "\n\n".join(sections) + "\n"


def _line(one: Mapping[str, Any], now_s: float) -> tuple[str, ...]:
    evicts = f" (evicts {', '.join(one['victims'])})" if one["victims"] else ""
    return (
        one["pod"],
        age(now_s - parse_time(one["at"])),
        f"{one['shadowNode'] or '-'}{evicts}",
        one["realNode"] or "-",
        one["plugin"] or "-",
        one["reason"],
    )


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"
