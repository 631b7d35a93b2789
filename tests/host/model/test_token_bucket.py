"""A rate with a burst, on a clock of the test."""

from __future__ import annotations

import pytest
from berth_host.model.token_bucket import TokenBucket


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_rate_limit_allows_a_burst_and_then_its_rate() -> None:
    clock = Clock()
    bucket = TokenBucket(10.0, 3.0, clock)
    assert [bucket.take() for _ in range(3)] == [0.0] * 3
    assert bucket.take() == pytest.approx(0.1)
    clock.now_s += 0.05
    assert bucket.take() == pytest.approx(0.05)  # asking costs nothing
    clock.now_s += 0.0501
    assert bucket.take() == 0.0
    assert bucket.take() > 0.0


def test_idle_time_refills_the_rate_limit_up_to_the_burst() -> None:
    clock = Clock()
    bucket = TokenBucket(10.0, 3.0, clock)
    clock.now_s += 1000.0
    assert [bucket.take() for _ in range(3)] == [0.0] * 3
    assert bucket.take() > 0.0
