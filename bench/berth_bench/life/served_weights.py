"""`ServedWeights`: how the served plugin of a life behaves, and how often something happens to it."""

from __future__ import annotations

import random
from dataclasses import dataclass

from berth_bench.life.storms import drawn_gap_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedWeights:
    """The weights of the served plugin. `gap_s`: the mean seconds between two acts. `link_s`: the longest
    time that a message takes. `habits`: how its processes answer. `errors`: the share of Reserve and PreBind
    calls that fail.
    """

    gap_s: float
    link_s: float
    work_s: float
    late: float
    late_s: float
    spoils: float
    errors: float

    @classmethod
    def drawn(cls, chance: random.Random, storm: float) -> ServedWeights:
        """Draw the weights. `storm`: 0 for a life in which nothing fails, 1 for the worst."""
        return cls(
            gap_s=drawn_gap_s(chance, storm, 1200.0, 60.0),
            link_s=chance.choice((0.0, 0.0001, 0.005)) + 0.05 * storm * chance.random(),
            work_s=chance.choice((0.0, 0.0001, 0.01)) + 0.05 * storm * chance.random(),
            late=0.05 * storm * chance.random(),
            late_s=5.0 * chance.random(),
            spoils=0.05 * storm * chance.choice((0.0, 0.0, 1.0)) * chance.random(),
            errors=0.1 * storm * chance.random(),
        )
