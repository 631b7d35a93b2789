"""A report -> the text of `berth simulate` without `-o`. The demo shows parts of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from berth_host.cli.rendering.columns import columns, count_of
from berth_host.cli.rendering.terminal import PLAIN, Terminal

from berth_sim.commands.report import PendingPod, PluginCost, Report, Summary


def report_text(report: Report, terminal: Terminal = PLAIN) -> str:
    """Return placements, pending pods by reason, possible mistakes in the input, and a line of figures."""
    parts: list[str] = []
    if report.placements:
        rows = [(item.pod, item.node, item.owner or "-") for item in report.placements]
        parts.append(columns(("POD", "NODE", "OWNER"), rows, heading=terminal.heading))
    if report.pending:
        parts.append("\n".join([terminal.heading("PENDING"), *pending_lines(report.pending, terminal)]))
    if report.summary.gaps:
        parts.append(
            "\n".join([terminal.heading("INPUT"), *(terminal.wrapped(gap, 2) for gap in report.summary.gaps)])
        )
    parts.append(terminal.heading(summary_text(report.summary)))
    return "\n\n".join(parts) + "\n"


def summary_text(summary: Summary) -> str:
    """Return `240 of 252 pods placed on 24 nodes, 12 pending; 0.52 s, 461 pods/s, seed 0`."""
    pods, nodes = count_of(summary.pods, "pod"), count_of(summary.nodes, "node")
    parts = [f"{summary.placed} of {pods} placed on {nodes}", f"{summary.pending} pending"]
    if summary.is_interrupted:
        parts.append(f"{summary.undecided} not decided (interrupted)")
    if summary.finished:
        parts.append(f"{summary.finished} finished and left out")
    speed = f"{summary.seconds:.2f} s, {summary.pods_per_s:.0f} pods/s, seed {summary.seed}"
    return f"{', '.join(parts)}; {speed}"


def costs_text(costs: list[PluginCost], terminal: Terminal = PLAIN, indent: int = 0) -> str:
    """Return one row per plugin and call, the most expensive first, then advice on missing `depends_on`."""
    rows = [
        (
            cost.plugin,
            "own process" if cost.served else "in process",
            cost.call,
            str(cost.calls),
            f"{cost.mean_ms:.3f}",
            f"{cost.p99_ms:.3f}",
            f"{cost.total_ms:.1f}",
            str(cost.failures or "-"),
        )
        for cost in sorted(costs, key=lambda cost: (-cost.total_ms, cost.plugin, cost.call))
        if cost.calls
    ]
    header = ("PLUGIN", "RUNS", "CALL", "CALLS", "MS/CALL", "P99 MS", "TOTAL MS", "FAILED")
    table = columns(
        header,
        rows,
        right=(3, 4, 5, 6, 7),
        indent=indent,
        width=terminal.width,
        heading=terminal.heading,
    )
    advice = (terminal.wrapped(line, indent, indent + 2) for line in _advice(costs))
    return table + "\n" + "".join(line + "\n" for line in advice)


def _advice(costs: list[PluginCost]) -> list[str]:
    """Return one line for each plugin that was called for equal pods and declares no `depends_on`."""
    calls: Counter[str] = Counter()
    alike: Counter[str] = Counter()
    for cost in costs:
        if cost.alike is not None:
            calls[cost.plugin] += cost.calls
            alike[cost.plugin] += cost.alike
    return [
        f"plugin {plugin}: declare depends_on to keep answers:"
        f" {count} of {count_of(calls[plugin], 'call')} {'was' if count == 1 else 'were'} for equal pods"
        for plugin, count in sorted(alike.items())
        if count
    ]


_NAMED: Final = 4
Remarks = Callable[[PendingPod], Sequence[str]]


def pending_lines(
    pending: Sequence[PendingPod], terminal: Terminal, remarks: Remarks = lambda _: ()
) -> Iterator[str]:
    """Yield the pods of each reason, the reason, and `remarks` about the first pod of each workload."""
    by_reason: dict[str, list[PendingPod]] = {}
    for item in pending:
        by_reason.setdefault(item.message, []).append(item)
    for message, pods in by_reason.items():
        by_owner: dict[str | None, list[PendingPod]] = {}
        for item in pods:
            by_owner.setdefault(item.owner, []).append(item)
        for alike in by_owner.values():
            yield terminal.alarming(terminal.wrapped(_named(alike), 2, 4))
        yield terminal.wrapped(message, 4)
        for alike in by_owner.values():
            # A remark names its pod if it could be about another one.
            whose = f"{alike[0].pod}: " if len(pods) > len(alike) or _have_no_owner(alike) else ""
            for remark in remarks(alike[0]):
                yield terminal.wrapped(f"{whose}{remark}", 4)


def _have_no_owner(alike: Sequence[PendingPod]) -> bool:
    return len(alike) > 1 and alike[0].owner is None


def _named(alike: Sequence[PendingPod]) -> str:
    """Return the name of the first pod of a workload; for pods without one, the first few names."""
    first, owner = alike[0].pod, alike[0].owner
    if owner is not None:
        more = f" and {len(alike) - 1} more like it" if len(alike) > 1 else ""
        return f"{first}{more}   ({owner})"
    names = ", ".join(item.pod for item in alike[:_NAMED])
    return names + (f" and {len(alike) - _NAMED} more" if len(alike) > _NAMED else "")
