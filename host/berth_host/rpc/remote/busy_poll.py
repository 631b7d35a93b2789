"""`BusyPoll`: keeps the event loop awake while a plugin elsewhere is asked. Used by `CallStreams`.

A core that goes to sleep between a question and its answer comes back with cold caches and does the rest of
the cycle at up to half its speed; waking it takes as long as a short call (docs/performance.md).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_LONGEST_S: Final = 0.005
_CPU_MAX: Final = Path("/sys/fs/cgroup/cpu.max")


class BusyPoll:
    """The loop turns instead of sleeping from `begin` to as many `end`s, `longest_s` after the last `begin`
    at most: who waits longer than that waits for the plugin, not for the core.

    `cpus`: how many this process may use; with less than two, the plugin needs the core more.
    """

    __slots__ = ("_clock", "_longest_s", "_loop", "_open", "_turning", "_until_s", "_worth_it")

    def __init__(
        self,
        cpus: float | None = None,
        *,
        longest_s: float = _LONGEST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worth_it = (usable_cpus() if cpus is None else cpus) >= 2
        self._longest_s = longest_s
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open = 0
        self._turning = False
        self._until_s = 0.0

    def begin(self) -> None:
        """A question is asked."""
        self._open += 1
        if not self._worth_it:
            return
        self._until_s = self._clock() + self._longest_s
        if not self._turning:
            self._turning = True
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._turn)

    def end(self) -> None:
        """It is answered, or nobody waits for it any more."""
        self._open -= 1

    def _turn(self) -> None:
        self._turning = self._open > 0 and self._clock() < self._until_s
        if self._turning and self._loop is not None:
            self._loop.call_soon(self._turn)


def usable_cpus(cpu_max: Path = _CPU_MAX) -> float:
    """CPUs that this process may use: those it is bound to, or less where its container limits its time.

    `cpu_max`: the container's file of cgroup v2, `QUOTA PERIOD` in microseconds, or `max PERIOD`. Limits of
    another kind are not seen. Source: the kernel's cgroup-v2 documentation.
    """
    cpus = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    try:
        quota, period = cpu_max.read_text().split()
        return cpus if quota == "max" else min(cpus, int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return cpus
