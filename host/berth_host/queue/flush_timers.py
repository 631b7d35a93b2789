"""The periodic jobs: flush backoffQ at every whole second, and leftovers every 30 s from the start.

One timer serves both jobs, so that backoff is always flushed first at the same instant. The timer is set only
while there is something to flush, so that an idle host does not wake up.
Source: kube-scheduler `backend/queue/scheduling_queue.go` (Run, flushBackoffQCompleted,
flushUnschedulablePodsLeftover), v1.36.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from berth_host.model.clock import Clock, Timer
from berth_host.queue.backoff import SECOND_US

LEFTOVER_PERIOD_US: Final = 30 * SECOND_US


class Flushed(Protocol):
    """The queue's interface for the timer."""

    @property
    def has_backing_off(self) -> bool:
        """True if backoffQ is not empty."""
        ...

    @property
    def has_unschedulable(self) -> bool:
        """True if the pool of unschedulable pods is not empty."""
        ...

    def flush_backoff(self) -> int:
        """Move the pods whose backoff is over; return their number."""
        ...

    def flush_leftover(self) -> int:
        """Requeue the pods that have waited too long; return their number."""
        ...


class FlushTimers:
    """The jobs' timer; they run on `clock` between `start` and `stop`.

    Due times are monotonic microseconds. `now_us` returns the Unix microseconds that backoffs use.
    """

    def __init__(self, clock: Clock, queue: Flushed, now_us: Callable[[], int]) -> None:
        self._clock = clock
        self._queue = queue
        self._now_us = now_us
        self._started_us: int | None = None
        self._backoff_due_us: int | None = None
        self._leftover_due_us: int | None = None
        self._timer: Timer | None = None
        self._timer_due_us = 0

    def start(self) -> None:
        """Start the timer; the periods of the leftover job begin now."""
        self._started_us = self._monotonic_us()
        self.arm()

    def stop(self) -> None:
        """Stop the timer."""
        self._started_us = self._backoff_due_us = self._leftover_due_us = None
        self._cancel()

    @property
    def next_backoff_flush_s(self) -> float | None:
        """When backoffQ is flushed next (monotonic seconds); None while it is empty."""
        if self._backoff_due_us is None or not self._queue.has_backing_off:
            return None
        return self._backoff_due_us / SECOND_US

    def arm(self) -> None:
        """Set the timer if backoffQ or the pool has pods."""
        started_us = self._started_us
        if started_us is None:
            return
        if None not in (self._timer, self._backoff_due_us, self._leftover_due_us):
            return  # Both jobs are planned.
        if self._timer is None and not (self._queue.has_backing_off or self._queue.has_unschedulable):
            return
        if self._backoff_due_us is None and self._queue.has_backing_off:
            to_next_second_us = SECOND_US - self._now_us() % SECOND_US
            self._backoff_due_us = self._monotonic_us() + to_next_second_us
        if self._leftover_due_us is None and self._queue.has_unschedulable:
            periods = (self._monotonic_us() - started_us) // LEFTOVER_PERIOD_US + 1
            self._leftover_due_us = started_us + periods * LEFTOVER_PERIOD_US
        due = [when for when in (self._backoff_due_us, self._leftover_due_us) if when is not None]
        if due and (self._timer is None or min(due) < self._timer_due_us):
            self._cancel()
            self._timer_due_us = min(due)
            self._timer = self._clock.call_at(self._timer_due_us / SECOND_US, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now_us = self._monotonic_us()
        if self._backoff_due_us is not None and self._backoff_due_us <= now_us:
            self._backoff_due_us = None
            self._queue.flush_backoff()
        if self._leftover_due_us is not None and self._leftover_due_us <= now_us:
            self._leftover_due_us = None
            self._queue.flush_leftover()
        self.arm()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _monotonic_us(self) -> int:
        return round(self._clock.monotonic_s() * SECOND_US)
