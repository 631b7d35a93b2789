"""Full jitter between nothing and a bound that doubles."""

from __future__ import annotations

import random

from berth_host.attach.backoff import Backoff


class Highest(random.Random):
    """Always draws the upper bound."""

    def uniform(self, a: float, b: float) -> float:
        return b


def test_bound_doubles_from_one_second_to_a_minute() -> None:
    backoff = Backoff(Highest())
    assert [backoff.next_s() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_backoff_works_after_days_of_failures() -> None:
    backoff = Backoff(Highest())
    assert {backoff.next_s() for _ in range(5000)} == {1, 2, 4, 8, 16, 32, 60}


def test_reset_starts_at_the_first_wait() -> None:
    backoff = Backoff(Highest())
    for _ in range(5):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() == 1


def test_waits_are_spread_over_the_whole_range() -> None:
    drawn = [Backoff(random.Random(seed)).next_s() for seed in range(200)]
    assert min(drawn) < 0.1
    assert max(drawn) > 0.9
    assert all(0 <= wait <= 1 for wait in drawn)
