"""A report -> the text of `berth simulate` without `-o`."""

from __future__ import annotations

from collections import Counter

from berth_host.cli.rendering.columns import columns, count_of
from berth_host.cli.rendering.pending import pending_lines
from berth_host.cli.rendering.terminal import PLAIN, Terminal
from berth_host.cli.report import PluginCost, Report, Summary


def report_text(report: Report, terminal: Terminal = PLAIN) -> str:
    """Placements, the pods that stay pending by reason, doubts about the input, and one line of figures."""
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
    """`240 of 252 pods are placed on 24 nodes, 12 pending; 0.52 s, 461 pods/s, seed 0`."""
    pods, nodes = count_of(summary.pods, "pod"), count_of(summary.nodes, "node")
    parts = [f"{summary.placed} of {pods} placed on {nodes}", f"{summary.pending} pending"]
    if summary.is_interrupted:
        parts.append(f"{summary.undecided} not decided (interrupted)")
    if summary.finished:
        parts.append(f"{summary.finished} finished and left out")
    speed = f"{summary.seconds:.2f} s, {summary.pods_per_s:.0f} pods/s, seed {summary.seed}"
    return f"{', '.join(parts)}; {speed}"


def costs_text(costs: list[PluginCost], terminal: Terminal = PLAIN, indent: int = 0) -> str:
    """One row per plugin and call, the dearest first; then what a missing `depends_on` would bring."""
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
    """One line for each plugin that was asked again about equal pods and declares no `depends_on`."""
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
