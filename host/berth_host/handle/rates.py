"""How often each plugin may ask its host: `CallRates`, a bucket of tokens per plugin.

A plugin that floods the host must not take the loop that schedules. The bucket belongs to the plugin and not
to its attachment: it is no fuller after the plugin has attached anew. Asked by `HandleService` at every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

CALLS_PER_S: Final = 1000.0
BURST_CALLS: Final = 2000.0
"""A gang of 2000 pods may be released one by one; a call that decides on many counts once."""


class TokenBucket:
    """Full at first. `clock`: monotonic seconds."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float]) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._left = burst
        self._at_s = clock()

    def take(self) -> float:
        """Take one: 0. Where there is none: the seconds until there will be, and nothing is taken."""
        now_s = self._clock()
        self._left = min(self._left + (now_s - self._at_s) * self._per_s, self._burst)
        self._at_s = now_s
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self._per_s


class CallRates:
    """A bucket for each plugin that asked. Their names are those of the configuration, so they are few."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, plugin: str) -> float:
        """As the plugin's bucket answers."""
        bucket = self._buckets.get(plugin)
        if bucket is None:
            bucket = self._buckets[plugin] = TokenBucket(CALLS_PER_S, BURST_CALLS, self._clock)
        return bucket.take()
