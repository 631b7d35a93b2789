"""`Strikes`: how often something was seen within a time, and whether that is too often.

Used by `Conduct` for violations of the contract and for copies of the state that drifted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Strikes:
    """`limit` times within `within_s` seconds are too often. `clock`: monotonic seconds."""

    def __init__(self, limit: int, within_s: float, clock: Callable[[], float]) -> None:
        self.limit = limit
        self.within_s = within_s
        self._clock = clock
        self._times_s: deque[float] = deque(maxlen=limit)

    def again(self) -> bool:
        """It was seen once more; whether this is too often."""
        now_s = self._clock()
        self._times_s.append(now_s)
        return len(self._times_s) == self.limit and now_s - self._times_s[0] <= self.within_s
