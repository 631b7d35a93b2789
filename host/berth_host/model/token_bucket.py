"""`TokenBucket`: a rate with a burst.

Used for calls of plugins, for connections and TLS handshakes, for log lines that strangers can cause, and for
the requests to an API server.
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
        self._fill()
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self._per_s

    def take_ahead(self) -> float:
        """Take one token, even one that the bucket does not have yet; return the seconds until it has it.

        Callers that wait so long get their tokens in their order.
        """
        self._fill()
        self._left -= 1.0
        return max(-self._left, 0.0) / self._per_s

    def give_back(self) -> None:
        """Return one token that `take_ahead` took."""
        self._left += 1.0

    def _fill(self) -> None:
        now_s = self._clock()
        self._left = min(self._left + (now_s - self._at_s) * self._per_s, self._burst)
        self._at_s = now_s
