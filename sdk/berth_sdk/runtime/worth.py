"""`Worth`: decides whether early answers of a plugin (`early`) save time.

An early answer covers nodes and pods that other plugins may reject. So a plugin that is slow per node would
work longer than the saved round trips take. `early` has one `Worth` per plugin and profile, which measures
the time of early answers and the share that is used.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SAVED_S: Final = 0.001
"""Seconds that the saved round trips of a bound pod take, about, on both sides."""
RETRY_EVERY: Final = 64
"""Calls without early answers after which one is tried again. The number doubles after each trial that does
not save time.
"""
_RARELY: Final = 1 << 16
_NOT_BOUND: Final = 1 / 4
"""The use of early answers for a pod that is not bound: at most the verdicts are used."""
_WEIGHT: Final = 1 / 16
_LAST: Final = 15
"""Calls whose median time counts, as single calls are slow on a busy machine."""


class Worth:
    """The balance of early answers. pays -they take longer than they save-> does not -a fast trial-> pays."""

    def __init__(self) -> None:
        self._last_s = deque([0.0] * _LAST, _LAST)
        self._spent_s = 0.0
        self._used = 1.0
        self._declined = 0
        self._retry_every = RETRY_EVERY
        self._tries = False

    @property
    def spent_s(self) -> float:
        """Seconds that the early answers of one call took recently."""
        return self._spent_s

    @property
    def pays(self) -> bool:
        """True if early answers take less time than they save."""
        return self._spent_s <= self._used * SAVED_S

    def begins(self) -> bool:
        """Count a call that could have early answers; return True if it should have them."""
        if self.pays:
            return True
        self._declined += 1
        self._tries = self._declined >= self._retry_every
        return self._tries

    def took(self, seconds: float, *, cancelled: bool = False) -> None:
        """Record that the early answers of a call took `seconds`.

        `cancelled`: the call ended before its reply, perhaps because of the early answers.
        """
        if not self._tries:
            self._last_s.extend([seconds] * (_LAST if cancelled else 1))
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
        """Count a cycle of the plugin that has ended."""
        self._used += ((1.0 if bound else _NOT_BOUND) - self._used) * _WEIGHT
