"""Results of `berth bench` -> what it prints without `-o`."""

from __future__ import annotations

from collections.abc import Sequence

from berth_host.cli.bench.result import Result
from berth_host.cli.rendering.columns import columns

_SHOWN = 2
_HEADER = (
    "WORKLOAD",
    "NODES",
    "PODS",
    "BOUND",
    "PODS/S",
    "P50",
    "P99",
    "CYCLE MS P50",
    "P99",
    "CPU MS/POD",
    "PEAK MB",
    "NODES/POD",
    "THRESHOLD",
    "RATIO",
)


def results_text(results: Sequence[Result]) -> str:
    """One row per workload, then notes; the GPU share has a column where a workload has one."""
    with_gpus = any(result.gpu_share is not None for result in results)
    header = (*_HEADER, "GPU USED") if with_gpus else _HEADER
    rows = [_row(result, with_gpus=with_gpus) for result in results]
    parts = [columns(header, rows, right=range(1, len(header)))]
    parts += notes_texts(results)
    return "\n".join(parts) + "\n"


def notes_texts(results: Sequence[Result]) -> list[str]:
    """`note: what` once, with the workloads that it is about unless it is about all of them."""
    about: dict[str, list[str]] = {}
    for result in results:
        for note in result.notes:
            about.setdefault(note, []).append(result.title)
    return [
        f"note: {note}" if len(names) == len(results) else f"note ({_some(names)}): {note}"
        for note, names in about.items()
    ]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def plugins_text(result: Result) -> str:
    """What the plugins cost in one workload, the dearest first."""
    rows = [
        (
            item.plugin,
            item.point,
            str(item.calls),
            f"{item.total_ms / item.calls:.3f}" if item.calls else "-",
            f"{item.total_ms:.1f}",
            f"{item.bytes_sent / item.calls:.0f}" if item.calls and item.bytes_sent else "-",
            f"{item.bytes_received / item.calls:.0f}" if item.calls and item.bytes_received else "-",
        )
        for item in sorted(result.figures.plugins, key=lambda item: (-item.total_ms, item.plugin, item.point))
    ]
    header = ("PLUGIN", "CALL", "CALLS", "MS/CALL", "TOTAL MS", "BYTES SENT/CALL", "RECEIVED/CALL")
    return f"{result.title}\n{columns(header, rows, right=(2, 3, 4, 5, 6), indent=2)}\n"


def _row(result: Result, *, with_gpus: bool) -> tuple[str, ...]:
    own, ratio = result.figures, result.ratio
    row = (
        result.title,
        str(own.nodes),
        str(own.pods),
        str(own.bound),
        f"{own.rate.avg:.0f}",
        f"{own.rate.p50:.0f}",
        f"{own.rate.p99:.0f}",
        f"{own.cycle_p50_ms:.2f}",
        f"{own.cycle_p99_ms:.2f}",
        f"{own.cpu_ms_per_pod:.2f}",
        f"{own.peak_rss_mb:.0f}",
        f"{own.nodes_evaluated_per_pod:.0f}",
        "-" if result.threshold is None else f"{result.threshold:g}",
        "-" if ratio is None else f"{ratio:.2f}",
    )
    if not with_gpus:
        return row
    return (*row, "-" if result.gpu_share is None else f"{100 * result.gpu_share:.2f} %")
