"""The share of hell in a life, and the gaps between its acts."""

from __future__ import annotations

import random

import pytest
from berth_bench.life.storms import drawn_gap_s, drawn_storm


@pytest.mark.parametrize(
    ("mood", "least", "most"), [("calm", 0.0, 0.0), ("mixed", 0.1, 0.5), ("hell", 1.0, 1.0)]
)
def test_storm_of_a_mood_is_between_calm_and_hell(mood: str, least: float, most: float) -> None:
    assert all(least <= drawn_storm(random.Random(seed), mood) <= most for seed in range(50))


@pytest.mark.parametrize(("storm", "middle_s"), [(0.0, 600.0), (0.5, 330.0), (1.0, 60.0)])
def test_gap_is_at_most_twice_and_at_least_half_of_that_of_the_storm(storm: float, middle_s: float) -> None:
    drawn = [drawn_gap_s(random.Random(seed), storm, 600.0, 60.0) for seed in range(50)]
    assert all(middle_s / 2 <= gap_s <= middle_s * 2 for gap_s in drawn)
    assert len(set(drawn)) > 1
