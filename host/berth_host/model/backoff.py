"""`Backoff`: growing waits with jitter between tries.

Used by attachments, by the watches of an API server and for events. The backoff of pods has no jitter, and is
part of the queue's state: see `queue.backoff`.
Source: client-go `util/wait` (Backoff), v1.37.
"""

from __future__ import annotations

import math
import random
from typing import Final

from berth_sdk import chance

_MAX_DOUBLINGS: Final = 64


class Backoff:
    """Waits whose bound doubles from `first_s` to `longest_s` seconds. `failures`: the failures in a row.

    Each wait is drawn between `least_part` of its bound and the bound, so that many callers do not try again
    at the same time.
    """

    def __init__(
        self, first_s: float, longest_s: float, *, least_part: float = 0.0, rng: random.Random | None = None
    ) -> None:
        self.failures = 0
        self._first_s = first_s
        self._longest_s = longest_s
        self._least_part = least_part
        self._rng = rng or chance.generator()

    def next_s(self) -> float:
        """Count a failure; return the wait before the next try, in seconds."""
        # A peer may stay away for days: the exponent must not grow with its failures.
        bound_s = min(math.ldexp(self._first_s, min(self.failures, _MAX_DOUBLINGS)), self._longest_s)
        self.failures += 1
        return self._rng.uniform(self._least_part * bound_s, bound_s)

    def reset(self) -> None:
        """Start again at the first wait, after a success."""
        self.failures = 0
