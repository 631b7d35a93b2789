"""A wall clock that stands ahead, for what a date ends: a test does not wait for it, nor come too late."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from berth_sdk import clocks
from berth_sdk.clocks import MachineClocks


class _Ahead:
    """The machine's clocks, but for the wall clock."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def monotonic_s(self) -> float:
        return MachineClocks.monotonic_s()

    def wall_s(self) -> float:
        return MachineClocks.wall_s() + self._seconds

    def work_s(self) -> float:
        return MachineClocks.work_s()

    def thread_s(self) -> float:
        return MachineClocks.thread_s()


@contextmanager
def later(seconds: float) -> Iterator[None]:
    """Let so many seconds be over for the block, on the wall clock that berth's code reads."""
    with clocks.replaced(_Ahead(seconds)):
        yield
