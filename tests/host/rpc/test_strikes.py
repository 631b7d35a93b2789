"""Once too often is often enough within the time."""

from __future__ import annotations

from berth_host.rpc.strikes import Strikes


def test_only_those_within_the_time_count() -> None:
    now_s = 0.0
    strikes = Strikes(3, 60.0, lambda: now_s)
    seen = []
    for now_s in (0.0, 10.0, 60.5, 69.9, 70.6, 200.0):  # noqa: B007  # the clock reads it
        seen.append(strikes.again())
    assert seen == [False, False, False, True, True, False]


def test_all_at_once_are_too_many() -> None:
    strikes = Strikes(2, 0.0, lambda: 5.0)
    assert [strikes.again() for _ in range(3)] == [False, True, True]
