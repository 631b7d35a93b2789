"""`TokenBucket`: limits requests per second, with a burst. Used by `client` and `events`.

Source: client-go `util/flowcontrol/throttle.go` (qps and burst of clientConnection), v1.36.
"""

from __future__ import annotations

import asyncio

from berth_host.model.clock import Clock, sleep


class TokenBucket:
    """A rate limit that serves callers in their order. A negative `qps` means no limit."""

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        self._clock = clock
        # 0 means unset, for which client-go uses 5; a burst below 1 would block every request.
        self._qps = qps or 5.0
        self._burst = float(max(burst, 1))
        self._tokens = self._burst
        self._filled_at_s: float | None = None

    async def take(self) -> float:
        """Wait for a turn; return the time waited, in seconds."""
        if self._qps < 0:
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
