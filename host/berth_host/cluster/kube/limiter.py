"""`TokenBucket`: so many requests per second, and a few more at once. Used by `client` and `events`.

Source: client-go `util/flowcontrol/throttle.go` (qps and burst of clientConnection), v1.36.
"""

from __future__ import annotations

import asyncio

from berth_host.model.clock import Clock, sleep


class TokenBucket:
    """Gives turns in the order in which they were asked for. A negative `qps` never makes a caller wait."""

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        self._clock = clock
        # Unset is client-go's default; a limit that lets nothing through would be no limit but a stop.
        self._qps = qps or 5.0
        self._burst = float(max(burst, 1))
        self._tokens = self._burst
        self._filled_at_s: float | None = None

    async def take(self) -> float:
        """Wait for a turn; how long it took, in seconds."""
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
        # Below zero count the callers that wait already: each has its turn after the earlier ones.
        wait_s = -self._tokens / self._qps
        try:
            await sleep(self._clock, wait_s)
        except asyncio.CancelledError:
            self._tokens += 1.0
            raise
        return wait_s
