"""When Python's garbage collector may stop the loop: between bursts of work, and not in the middle of one.

A full collection looks at every object of the process: with some ten thousand pods it was seen to stop the
loop for 0.6 s. Nearly all of them are the cluster's state, which is no garbage. So what is there after the
first synchronisation is set aside (`gc.freeze`), automatic full collections are put off, and one is made when
nothing has been scheduled for a while, or after a minute of work without a pause. Young objects are
collected as ever.
Used by `Host`, from its start to its stop. The collector is the process's: the last host restores it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import ClassVar, Final

IDLE_S: Final = 5.0
"""Real seconds without a new attempt before a full collection."""
WORTH_IT: Final = 10_000
"""Attempts since the last full collection that make one worth its time ..."""
LARGE: Final = 1000
"""Nodes and pods from which on it is worth setting them aside."""
OVERDUE_S: Final = 60.0
"""... and real seconds after which one is made without an idle moment: it takes a hundredth of them at most.
In `berth bench soak` the host never idles, and calls that fail leave cycles of objects behind.
"""
_YOUNG: Final = 10_000
_MIDDLE: Final = 20
_NEVER: Final = 2**30


class Collector:
    """`attempts` answers how many attempts there have been so far."""

    _running: ClassVar[int] = 0
    _thresholds: ClassVar[tuple[int, int, int]] = (0, 0, 0)

    def __init__(self, attempts: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: monotonic seconds."""
        self._attempts = attempts
        self._clock = clock
        self._collected_at = 0
        self._collected_s = 0.0
        self._seen = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, object_count: int) -> None:
        """The cluster's state is there, `object_count` nodes and pods: set it aside if that is much, and
        look for idle moments from now on.
        """
        if self._timer is not None:
            return
        if not Collector._running:
            Collector._thresholds = gc.get_threshold()
            gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)
        Collector._running += 1
        if object_count >= LARGE:
            gc.collect()
            gc.freeze()
        self._collected_at = self._seen = self._attempts()
        self._collected_s = self._clock()
        self._arm()

    def stop(self) -> None:
        """Everything is as it was. Harmless when it was never started."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        Collector._running -= 1
        if not Collector._running:
            gc.set_threshold(*Collector._thresholds)
            gc.unfreeze()

    def look(self) -> bool:
        """A full collection, if the time is right; whether there was one."""
        attempts, seen = self._attempts(), self._seen
        self._seen = attempts
        since = attempts - self._collected_at
        overdue = self._clock() - self._collected_s >= OVERDUE_S
        if since < WORTH_IT or (attempts != seen and not overdue):
            return False
        self._collected_at, self._collected_s = attempts, self._clock()
        gc.collect()
        return True

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._due)

    def _due(self) -> None:
        self.look()
        self._arm()
