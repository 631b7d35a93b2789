"""An explanation -> the text of `berth why` and `kubectl berth why` without `-o`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from berth_host.cli.rendering.columns import columns, count_of
from berth_host.explain.diagnosis import NodeScore
from berth_host.explain.explanation import Explanation, RejectedNodes
from berth_host.explain.nearest_fit import Shortage

_SHOWN_NODES: Final = 4
_SHOWN_SHORTAGES: Final = 3


def explanation_text(explanation: Explanation) -> str:
    """Verdict, rejections per plugin and reason, the nearest fit, the best nodes with their scores."""
    state = f"on node {explanation.node}" if explanation.node else "pending"
    parts = [f"{explanation.pod}: {state}\n  {explanation.message}", *attempt_parts(explanation)]
    return "\n\n".join(parts) + "\n"


def attempt_parts(explanation: Explanation) -> list[str]:
    """The paragraphs about the latest attempt: none for a pod that was not tried."""
    parts: list[str] = []
    if explanation.attempts:
        nodes = count_of(explanation.node_count, "node")
        tried = f"attempt {explanation.attempts}: {explanation.feasible_count} of {nodes} fit"
        parts.append("\n".join([tried, *(f"  note: {note}" for note in explanation.notes)]))
    if explanation.rejections:
        parts.append("REJECTED BY\n" + _rejections(explanation.rejections))
    if explanation.nearest:
        parts.append("NEAREST FIT\n" + _nearest(explanation.nearest))
    if explanation.scores:
        parts.append("BEST NODES (weighted score per plugin)\n" + _scores(explanation.scores))
    return parts


def _rejections(rejections: Sequence[RejectedNodes]) -> str:
    rows = [
        (item.plugin or "-", str(len(item.node_names)), item.reason, _names(item.node_names))
        for item in rejections
    ]
    return columns(("PLUGIN", "NODES", "REASON", "WHICH"), rows, right=(1,), indent=2)


def _nearest(nearest: Sequence[Shortage]) -> str:
    lines = [f"  {item.text}" for item in nearest[:_SHOWN_SHORTAGES]]
    rest = sum(len(item.node_names) for item in nearest[_SHOWN_SHORTAGES:])
    if rest:
        lines.append(f"  {count_of(rest, 'other node')} more")
    return "\n".join(lines)


def _scores(scores: Sequence[NodeScore]) -> str:
    plugins = sorted({plugin for score in scores for plugin in score.plugins})
    rows = [
        (
            score.node_name,
            str(score.total),
            *(_weighted(score, plugin) for plugin in plugins),
        )
        for score in scores
    ]
    header = ("NODE", "TOTAL", *plugins)
    return columns(header, rows, right=tuple(range(1, len(header))), indent=2)


def _weighted(score: NodeScore, plugin: str) -> str:
    if plugin not in score.plugins:
        return "-"
    _, normalized, weight = score.plugins[plugin]
    return str(normalized * weight) if weight == 1 else f"{normalized} x {weight}"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN_NODES])
    more = len(names) - _SHOWN_NODES
    return f"{shown} and {more} more" if more > 0 else shown
