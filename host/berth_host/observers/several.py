"""`Several`: one observer of attempts that tells others, in order."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TypeVar

from berth_host.attempt.call_record import CycleRecord
from berth_host.cycle.attempt import Attempt, ScheduleResult
from berth_host.cycle.observer import AttemptObserver, AttemptStep, Unobserved

T = TypeVar("T")


def observing(observers: Sequence[AttemptObserver]) -> AttemptObserver:
    """Return an observer that tells all of `observers`; of one, that observer itself."""
    return observers[0] if len(observers) == 1 else Several(observers)


class Several:
    """Implements `AttemptObserver`, and tells `observers` of each moment that they note."""

    def __init__(self, observers: Sequence[AttemptObserver]) -> None:
        self._begun = _noting("begun", observers)
        self._step = _noting("step", observers)
        self._chosen = _noting("chosen", observers)
        self._binds = _noting("binds", observers)
        self._settled = _noting("settled", observers)
        self._ended = _noting("ended", observers)

    def begun(self, attempt: CycleRecord) -> None:
        """Tell all."""
        for one in self._begun:
            one.begun(attempt)

    def step(self, record: CycleRecord, step: AttemptStep, ran: Awaitable[T]) -> Awaitable[T]:
        """Return an awaitable around those of all."""
        for one in self._step:
            ran = one.step(record, step, ran)
        return ran

    def chosen(self, attempt: Attempt, result: ScheduleResult) -> None:
        """Tell all."""
        for one in self._chosen:
            one.chosen(attempt, result)

    def binds(self, attempt: Attempt) -> None:
        """Tell all."""
        for one in self._binds:
            one.binds(attempt)

    def settled(self, attempt: Attempt) -> None:
        """Tell all."""
        for one in self._settled:
            one.settled(attempt)

    def ended(self, attempt: CycleRecord) -> None:
        """Tell all."""
        for one in self._ended:
            one.ended(attempt)


def _noting(moment: str, observers: Sequence[AttemptObserver]) -> tuple[AttemptObserver, ...]:
    """Return the observers that do more at the moment than `Unobserved`."""
    nothing = getattr(Unobserved, moment)
    return tuple([one for one in observers if getattr(type(one), moment, None) is not nothing])
