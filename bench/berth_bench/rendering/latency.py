"""Render the results of `berth bench latency` as text, without `-o`."""

from __future__ import annotations

from collections.abc import Sequence

from berth_host.cli.rendering.columns import columns

from berth_bench.latency.figures import PAUSE_MS, Latencies

_HEADER = (
    *("SCHEDULER", "PODS", "PODS/S", "P50 MS", "P99 MS", "P99.9 MS", "LONGEST MS", "UNBOUND"),
    *("CPU MS/POD", "MEMORY MB"),
)
_PAUSES = ("PAUSE MS", "CPU MS", "COLLECTION")
_COLLECTIONS = ("SCHEDULER", "COLLECTIONS", "COUNT", "LONGEST MS")
_SHOWN = 5


def latencies_text(found: Sequence[Latencies]) -> str:
    """Return a line for each scheduler, then berth's longest pauses and the collections of both."""
    rows = []
    for one in found:
        shown = one.as_json("")
        rows.append(
            (
                one.contender,
                str(one.pods),
                f"{one.pods_per_s:.1f}",
                *(f"{milliseconds:.1f}" for milliseconds in shown["ms"].values()),
                str(one.unbound),
                f"{shown['cpu_ms_per_pod']:.2f}",
                f"{shown['memory_mb']:.0f}",
            )
        )
    parts = [columns(_HEADER, rows, right=range(1, len(_HEADER)))]
    pauses = [pause for one in found for pause in one.pauses]
    if pauses:
        lines = [(f"{one.ms:.1f}", f"{one.cpu_ms:.1f}", one.collection or "-") for one in pauses[:_SHOWN]]
        parts.append(columns(_PAUSES, lines, right=(0, 1)))
    collections = [
        (one.contender, name, str(count), f"{longest:.1f}")
        for one in found
        for name, (count, longest) in sorted(one.collections.items())
    ]
    if collections:
        parts.append(columns(_COLLECTIONS, collections, right=(2, 3)))
    too_long = sum(pause.ms > PAUSE_MS for pause in pauses)
    parts.append(f"berth's event loop paused {too_long} times for more than {PAUSE_MS:.0f} ms")
    return "\n".join(parts) + "\n"
