"""The host's clock: real time in production, jumping time in a simulation, fake time in tests.

Queue, permit waits and PreBind rounds take their time from here; RPC deadlines, attachments and their
outboxes do not: they are real in every mode. Deadlines use the monotonic reading, so a stepped wall clock
cannot fire or hold them.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Protocol

_SECOND_US: Final = 1_000_000


class Timer(Protocol):
    """A pending callback."""

    def cancel(self) -> None:
        """Never call it; harmless when it was called already."""
        ...


class Clock(Protocol):
    """Two readings and one timer. `call_at` takes the monotonic reading, in seconds."""

    def now_s(self) -> float:
        """Wall clock, Unix seconds, which may step: for display."""
        ...

    def monotonic_s(self) -> float:
        """Never steps; for durations and deadlines."""
        ...

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` once the monotonic reading reaches `when_s`."""
        ...


def steady_us(clock: Clock) -> Callable[[], int]:
    """A reading in Unix microseconds: the wall clock of this moment, and on from there without its steps."""
    ahead_us = round(clock.now_s() * _SECOND_US) - round(clock.monotonic_s() * _SECOND_US)
    return lambda: ahead_us + round(clock.monotonic_s() * _SECOND_US)


def rfc3339(moment_s: float) -> str:
    """Unix seconds -> as Kubernetes objects have it: `2026-01-01T00:00:00Z`, fractions cut off."""
    return _rfc3339(math.floor(moment_s))


@lru_cache(maxsize=16)
def _rfc3339(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def sleep(clock: Clock, duration_s: float, done: asyncio.Future[None] | None = None) -> None:
    """Wait for `duration_s` on `clock`, or until somebody sets the result of `done`."""
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
    """The machine's clocks; timers live in the running loop."""

    def now_s(self) -> float:
        """Unix seconds."""
        return time.time()

    def monotonic_s(self) -> float:
        """The loop's own reading (time.monotonic)."""
        return time.monotonic()

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer:
        """A timer of the running loop."""
        return asyncio.get_running_loop().call_at(when_s, callback)


class _Entry:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """Time that stands still until it is moved. Callbacks run inside `advance_to`, in time order.

    Used by `berth simulate` (which jumps to the next timer when nothing else can move) and by tests.
    """

    def __init__(self, start_s: float = 0.0, monotonic_start_s: float = 0.0) -> None:
        self._offset_s = start_s - monotonic_start_s
        self._monotonic_s = monotonic_start_s
        self._timers: list[tuple[float, int, _Entry]] = []
        self._sequence = itertools.count()

    def now_s(self) -> float:
        """Unix seconds."""
        return self._offset_s + self._monotonic_s

    def monotonic_s(self) -> float:
        """Seconds since the clock was made, plus its start."""
        return self._monotonic_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer:
        """Kept until the clock is moved to `when_s` or past it."""
        entry = _Entry(callback)
        heapq.heappush(self._timers, (when_s, next(self._sequence), entry))
        return entry

    def next_timer_s(self) -> float | None:
        """Monotonic reading of the earliest timer, or None."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def advance_to(self, when_s: float) -> None:
        """Move to `when_s` (never backwards), running each due callback at its own instant."""
        while (due_s := self.next_timer_s()) is not None and due_s <= when_s:
            _, _, entry = heapq.heappop(self._timers)
            self._monotonic_s = max(self._monotonic_s, due_s)
            callback, entry.callback = entry.callback, None
            if callback is not None:
                callback()
        self._monotonic_s = max(self._monotonic_s, when_s)

    def advance(self, seconds: float) -> None:
        """Move forward by `seconds`."""
        self.advance_to(self._monotonic_s + seconds)
