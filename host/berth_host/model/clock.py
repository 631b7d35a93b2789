"""The host's clock: real time in production, simulated time in `berth simulate` and in tests.

Queue, permit waits and PreBind rounds use this clock. RPC deadlines, attachments and their outboxes use real
time in every mode. Deadlines use monotonic time, so that a step of the wall clock cannot trigger or delay
them.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Final, Protocol

from berth_sdk.clocks import monotonic_s, wall_s

_SECOND_US: Final = 1_000_000


class Timer(Protocol):
    """A pending callback."""

    def cancel(self) -> None:
        """Cancel the callback; has no effect after it was called."""
        ...


class Clock(Protocol):
    """A clock with timers. `call_at` takes monotonic seconds."""

    def now_s(self) -> float:
        """Return the wall clock's time, in Unix seconds, which may step: for display."""
        ...

    def monotonic_s(self) -> float:
        """Return monotonic seconds, which never step: for durations and deadlines."""
        ...

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` when the monotonic time reaches `when_s`."""
        ...


def steady_us(clock: Clock) -> Callable[[], int]:
    """Return a function for Unix microseconds that starts at the wall clock's time now and never steps."""
    ahead_us = round(clock.now_s() * _SECOND_US) - round(clock.monotonic_s() * _SECOND_US)
    return lambda: ahead_us + round(clock.monotonic_s() * _SECOND_US)


async def sleep(clock: Clock, duration_s: float, done: asyncio.Future[None] | None = None) -> None:
    """Wait for `duration_s` seconds of `clock`, or until `done` has a result."""
    if done is None:
        done = asyncio.get_running_loop().create_future()
    timer = clock.call_at(
        clock.monotonic_s() + duration_s, lambda: None if done.done() else done.set_result(None)
    )
    try:
        await done
    finally:
        timer.cancel()


class RealClock:
    """The machine's clocks, with the timers of the running event loop."""

    # The functions themselves: every pod reads the clocks several times.
    now_s = staticmethod(wall_s)
    """Returns the time in Unix seconds."""
    monotonic_s = staticmethod(monotonic_s)
    """Returns the loop's monotonic time (time.monotonic)."""

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer:
        """Set a timer of the running loop."""
        return asyncio.get_running_loop().call_at(when_s, callback)


class _Entry:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """A clock whose time changes only by `advance_to`, which runs the due callbacks in time order.

    Used by `berth simulate`, which advances to the next timer when no task can run, and by tests.
    """

    def __init__(self, start_s: float = 0.0, monotonic_start_s: float = 0.0) -> None:
        self._offset_s = start_s - monotonic_start_s
        self._monotonic_s = monotonic_start_s
        self._timers: list[tuple[float, int, _Entry]] = []
        self._sequence = itertools.count()

    def now_s(self) -> float:
        """Return the time in Unix seconds."""
        return self._offset_s + self._monotonic_s

    def monotonic_s(self) -> float:
        """Return the seconds since the clock was made, plus its start."""
        return self._monotonic_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` when the clock is advanced to `when_s` or further."""
        entry = _Entry(callback)
        heapq.heappush(self._timers, (when_s, next(self._sequence), entry))
        return entry

    def next_timer_s(self) -> float | None:
        """Return the time of the earliest timer (monotonic seconds), or None."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def advance_to(self, when_s: float) -> None:
        """Advance to `when_s`, never backwards, and run each due callback at its own time."""
        while (due_s := self.next_timer_s()) is not None and due_s <= when_s:
            _, _, entry = heapq.heappop(self._timers)
            self._monotonic_s = max(self._monotonic_s, due_s)
            callback, entry.callback = entry.callback, None
            if callback is not None:
                callback()
        self._monotonic_s = max(self._monotonic_s, when_s)

    def advance(self, seconds: float) -> None:
        """Advance by `seconds`."""
        self.advance_to(self._monotonic_s + seconds)
