"""Growing waits with jitter."""

from __future__ import annotations

import random

import pytest
from berth_host.attach.retrying import attach_backoff
from berth_host.model.backoff import Backoff
from berth_kube.limiter import request_backoff


class Bounds(random.Random):
    """Draws the upper or the lower bound always."""

    def __init__(self, *, upper: bool) -> None:
        super().__init__()
        self._upper = upper

    def uniform(self, a: float, b: float) -> float:
        return b if self._upper else a


def waits(backoff: Backoff, count: int) -> list[float]:
    return [backoff.next_s() for _ in range(count)]


def test_bound_doubles_up_to_the_longest_and_starts_again_after_a_success() -> None:
    backoff = Backoff(0.5, 3.0, rng=Bounds(upper=True))
    assert waits(backoff, 5) == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff.failures == 5
    backoff.reset()
    assert waits(backoff, 2) == [0.5, 1.0]


def test_bound_stays_after_days_of_failures() -> None:
    backoff = Backoff(0.5, 3.0, rng=Bounds(upper=True))
    backoff.failures = 10**9
    assert backoff.next_s() == 3.0


@pytest.mark.parametrize("least_part", [0.0, 0.5])
def test_wait_is_drawn_between_a_part_of_the_bound_and_the_bound(least_part: float) -> None:
    assert Backoff(2.0, 9.0, least_part=least_part, rng=Bounds(upper=False)).next_s() == 2.0 * least_part
    drawn = [Backoff(2.0, 9.0, least_part=least_part, rng=random.Random(i)).next_s() for i in range(100)]
    assert all(2.0 * least_part <= wait <= 2.0 for wait in drawn)
    assert max(drawn) - min(drawn) > 0.8 * (2.0 - 2.0 * least_part)


def test_attachments_wait_up_to_a_minute_and_requests_up_to_ten_seconds() -> None:
    assert waits(attach_backoff(Bounds(upper=True)), 8) == [1, 2, 4, 8, 16, 32, 60, 60]
    assert waits(request_backoff(Bounds(upper=True)), 8) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0]
    assert waits(request_backoff(Bounds(upper=False)), 2) == [0.05, 0.1]
