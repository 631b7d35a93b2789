"""`Backoff`: growing, jittered waits between tries. Used by `informer` and `events`.

Source: client-go `tools/cache/reflector.go`, v1.36. These waits start and end lower than client-go's, so
that a host catches up soon after its API server is back.
"""

from __future__ import annotations

import random
from typing import Final

FIRST_S: Final = 0.1
LONGEST_S: Final = 10.0


class Backoff:
    """Waits that double from FIRST_S to LONGEST_S.

    Up to half of each wait is left out at random, so that twenty watches do not retry at the same time.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._next_s = FIRST_S

    def next_s(self) -> float:
        """Return the next wait in seconds, and double the one after it."""
        wait_s = self._next_s * self._chance.uniform(0.5, 1.0)
        self._next_s = min(2 * self._next_s, LONGEST_S)
        return wait_s

    def reset(self) -> None:
        """Start again at FIRST_S, after a success."""
        self._next_s = FIRST_S
