"""Compute medians of turns, and ratios to the host without a plugin; the shape of one line of `-o json`.

Made by the command, printed by the command and `rendering.faults`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from berth_bench.faults.turn import DEADLINE_MS, Case, Phase, Size, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All turns of one case, and the turns without a plugin."""

    case: Case
    size: Size
    turns: tuple[Turn, ...]
    without: tuple[Turn, ...]

    @property
    def whole(self) -> Phase:
        """The median of each figure separately, over both batches."""
        return _median([turn.whole for turn in self.turns])

    @property
    def settled(self) -> Phase:
        """The median of each figure separately, over the batch after the warm-up."""
        return _median([turn.settled for turn in self.turns])

    @property
    def ratios(self) -> dict[str, float | None]:
        """Medians divided by those without a plugin. More pods per second and less p99 are better."""
        whole = _median([turn.whole for turn in self.without])
        settled = _median([turn.settled for turn in self.without])
        return {
            "pods_per_second": _ratio(self.whole.pods_per_second, whole.pods_per_second),
            "p99_ms": _ratio(self.whole.p99_ms, whole.p99_ms),
            "settled_pods_per_second": _ratio(self.settled.pods_per_second, settled.pods_per_second),
            "settled_p99_ms": _ratio(self.settled.p99_ms, settled.p99_ms),
        }

    def as_json(self, command: str) -> dict[str, Any]:
        """Return one line of `-o json`. `command`: the command that measures all cases again."""
        return {
            "case": self.case.value,
            "nodes": self.size.nodes,
            "pods": self.size.pods,
            "warm_up_s": self.size.warm_up_s,
            "deadline_ms": DEADLINE_MS,
            **_rounded(self.whole),
            "settled": _rounded(self.settled),
            "ratios": self.ratios,
            "turns": [
                {"whole": _rounded(turn.whole), "settled": _rounded(turn.settled)} for turn in self.turns
            ],
            "command": command,
        }


def standings(size: Size, turns: Mapping[Case, Sequence[Turn]]) -> list[Standing]:
    """Return one Standing per case."""
    without = tuple(turns[Case.NONE])
    return [Standing(case=case, size=size, turns=tuple(own), without=without) for case, own in turns.items()]


def _median(phases: Sequence[Phase]) -> Phase:
    return Phase(
        pods_per_second=statistics.median(phase.pods_per_second for phase in phases),
        p99_ms=statistics.median(phase.p99_ms for phase in phases),
        asked_per_pod=statistics.median(phase.asked_per_pod for phase in phases),
    )


def _ratio(own: float, other: float) -> float | None:
    """Return the ratio; None if the divisor is too small to measure."""
    return round(own / other, 3) if other else None


def _rounded(phase: Phase) -> dict[str, float]:
    return {name: round(value, 3) for name, value in asdict(phase).items()}
