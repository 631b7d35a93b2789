"""The clocks of the machine, as the host, the SDK and the default plugins read them.

Used where code measures real time, or waits for a deadline of real time. Parts that run on the time of a
simulation have a clock of their own, which they are given.

A program that simulates a whole process replaces these clocks (`replaced`), so that no decision there
depends on the speed of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Protocol


class Clocks(Protocol):
    """The four clocks. All return seconds."""

    def monotonic_s(self) -> float:
        """Return seconds that never step, for durations and deadlines."""
        ...

    def wall_s(self) -> float:
        """Return Unix seconds, which may step."""
        ...

    def work_s(self) -> float:
        """Return seconds that never step, at the best resolution, for slices of work."""
        ...

    def thread_s(self) -> float:
        """Return the CPU seconds of the current thread."""
        ...


class MachineClocks:
    """The clocks of the machine."""

    # The functions themselves: every pod reads the clocks several times.
    monotonic_s = staticmethod(time.monotonic)
    wall_s = staticmethod(time.time)
    work_s = staticmethod(time.perf_counter)
    thread_s = staticmethod(time.thread_time)


class _Used:
    """The clocks that the functions of this module read."""

    clocks: ClassVar[Clocks] = MachineClocks()


def monotonic_s() -> float:
    """Return seconds that never step, for durations and deadlines."""
    return _Used.clocks.monotonic_s()


def wall_s() -> float:
    """Return Unix seconds, which may step."""
    return _Used.clocks.wall_s()


def work_s() -> float:
    """Return seconds that never step, at the best resolution, for slices of work."""
    return _Used.clocks.work_s()


def thread_s() -> float:
    """Return the CPU seconds of the current thread."""
    return _Used.clocks.thread_s()


@contextmanager
def replaced(clocks: Clocks) -> Iterator[None]:
    """Let the whole process read `clocks` until the block ends."""
    before, _Used.clocks = _Used.clocks, clocks
    try:
        yield
    finally:
        _Used.clocks = before
