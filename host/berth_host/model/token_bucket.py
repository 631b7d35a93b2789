"""`TokenBucket`: a rate with a burst, for callers that do not wait by themselves.

Used for calls of plugins, for connections and TLS handshakes, and for log lines that strangers can cause.
"""

from __future__ import annotations

from collections.abc import Callable


class TokenBucket:
    """A bucket of tokens, full at first. `clock`: monotonic seconds."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float]) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._left = burst
        self._at_s = clock()

    def take(self) -> float:
        """Take one token and return 0. If the bucket is empty, take none and return the seconds until it has
        one.
        """
        now_s = self._clock()
        self._left = min(self._left + (now_s - self._at_s) * self._per_s, self._burst)
        self._at_s = now_s
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self._per_s
