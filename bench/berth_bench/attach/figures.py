"""Compute medians and ratios of starts and turns; the shape of the lines of `-o json`.

Made by the command, printed by the command and `rendering.attach`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from berth_bench.attach.start import Starts
from berth_bench.attach.turn import Cost, Size, Turn, Way


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFigures:
    """Medians in ms: a child until its first call is answered, and a bare import of gRPC and numpy."""

    starts: int
    child_ms: float
    bare_ms: float
    child_cpu_ms: float
    bare_cpu_ms: float

    @property
    def ratios(self) -> dict[str, float]:
        """The times of a child divided by those of the import; less is better, 1: both cost the same."""
        return {
            "wall": round(self.child_ms / self.bare_ms, 3),
            "cpu": round(self.child_cpu_ms / self.bare_cpu_ms, 3),
        }

    def as_json(self, command: str) -> dict[str, Any]:
        """Return one line of `-o json`."""
        return {
            "measured": "start",
            "starts": self.starts,
            "child_ms": round(self.child_ms, 1),
            "bare_ms": round(self.bare_ms, 1),
            "child_cpu_ms": round(self.child_cpu_ms, 1),
            "bare_cpu_ms": round(self.bare_cpu_ms, 1),
            "ratios": self.ratios,
            "command": command,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachFigures:
    """Medians per plugin. `earlier`, `later`: the two halves of the processes attached one at a time.
    `asked`, `bound`: the minimum over all turns.
    """

    size: Size
    turns: int
    alone: Cost
    earlier: Cost
    later: Cost
    together: Cost
    asked: int
    bound: int

    @property
    def ratios(self) -> dict[str, float]:
        """`together_*`: all at once divided by one at a time. `later_*`: the second half divided by the
        first; 1 means that attached plugins do not slow further ones down.
        """
        return {
            "together_wall": round(self.together.wall_s / self.alone.wall_s, 3),
            "together_cpu": round(self.together.cpu_s / self.alone.cpu_s, 3),
            "later_wall": round(self.later.wall_s / self.earlier.wall_s, 3),
            "later_cpu": round(self.later.cpu_s / self.earlier.cpu_s, 3),
        }

    def as_json(self, command: str) -> dict[str, Any]:
        """Return one line of `-o json`."""
        return {
            "measured": "attach",
            "processes": self.size.processes,
            "plugins_per_process": self.size.each,
            "turns": self.turns,
            "one_at_a_time": _rounded(self.alone),
            "together": _rounded(self.together),
            "plugins_asked": self.asked,
            "pods_bound": self.bound,
            "ratios": self.ratios,
            "command": command,
        }


def start_figures(starts: Starts) -> StartFigures:
    """Compute the median of each figure separately."""
    return StartFigures(
        starts=len(starts.child),
        child_ms=1000 * statistics.median(taken.wall_s for taken in starts.child),
        bare_ms=1000 * statistics.median(taken.wall_s for taken in starts.bare),
        child_cpu_ms=1000 * statistics.median(taken.cpu_s for taken in starts.child),
        bare_cpu_ms=1000 * statistics.median(taken.cpu_s for taken in starts.bare),
    )


def attach_figures(size: Size, turns: Mapping[Way, Sequence[Turn]]) -> AttachFigures:
    """Compute the medians. The first process of a host is left out if there are others, because the host then
    also loads code.
    """
    singles = [turn.costs[1:] or turn.costs for turn in turns[Way.ONE_AT_A_TIME]]
    half = (len(singles[0]) + 1) // 2
    every = [turn for own in turns.values() for turn in own]
    return AttachFigures(
        size=size,
        turns=len(singles),
        alone=_median([cost for costs in singles for cost in costs], size.each),
        earlier=_median([cost for costs in singles for cost in costs[:half]], size.each),
        later=_median([cost for costs in singles for cost in costs[-half:]], size.each),
        together=_median([cost for turn in turns[Way.TOGETHER] for cost in turn.costs], size.plugins),
        asked=min(turn.asked for turn in every),
        bound=min(turn.bound for turn in every),
    )


def _median(costs: Sequence[Cost], plugins: int) -> Cost:
    """Return the median cost per plugin."""
    return Cost(
        wall_s=statistics.median(cost.wall_s for cost in costs) / plugins,
        cpu_s=statistics.median(cost.cpu_s for cost in costs) / plugins,
    )


def _rounded(cost: Cost) -> dict[str, float]:
    return {
        "wall_ms_per_plugin": round(1000 * cost.wall_s, 3),
        "cpu_ms_per_plugin": round(1000 * cost.cpu_s, 3),
    }
