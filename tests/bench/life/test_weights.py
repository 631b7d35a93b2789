"""The weights of a life: drawn, and with what a calm life has not."""

from __future__ import annotations

import random

from berth_bench.life.weights import Weights, drawn_hosts


def test_some_lives_have_two_hosts_and_the_same_seed_has_as_many_again() -> None:
    drawn = [drawn_hosts(seed) for seed in range(200)]
    assert drawn == [drawn_hosts(seed) for seed in range(200)]
    assert 10 <= drawn.count(2) <= 40
    assert drawn.count(1) + drawn.count(2) == 200


def test_same_seed_draws_the_same_weights() -> None:
    assert Weights.drawn(random.Random(1)) == Weights.drawn(random.Random(1))
    assert Weights.drawn(random.Random(1)) != Weights.drawn(random.Random(2))


def test_moods_are_all_drawn_and_a_calm_life_has_no_faults() -> None:
    drawn = [Weights.drawn(random.Random(seed)) for seed in range(100)]
    assert {one.mood for one in drawn} == {"calm", "mixed", "hell"}
    for one in drawn:
        faults = (one.faults.share, one.plugin_errors, one.cut_s)
        assert one.is_calm == (one.mood == "calm") == (faults == (0.0, 0.0, 0.0))


def test_hell_has_more_of_everything() -> None:
    drawn = [Weights.drawn(random.Random(seed)) for seed in range(200)]

    def mean(mood: str, field: str) -> float:
        values = [getattr(one, field) for one in drawn if one.mood == mood]
        return float(sum(values) / len(values))

    for field in ("node_gap_s", "taint_gap_s", "restart_gap_s", "pods_gap_s"):
        assert mean("hell", field) < mean("mixed", field) < mean("calm", field)
