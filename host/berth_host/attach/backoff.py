"""`Backoff`: the waits between attempts to attach; full jitter, doubling from 1 s to 60 s."""

from __future__ import annotations

import math
import random
from typing import Final

FIRST_S: Final = 1.0
MAX_S: Final = 60.0
_MAX_DOUBLINGS: Final = 64
HEALTHY_S: Final = 60.0
"""Seconds without a failure after which the next failure counts as the first."""


class Backoff:
    """The waits of one attachment. `failures`: the number of failed attempts in a row."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self.failures = 0
        self._rng = rng or random.Random()

    def next_s(self) -> float:
        """Count a failure; return a random wait in seconds, so that many attachments do not retry at once."""
        # A plugin may stay away for days: the exponent must not grow with its failures.
        bound_s = min(math.ldexp(FIRST_S, min(self.failures, _MAX_DOUBLINGS)), MAX_S)
        self.failures += 1
        return self._rng.uniform(0.0, bound_s)

    def reset(self) -> None:
        """Start again at the first delay, after the connection has been stable."""
        self.failures = 0
