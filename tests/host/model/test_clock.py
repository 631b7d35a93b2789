"""`ManualClock`, whose time changes only when it is advanced."""

from __future__ import annotations

import asyncio

from berth_host.model.clock import ManualClock, sleep


def test_callbacks_run_in_time_order_each_at_its_own_instant() -> None:
    clock = ManualClock(start_s=100.0)
    seen: list[tuple[str, float]] = []
    clock.call_at(3.0, lambda: seen.append(("late", clock.now_s())))
    clock.call_at(1.0, lambda: seen.append(("early", clock.now_s())))
    cancelled = clock.call_at(2.0, lambda: seen.append(("never", 0.0)))
    cancelled.cancel()
    clock.advance_to(5.0)
    assert seen == [("early", 101.0), ("late", 103.0)]
    assert (clock.now_s(), clock.next_timer_s()) == (105.0, None)


def test_a_callback_may_set_the_next_timer_within_the_same_advance() -> None:
    clock = ManualClock()
    ticks: list[float] = []

    def tick() -> None:
        ticks.append(clock.monotonic_s())
        if len(ticks) < 3:
            clock.call_at(clock.monotonic_s() + 1.0, tick)

    clock.call_at(1.0, tick)
    clock.advance(10)
    assert ticks == [1.0, 2.0, 3.0]


async def test_sleep_ends_when_the_clock_is_moved() -> None:
    clock = ManualClock()
    sleeper = asyncio.ensure_future(sleep(clock, 2.0))
    await asyncio.sleep(0)
    clock.advance(1.9)
    await asyncio.sleep(0)
    assert not sleeper.done()
    clock.advance(0.1)
    await sleeper
