"""Limits on requests: `TokenBucket` on those per second, `Turns` on those under way.

Used by `client` and `events`. Source: client-go `util/flowcontrol/throttle.go` (qps and burst of
clientConnection), v1.36.
"""

from __future__ import annotations

import asyncio
from collections import deque

from berth_host.model.clock import Clock, sleep


class TokenBucket:
    """A rate limit that serves callers in their order. A negative `qps` means no limit."""

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        self._clock = clock
        self.is_on = qps >= 0
        """False if there is no limit; `take` then returns at once."""
        # 0 means unset, for which client-go uses 5; a burst below 1 would block every request.
        self._qps = qps or 5.0
        self._burst = float(max(burst, 1))
        self._tokens = self._burst
        self._filled_at_s: float | None = None

    async def take(self) -> float:
        """Wait for a turn; return the time waited, in seconds."""
        if not self.is_on:
            return 0.0
        now_s = self._clock.monotonic_s()
        if self._filled_at_s is not None:
            filled = self._tokens + (now_s - self._filled_at_s) * self._qps
            self._tokens = min(filled, self._burst)
        self._filled_at_s = now_s
        self._tokens -= 1.0
        if self._tokens >= 0:
            return 0.0
        # A negative count is the number of callers that wait, each after the earlier ones.
        wait_s = -self._tokens / self._qps
        try:
            await sleep(self._clock, wait_s)
        except asyncio.CancelledError:
            self._tokens += 1.0
            raise
        return wait_s


class Turns:
    """A limit on what is under way, which serves callers in their order.

    Like asyncio.Semaphore, but taking a free turn costs no call of a coroutine.
    """

    def __init__(self, count: int) -> None:
        self._free_count = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_free(self) -> bool:
        """Take a turn and return True if one is free and nobody waits for it."""
        if self._free_count > 0 and not self._waiting:
            self._free_count -= 1
            return True
        return False

    async def take(self) -> None:
        """Wait for a turn."""
        if self.take_free():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.give_back()  # It was handed over at the same moment.
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def give_back(self) -> None:
        """End a turn: hand it to the first caller that waits."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free_count += 1
