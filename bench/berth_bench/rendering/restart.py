"""Render the results of `berth bench restart` as text, without `-o`."""

from __future__ import annotations

from statistics import median

from berth_host.cli.rendering.columns import columns

from berth_bench.restart.figures import Restarts

_HEADER = ("SCHEDULER", "NODES", "RUNNING", "CPU S", "SECONDS", "MEMORY MB", "SERVERS CPU S")
_TAKE_OVERS = ("SCHEDULER", "LEADERS KILLED", "MEDIAN S", "WORST S", "CPU S")
_RATIOS = ("RATIO OF MEDIANS", "CPU", "SECONDS", "MEMORY", "SERVERS CPU")


def restarts_text(found: Restarts) -> str:
    """Return the medians, the take-overs if there are any, then the ratios of the first contender."""
    rows = [
        (
            one.contender,
            str(found.nodes),
            str(found.running),
            *(f"{figure:.1f}" for figure in (one.median.cpu_s, one.median.took_s)),
            f"{one.median.memory_mb:.0f}",
            f"{one.median.servers_cpu_s:.1f}",
        )
        for one in found.contenders
    ]
    first = found.contenders[0].contender
    ratios = [
        (
            f"{first} / {name}",
            *(
                f"{found_ratios[key]:.2f}" if key in found_ratios else "-"
                for key in ("cpu_s", "took_s", "memory_mb", "servers_cpu_s")
            ),
        )
        for name, found_ratios in found.ratios()
    ]
    taken = [
        (
            one.contender,
            str(len(one.take_overs)),
            f"{median(each.took_s for each in one.take_overs):.2f}",
            f"{max(each.took_s for each in one.take_overs):.2f}",
            f"{median(each.cpu_s for each in one.take_overs):.2f}",
        )
        for one in found.contenders
        if one.take_overs
    ]
    parts = [columns(_HEADER, rows, right=range(1, len(_HEADER)))]
    if taken:
        parts.append(columns(_TAKE_OVERS, taken, right=range(1, len(_TAKE_OVERS))))
    if ratios:
        parts.append(columns(_RATIOS, ratios, right=range(1, len(_RATIOS))))
    return "\n\n".join(parts) + "\n"
