"""`Several`: one observer of attempts that tells others, in order."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TypeVar

from berth_host.attempt.call_record import CycleRecord
from berth_host.cycle.attempt import Attempt, ScheduleResult
from berth_host.cycle.observer import AttemptObserver, AttemptStep

T = TypeVar("T")


def observing(observers: Sequence[AttemptObserver]) -> AttemptObserver:
    """Return an observer that tells all of `observers`; of one, that observer itself."""
    return observers[0] if len(observers) == 1 else Several(observers)


class Several:
    """Implements `AttemptObserver`, and tells `observers` of each moment."""

    def __init__(self, observers: Sequence[AttemptObserver]) -> None:
        self._observers = tuple(observers)

    def begun(self, attempt: CycleRecord) -> None:
        """Tell all."""
        for one in self._observers:
            one.begun(attempt)

    def step(self, record: CycleRecord, step: AttemptStep, ran: Awaitable[T]) -> Awaitable[T]:
        """Return an awaitable around those of all."""
        for one in self._observers:
            ran = one.step(record, step, ran)
        return ran

    def chosen(self, attempt: Attempt, result: ScheduleResult) -> None:
        """Tell all."""
        for one in self._observers:
            one.chosen(attempt, result)

    def binds(self, attempt: Attempt) -> None:
        """Tell all."""
        for one in self._observers:
            one.binds(attempt)

    def settled(self, attempt: Attempt) -> None:
        """Tell all."""
        for one in self._observers:
            one.settled(attempt)

    def ended(self, attempt: CycleRecord) -> None:
        """Tell all."""
        for one in self._observers:
            one.ended(attempt)
