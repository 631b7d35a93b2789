"""Render comparisons of `berth bench versus` as text, without `-o`."""

from __future__ import annotations

from collections.abc import Sequence

from berth_host.cli.rendering.columns import columns

from berth_bench.versus.figures import Comparison, Standing

_HEADER = (
    "WORKLOAD",
    "NODES",
    "PODS",
    "SCHEDULER",
    "PODS/S",
    "CPU MS/POD",
    "LOOP MS/POD",
    "LOOP PODS/S",
    "MEMORY MB",
    "BESIDE CPU MS/POD",
    "BESIDE MB",
    "SERVERS CPU MS/POD",
    "STARTUP S",
)
_LATENCIES = ("WORKLOAD", "NODES", "SCHEDULER", "P50 MS", "P99 MS", "WORST MS", "CPU MS/POD")
_SHADOWS = ("WORKLOAD", "BESIDE", "SHADOW'S CPU MS/POD", "SHADOW'S MB", "COMPARED", "AGREED")
_RATIOS = ("WORKLOAD", "RATIO OF MEDIANS", "PODS/S", "CPU", "LOOP CPU", "SERVERS CPU")


def comparisons_text(comparisons: Sequence[Comparison]) -> str:
    """Return medians, then those of shadows and latencies if there are any, then ratios."""
    rows = [_row(one, standing) for one in comparisons for standing in one.standings if standing.turns]
    shadows = [
        _shadow(one, standing)
        for one in comparisons
        for standing in one.standings
        if (median := standing.median) is not None and median.compared
    ]
    late = [_late(one, standing) for one in comparisons for standing in one.standings if standing.latencies]
    ratios = [
        (
            one.workload,
            f"{ratio.contender} / {ratio.over}",
            f"{ratio.pods_per_s:.2f}",
            *("-" if one is None else f"{one:.2f}" for one in (ratio.cpu, ratio.loop_cpu, ratio.servers_cpu)),
        )
        for one in comparisons
        for ratio in one.ratios
    ]
    parts = [
        columns(header, lines, right=range(first, len(header)))
        for header, lines, first in (
            (_HEADER, rows, 4),
            (_SHADOWS, shadows, 2),
            (_LATENCIES, late, 3),
            (_RATIOS, ratios, 2),
        )
        if lines
    ]
    return "\n\n".join(parts) + "\n"


def _row(one: Comparison, standing: Standing) -> tuple[str, ...]:
    median = standing.median
    if median is None:
        raise ValueError(standing.contender)
    beside = bool(median.beside_memory_mb)
    return (
        one.workload,
        str(one.nodes),
        str(one.pods),
        standing.contender,
        f"{median.pods_per_s:.0f}",
        f"{median.cpu_ms_per_pod:.2f}",
        f"{median.loop_cpu_ms_per_pod:.3f}" if median.loop_cpu_ms_per_pod else "-",
        f"{median.loop_pods_per_s:.0f}" if median.loop_cpu_ms_per_pod else "-",
        f"{median.memory_mb:.0f}",
        f"{median.beside_cpu_ms_per_pod:.2f}" if beside else "-",
        f"{median.beside_memory_mb:.0f}" if beside else "-",
        f"{median.servers_cpu_ms_per_pod:.2f}",
        f"{median.startup_s:.1f}",
    )


def _shadow(one: Comparison, standing: Standing) -> tuple[str, ...]:
    median = standing.median
    if median is None:
        raise ValueError(standing.contender)
    return (
        one.workload,
        standing.contender,
        f"{median.beside_cpu_ms_per_pod:.2f}",
        f"{median.beside_memory_mb:.0f}",
        f"{100 * median.compared:.1f} %",
        f"{100 * median.agreed:.1f} %",
    )


def _late(one: Comparison, standing: Standing) -> tuple[str, ...]:
    median = standing.median_latency
    if median is None:
        raise ValueError(standing.contender)
    return (
        one.workload,
        str(one.nodes),
        standing.contender,
        f"{median.p50_ms:.1f}",
        f"{median.p99_ms:.1f}",
        f"{median.worst_ms:.1f}",
        f"{median.cpu_ms_per_pod:.2f}",
    )
