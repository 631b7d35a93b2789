"""`Worth`: whether early answers of a plugin pay (`early`): their time, and how often they were used.

Early answers cover all nodes that the plugin itself leaves, and pods that others may reject: a plugin that is
slow per node would work longer than the saved round trips take. So early answers are for quick plugins. Kept
for each plugin of each profile by `early`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SAVED_S: Final = 0.001
"""About the cost, on both sides, of the round trips saved by a pod that is bound in the end."""
RETRY_EVERY: Final = 64
"""Calls, after which one is answered ahead all the same: it may have become quick. Twice as many each time
that it has not.
"""
_RARELY: Final = 1 << 16
_NOT_BOUND: Final = 1 / 4
"""For a pod that is not bound at most the verdicts were of use."""
_WEIGHT: Final = 1 / 16
_LAST: Final = 15
"""Calls whose median time counts: on a busy machine some take long by accident."""


class Worth:
    """pays -it took longer than it saves-> does not pay -a trial that did not-> pays"""

    def __init__(self) -> None:
        self._last_s = deque([0.0] * _LAST, _LAST)
        self._spent_s = 0.0
        self._used = 1.0
        self._declined = 0
        self._retry_every = RETRY_EVERY
        self._tries = False

    @property
    def spent_s(self) -> float:
        """Seconds that the answers ahead of one call took lately."""
        return self._spent_s

    @property
    def pays(self) -> bool:
        """Whether early answers cost less than they save."""
        return self._spent_s <= self._used * SAVED_S

    def begins(self) -> bool:
        """A call that could be answered ahead; whether it is to be."""
        if self.pays:
            return True
        self._declined += 1
        self._tries = self._declined >= self._retry_every
        return self._tries

    def took(self, seconds: float) -> None:
        """It was, and that took so long."""
        if not self._tries:
            self._last_s.append(seconds)
            self._spent_s = sorted(self._last_s)[_LAST // 2]
            return
        self._tries = False
        self._declined = 0
        self._spent_s = seconds
        if self.pays:
            self._last_s.extend([0.0] * _LAST)
            self._retry_every = RETRY_EVERY
        else:
            self._retry_every = min(2 * self._retry_every, _RARELY)

    def ended(self, *, bound: bool) -> None:
        """A cycle of the plugin is over."""
        self._used += ((1.0 if bound else _NOT_BOUND) - self._used) * _WEIGHT
