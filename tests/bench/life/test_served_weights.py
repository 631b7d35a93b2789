"""The weights of the served plugin: nothing fails where nothing may."""

from __future__ import annotations

import random

from berth_bench.life.served_weights import ServedWeights


def test_calm_has_no_faults_and_storms_have_some() -> None:
    calm = [ServedWeights.drawn(random.Random(seed), 0.0) for seed in range(50)]
    assert {(one.late, one.spoils, one.errors) for one in calm} == {(0.0, 0.0, 0.0)}
    hell = [ServedWeights.drawn(random.Random(seed), 1.0) for seed in range(50)]
    for field in ("late", "spoils", "errors"):
        assert any(getattr(one, field) > 0 for one in hell)
    assert sum(one.gap_s for one in hell) < sum(one.gap_s for one in calm)
