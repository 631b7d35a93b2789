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


def test_tokens_taken_ahead_come_at_the_rate_in_the_order_of_their_callers() -> None:
    clock = Clock()
    bucket = TokenBucket(10.0, 2.0, clock)
    assert [bucket.take_ahead() for _ in range(4)] == pytest.approx([0.0, 0.0, 0.1, 0.2])
    clock.now_s += 0.1
    assert bucket.take_ahead() == pytest.approx(0.2)
    bucket.give_back()
    assert bucket.take_ahead() == pytest.approx(0.2)
    assert bucket.take() == pytest.approx(0.3)  # those who took ahead come first
