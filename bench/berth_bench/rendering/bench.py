"""Render results of `berth bench` as text, without `-o`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from berth_host.cli.rendering.columns import columns

from berth_bench.result import Result

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
    "CHILDREN",
    "PEAK MB",
    "NODES/POD",
    "THRESHOLD",
    "RATIO",
)


def results_text(results: Sequence[Result]) -> str:
    """Return one row per workload, then notes. Columns of nominations and GPU shares appear if a workload has
    them.
    """
    header: tuple[str, ...] = _HEADER
    rows = [_row(result) for result in results]
    for title, cells in _own_columns(results):
        header = (*header, title)
        rows = [(*row, cell) for row, cell in zip(rows, cells, strict=True)]
    parts = [columns(header, rows, right=range(1, len(header)))]
    parts += [_levels_text(result) for result in results if result.levels]
    parts += notes_texts(results)
    return "\n".join(parts) + "\n"


def _levels_text(result: Result) -> str:
    """Return the samples of one workload, one row each."""
    rows = [
        (
            f"{level.after_s:.0f}",
            f"{level.bound_per_s:.0f}",
            str(level.created),
            str(level.ended),
            str(level.queued),
            str(level.tasks),
            str(level.objects),
            f"{level.rss_mb:.0f}",
        )
        for level in result.levels
    ]
    header = ("AFTER S", "BOUND/S", "CREATED", "ENDED", "QUEUED", "TASKS", "OBJECTS", "RSS MB")
    return f"{result.title}\n{columns(header, rows, right=range(len(header)), indent=2)}"


def notes_texts(results: Sequence[Result]) -> list[str]:
    """Return each `note: text` once, with its workloads unless all of them have it."""
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
    """Return the plugins' costs in one workload, the most expensive first."""
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


def _own_columns(results: Sequence[Result]) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns that appear only if a workload has values for them."""
    if any(result.figures.nominated for result in results):
        yield "NOMINATED", [str(result.figures.nominated or "-") for result in results]
        yield (
            "NOMINATED/S",
            [
                f"{result.figures.nominated_per_s:.0f}" if result.figures.nominated else "-"
                for result in results
            ],
        )
    if any(result.gpu_share is not None for result in results):
        shares = (result.gpu_share for result in results)
        yield "GPU USED", ["-" if share is None else f"{100 * share:.2f} %" for share in shares]


def _row(result: Result) -> tuple[str, ...]:
    own, ratio = result.figures, result.ratio
    return (
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
        f"{own.children_cpu_ms_per_pod:.2f}",
        f"{own.peak_rss_mb:.0f}",
        f"{own.nodes_evaluated_per_pod:.0f}",
        "-" if result.threshold is None else f"{result.threshold:g}",
        "-" if ratio is None else f"{ratio:.2f}",
    )
