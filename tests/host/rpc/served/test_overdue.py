"""A reservation that nobody takes back is told, with its age, and not again and again."""

from __future__ import annotations

from berth_host.model.clock import ManualClock
from berth_host.rpc.served.overdue import OVERDUE_S, Overdue
from structlog.testing import capture_logs


class Waiting:
    """What waits, by the moment at which it began to."""

    def __init__(self) -> None:
        self.clock = ManualClock(monotonic_start_s=1000.0)
        self.since_s: list[float] = []
        self.overdue = Overdue("Demo", self.clock, lambda: next(iter(self.since_s), None))

    def put(self) -> None:
        self.since_s.append(self.clock.monotonic_s())
        self.overdue.watch()

    def pass_s(self, seconds: int) -> list[int]:
        """Return the ages that were reported meanwhile."""
        with capture_logs() as lines:
            for _ in range(seconds):
                self.clock.advance(1.0)
        assert all((line["event"], line["plugin"]) == ("outbox.overdue", "Demo") for line in lines)
        return [line["age_s"] for line in lines]


def test_row_15_age_is_told_after_a_minute_and_whenever_it_has_doubled() -> None:
    waiting = Waiting()
    waiting.put()
    assert waiting.pass_s(59) == []
    assert waiting.overdue.age_s == 59.0
    assert waiting.pass_s(1) == [OVERDUE_S]
    assert waiting.pass_s(240) == [120, 240]


def test_next_overdue_unreserve_is_reported_by_its_own_age() -> None:
    waiting = Waiting()
    waiting.put()
    waiting.pass_s(500)
    waiting.put()
    waiting.pass_s(20)
    del waiting.since_s[0]
    assert waiting.overdue.age_s == 20.0
    # It is looked at once a minute, whenever the first one's age would have been told.
    (age_s,) = waiting.pass_s(90)
    assert OVERDUE_S <= age_s < 2 * OVERDUE_S


def test_unreserves_that_end_in_time_are_not_reported() -> None:
    waiting = Waiting()
    waiting.put()
    waiting.pass_s(30)
    waiting.since_s.clear()
    assert waiting.overdue.age_s == 0.0
    assert waiting.pass_s(1000) == []
    waiting.put()
    assert waiting.pass_s(61) == [60]
    waiting.overdue.close()
    assert waiting.pass_s(1000) == []


def test_reservation_is_reported_once_although_its_age_is_rounded_to_less_than_the_limit() -> None:
    since_s = 99.087
    assert (since_s + OVERDUE_S) - since_s < OVERDUE_S
    clock = ManualClock(monotonic_start_s=since_s)
    looks = 0

    def since() -> float:
        nonlocal looks
        looks += 1
        # A watch that compares the rounded age sets its timer to the same moment again, without end.
        assert looks < 10
        return since_s

    overdue = Overdue("Demo", clock, since)
    overdue.watch()
    with capture_logs() as lines:
        clock.advance_to(since_s + OVERDUE_S)
    assert [line["age_s"] for line in lines] == [OVERDUE_S]
    overdue.close()
