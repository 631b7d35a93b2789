"""Answers about a pod that is not placed, and about a node to drain -> text, without `-o`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from berth_host.cli.rendering.columns import columns, count_of

_SHOWN: Final = 10
_NAMED: Final = 4
_LOST: Final = "WOULD BE LOST (no controller makes them anew: kubectl drain refuses them without --force)"


def fit_text(answer: Mapping[str, Any]) -> str:
    """Return where the pod would go, with scores; else its victims, the reasons and the nearest nodes."""
    pod, feasible, total = answer["pod"], answer["feasible"], answer["nodes"]
    gates = [(gate["plugin"], gate["message"]) for gate in answer["gates"]]
    head = f"{pod}: kept out of the queue; after that it" if gates else f"{pod}:"
    if answer["node"]:
        equal = f", as good as {count_of(answer['tied'] - 1, 'other node')}" if answer["tied"] > 1 else ""
        sections = [f"{head} would go to {answer['node']}{equal}\n  {feasible} of {total} nodes fit"]
    else:
        sections = [f"{head} fits on no node\n  {answer['message']}"]
    if gates:
        sections.append(f"KEPT OUT OF THE QUEUE BY\n{columns(('PLUGIN', 'REASON'), gates, indent=2)}")
    if answer["scores"]:
        sections.append(f"SCORES\n{_scores(answer['scores'])}")
    preemption = answer["preemption"]
    if preemption and preemption["node"]:
        victims = "\n".join(f"  {victim}" for victim in preemption["victims"]) or "  nobody"
        sections.append(f"WOULD PREEMPT ON {preemption['node']}\n{victims}")
    if answer["rejections"]:
        sections.append(f"REJECTED BY\n{_rejections(answer['rejections'])}")
    if answer["nearestFit"]:
        lines = "\n".join(f"  {item['text']}" for item in answer["nearestFit"][:_SHOWN])
        sections.append(f"NEAREST FIT\n{lines}")
    sections += [f"note: {note}" for note in answer["notes"]]
    return "\n\n".join(sections) + "\n"


def drain_text(answer: Mapping[str, Any]) -> str:
    """Return the pods of the node that could not move, with the reasons, then those that could, those that
    nobody would make anew, and those that a budget does not let go at once.
    """
    moves, stay = answer["moves"], answer["stay"]
    refused = [item for item in moves if item["refusal"]]
    stuck = [item for item in moves if not item["to"]]
    # An older host does not say so.
    lost = [item for item in moves if not item.get("hasController", True)]
    moving = [(item["pod"], item["to"]) for item in moves if item["to"] and item not in lost]
    could = f"{len(moving)} of {count_of(len(moves), 'pod')} could move elsewhere"
    if lost:
        could += f", {len(lost)} without a controller would be lost"
    if refused:
        could += f", budgets let {len(moves) - len(refused)} go at once"
    sections = [f"{answer['node']}: {could}"]
    if stuck:
        rows = [row for item in stuck for row in _why(item)]
        table = columns(("POD", "PLUGIN", "NODES", "REASON"), rows, right=(2,), indent=2)
        sections.append(f"COULD NOT MOVE\n{table}")
    if moving:
        sections.append(f"WOULD MOVE\n{columns(('POD', 'TO'), moving, indent=2)}")
    if lost:
        table = columns(("POD", "FITS ON"), [(item["pod"], item["to"] or "-") for item in lost], indent=2)
        sections.append(f"{_LOST}\n{table}")
    if refused:
        rows = [(item["pod"], str(item["round"] or "never"), item["refusal"]) for item in refused]
        sections.append(f"WAIT FOR A BUDGET\n{columns(('POD', 'ROUND', 'WHY'), rows, indent=2)}")
    if stay:
        staying = [(item["pod"], item["reason"]) for item in stay]
        sections.append(f"STAY\n{columns(('POD', 'WHY'), staying, indent=2)}")
    sections += [f"note: {note}" for note in answer["notes"]]
    return "\n\n".join(sections) + "\n"


def _scores(scores: Sequence[Mapping[str, Any]]) -> str:
    shown = scores[:_SHOWN]
    plugins = list(dict.fromkeys(plugin for item in shown for plugin in item["plugins"]))
    if not plugins:
        return f"  {shown[0]['node']} is the only node that fits, and is not scored"
    rows = [
        (
            item["node"],
            str(item["total"]),
            *(_weighted(item["plugins"].get(plugin)) for plugin in plugins),
        )
        for item in shown
    ]
    table = columns(("NODE", "TOTAL", *plugins), rows, right=range(1, len(plugins) + 2), indent=2)
    more = f"\n  and {len(scores) - len(shown)} more" if len(scores) > len(shown) else ""
    return table + more


def _weighted(score: Mapping[str, int] | None) -> str:
    return "-" if score is None else str(score["normalized"] * score["weight"])


def _rejections(rejections: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (item["plugin"] or "-", str(len(item["nodes"])), item["reason"], _names(item["nodes"]))
        for item in rejections
    ]
    return columns(("PLUGIN", "NODES", "REASON", "WHICH"), rows, right=(1,), indent=2)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _why(item: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row per plugin and reason; the message where no plugin rejected nodes."""
    rows = [(one["plugin"] or "-", str(len(one["nodes"])), one["reason"]) for one in item["rejections"]]
    rows = rows or [("-", "-", item["message"])]
    return [(item["pod"] if not number else "", *row) for number, row in enumerate(rows)]
