"""`BusyPoll`: keeps the event loop awake during a call in frames, if that saves more than it costs.
Used by `FramedConnections`.

A core that sleeps between a request and its reply wakes up with cold caches and runs the rest of the cycle at
down to half its speed. Waking up takes as long as a short call. Polling uses the core for the whole wait, so
it helps only if replies come soon (docs/performance.md). The loop polls no longer than sleeping would have
cost (the ski rental problem).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from berth_sdk.clocks import work_s

_WORTH_S: Final = 0.0003
"""About the cost of a sleep in seconds: waking up, and the rest of the cycle with cold caches."""
_SHARE: Final = 1 / 8
_TRIAL_EVERY: Final = 64
_CPU_MAX: Final = Path("/sys/fs/cgroup/cpu.max")


class BusyPoll:
    """The polling of one event loop, from `begin` to as many `end`s, for at most `worth_s` seconds.

    The loop polls if the last answers came within that time on average. Otherwise it polls at every 64th
    wait. `cpus`: the number of CPUs for this process; with less than two the loop never polls.
    """

    __slots__ = (
        "_began_s",
        "_clock",
        "_loop",
        "_open",
        "_polls",
        "_turning",
        "_unpolled",
        "_usual_s",
        "_worth_it",
        "_worth_s",
    )

    def __init__(
        self,
        cpus: float | None = None,
        *,
        worth_s: float = _WORTH_S,
        clock: Callable[[], float] = work_s,
    ) -> None:
        self._worth_it = (usable_cpus() if cpus is None else cpus) >= 2
        self._worth_s = worth_s
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open = 0
        self._turning = False
        self._polls = False
        self._unpolled = 0
        self._usual_s = 0.0
        self._began_s = 0.0

    def begin(self) -> None:
        """Begin to wait for an answer."""
        self._open += 1
        if not self._worth_it or self._open > 1:
            return
        self._began_s = self._clock()
        self._polls = self._usual_s <= self._worth_s or self._unpolled >= _TRIAL_EVERY
        if not self._polls:
            self._unpolled += 1
        elif not self._turning:
            self._turning = True
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._turn)

    def end(self) -> None:
        """End a wait: the call was answered or given up."""
        self._open -= 1
        if not self._worth_it or self._open:
            return
        waited_s = self._clock() - self._began_s
        if self._unpolled >= _TRIAL_EVERY and self._polls:
            # A trial replaces the average: the waits before it include the time of waking up.
            self._unpolled, self._usual_s = 0, waited_s
        else:
            # The limit keeps one very long wait from dominating the average.
            self._usual_s += _SHARE * (min(waited_s, 4 * self._worth_s) - self._usual_s)

    def _turn(self) -> None:
        self._turning = self._open > 0 and self._polls and self._clock() - self._began_s < self._worth_s
        if self._turning and self._loop is not None:
            self._loop.call_soon(self._turn)


def usable_cpus(cpu_max: Path = _CPU_MAX) -> float:
    """Return the number of CPUs for this process: by its affinity, or less if its container limits its time.

    `cpu_max`: the container's file of cgroup v2, `QUOTA PERIOD` in microseconds, or `max PERIOD`. Limits of
    another kind are not seen. Source: the kernel's cgroup-v2 documentation.
    """
    cpus = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    try:
        quota, period = cpu_max.read_text().split()
        return cpus if quota == "max" else min(cpus, int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return cpus
