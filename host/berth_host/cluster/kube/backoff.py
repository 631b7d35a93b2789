"""How long to wait before the next try, growing and jittered. Used by `informer` and `events`.

Source: client-go `tools/cache/reflector.go` (the shape; ours starts sooner and ends lower, so that a host
catches up soon after its API server is back), v1.36.
"""

from __future__ import annotations

import random
from typing import Final

FIRST_S: Final = 0.1
LONGEST_S: Final = 10.0


class Backoff:
    """Doubles from FIRST_S to LONGEST_S; half of each wait is chance, so that twenty watches do not march."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._next_s = FIRST_S

    def next_s(self) -> float:
        """The next wait, seconds."""
        wait_s = self._next_s * self._chance.uniform(0.5, 1.0)
        self._next_s = min(2 * self._next_s, LONGEST_S)
        return wait_s

    def reset(self) -> None:
        """Something has succeeded."""
        self._next_s = FIRST_S
