"""Full garbage collections between bursts of scheduling, not during one.

A full collection visits every object of the process; with ten thousand pods it stopped the loop for 0.6 s.
Nearly all objects are the cluster's state, which is no garbage. Therefore:

- `gc.freeze` excludes all objects that exist after the first synchronisation. The start does not wait for a
  full collection: the first idle moment removes the garbage among these objects;
- automatic full collections are off;
- a full collection runs after IDLE_S without an attempt, or after OVERDUE_S of work without a pause;
- Python collects young objects as usual, but not while the cluster is first listed (`uncollected`).

`Host` uses a `Collector` from its start to its stop. The settings hold for the whole process: the last
host restores them.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Final

from berth_sdk.clocks import monotonic_s

IDLE_S: Final = 5.0
"""Real seconds without a new attempt before a full collection."""
WORTH_IT: Final = 10_000
"""The number of attempts since the last full collection after which another one may run."""
LARGE: Final = 1000
"""The number of nodes and pods at which `gc.freeze` is used."""
OVERDUE_S: Final = 60.0
"""Real seconds after which a full collection runs without an idle moment. It takes 1 % of the time at most.
In `berth bench soak` the host never idles, and failed calls leave cycles of objects.
"""
UNCOLLECTED_S: Final = 60.0
"""Real seconds for which the first lists run without collections. Lists leave hardly any garbage, but an API
server that does not answer leaves some with every try.
"""
MANY: Final = 100_000
"""The number of new containers, as Python counts them for its collections, that are frozen."""
_YOUNG: Final = 10_000
_MIDDLE: Final = 20
_NEVER: Final = 2**30


def collect_from_now_on() -> None:
    """Turn on automatic collections, which `berth_host.run` turned off for the time of the imports.

    Collections skip all objects that exist now. Young objects are collected with the thresholds of
    `Collector`.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, gc.get_threshold()[2])
    gc.enable()


@contextmanager
def uncollected() -> Iterator[None]:
    """Turn automatic collections off for the block, for at most UNCOLLECTED_S; then freeze its objects, if
    they are many.

    For the first lists of a cluster. Nearly all of their objects stay, and each collection would visit those
    that came before. Without `gc.freeze`, the next collection of young objects would visit all.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    again = asyncio.get_running_loop().call_later(UNCOLLECTED_S, gc.enable)
    try:
        yield
    finally:
        again.cancel()
        if gc.get_count()[0] >= MANY:
            gc.freeze()
        gc.enable()


class Collector:
    """The full collections of one host. `attempts`: returns the number of attempts so far."""

    _running: ClassVar[int] = 0
    _thresholds: ClassVar[tuple[int, int, int]] = (0, 0, 0)

    def __init__(self, attempts: Callable[[], int], clock: Callable[[], float] = monotonic_s) -> None:
        """`clock`: monotonic seconds."""
        self._attempts = attempts
        self._clock = clock
        self._collected_at = 0
        self._collected_s = 0.0
        self._seen = 0
        self._has_frozen_garbage = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self, object_count: int) -> None:
        """Freeze the cluster's state if it is large, and check regularly whether a full collection is due.

        `object_count`: nodes and pods of the cluster.
        """
        if self._timer is not None:
            return
        if not Collector._running:
            Collector._thresholds = gc.get_threshold()
            gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)
        Collector._running += 1
        if object_count >= LARGE:
            gc.freeze()
            self._has_frozen_garbage = True
        self._collected_at = self._seen = self._attempts()
        self._collected_s = self._clock()
        self._arm()

    def stop(self) -> None:
        """Restore the settings. Has no effect without `start`."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        Collector._running -= 1
        if not Collector._running:
            gc.set_threshold(*Collector._thresholds)
            gc.unfreeze()

    def look(self) -> bool:
        """Run a full collection if one is due; return True if it ran."""
        attempts, seen = self._attempts(), self._seen
        self._seen = attempts
        since = attempts - self._collected_at
        if attempts == seen and self._has_frozen_garbage:
            self._has_frozen_garbage = False
            gc.unfreeze()
            self._collect(attempts)
            gc.freeze()
            return True
        overdue = self._clock() - self._collected_s >= OVERDUE_S
        if since < WORTH_IT or (attempts != seen and not overdue):
            return False
        self._collect(attempts)
        return True

    def _collect(self, attempts: int) -> None:
        self._collected_at, self._collected_s = attempts, self._clock()
        gc.collect()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._due)

    def _due(self) -> None:
        self.look()
        self._arm()
