"""Render the results of `berth bench attach` as text, without `-o`."""

from __future__ import annotations

from typing import Final

from berth_host.cli.rendering.columns import columns

from berth_bench.attach.figures import AttachFigures, StartFigures
from berth_bench.attach.turn import Cost

_START: Final = ("START", "MS", "CPU MS", "RATIO", "CPU RATIO")
_ATTACH: Final = ("ATTACH", "MS/PLUGIN", "CPU MS/PLUGIN", "RATIO", "CPU RATIO")


def attach_text(start: StartFigures, attach: AttachFigures) -> str:
    """Return two tables, and a line that says whether all plugins took part."""
    of_start, of_attach = start.ratios, attach.ratios
    starts = [
        ("import grpc, numpy", f"{start.bare_ms:.0f}", f"{start.bare_cpu_ms:.0f}", "1.00", "1.00"),
        (
            "child, first answer",
            f"{start.child_ms:.0f}",
            f"{start.child_cpu_ms:.0f}",
            f"{of_start['wall']:.2f}",
            f"{of_start['cpu']:.2f}",
        ),
    ]
    attached = [
        _row("one process at a time", attach.alone, 1.0, 1.0),
        _row(
            f"{attach.size.processes} together",
            attach.together,
            of_attach["together_wall"],
            of_attach["together_cpu"],
        ),
    ]
    asked = (
        f"{attach.asked} of {attach.size.plugins} plugins in {attach.size.processes} processes were called"
        f" about {attach.bound} pods, all of which have a node"
    )
    later = (
        f"Of the processes attached one at a time, the second half cost {of_attach['later_wall']:.2f} of the"
        f" first half's time, and {of_attach['later_cpu']:.2f} of its CPU time"
    )
    numbers = range(1, len(_START))
    tables = (columns(_START, starts, right=numbers), columns(_ATTACH, attached, right=numbers))
    return "\n\n".join((*tables, f"{asked}.\n{later}.")) + "\n"


def _row(what: str, cost: Cost, wall: float, cpu: float) -> tuple[str, ...]:
    return what, f"{1000 * cost.wall_s:.2f}", f"{1000 * cost.cpu_s:.2f}", f"{wall:.2f}", f"{cpu:.2f}"
