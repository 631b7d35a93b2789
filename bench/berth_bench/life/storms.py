"""How bad a life is, between calm and hell, and how often acts happen in it."""

from __future__ import annotations

import random


def drawn_storm(chance: random.Random, mood: str) -> float:
    """Draw how bad a life is: 0.0 for the mood "calm", 1.0 for "hell", in between for "mixed"."""
    return {"calm": 0.0, "mixed": chance.uniform(0.1, 0.5), "hell": 1.0}[mood]


def drawn_gap_s(chance: random.Random, storm: float, calm_s: float, hell_s: float) -> float:
    """Draw the mean seconds between two acts. `calm_s`, `hell_s`: about those of a calm life and of hell."""
    return (calm_s + storm * (hell_s - calm_s)) * chance.uniform(0.5, 2.0)
