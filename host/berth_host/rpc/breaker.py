"""`Breaker`: the circuit breaker of one plugin at one extension point, for one instance.

    CLOSED -failures-> OPEN -the pause is over, and a probe is answered-> HALF_OPEN -one call-> CLOSED,
    or OPEN for twice the pause

A breaker opens after `IN_A_ROW` failures in a row, or if half of at least `ENOUGH_CALLS` calls of the last
`WINDOW_S` seconds failed. While a breaker is open, the failure policy applies at once, without a call. Only
an answer that passed every check closes a breaker. Part of `FailureRecord`.
Source: M. Nygard, Release It!, "Circuit Breaker".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from berth_sdk.clocks import monotonic_s

IN_A_ROW: Final = 5
WINDOW_S: Final = 10
ENOUGH_CALLS: Final = 20
FAILED_SHARE: Final = 0.5
FIRST_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 30.0


class BreakerState(Enum):
    """The states of a circuit breaker."""

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


@dataclass(slots=True)
class _Second:
    """The number of calls and of failures in one second."""

    second: int
    calls: int = 0
    failed: int = 0


class Breaker:
    """The circuit breaker of one extension point.

    `last_failure`: the last failure, as the end of a sentence. `opened`: the number of openings in a row.
    `era`: the number of openings so far. A call that began in an earlier era does not count in this era.

    `changed` is called after each change of `state`. `clock`: monotonic seconds.
    """

    def __init__(self, changed: Callable[[], None], clock: Callable[[], float] = monotonic_s) -> None:
        self.state = BreakerState.CLOSED
        self.last_failure = ""
        self.opened = self.era = 0
        self._changed = changed
        self._clock = clock
        self._in_a_row = 0
        self._seconds: deque[_Second] = deque()
        self._trial_s = 0.0
        self._on_trial = False

    @property
    def next_trial_s(self) -> float | None:
        """The time from which an answered probe allows a call (monotonic seconds); None while not open."""
        return self._trial_s if self.state is BreakerState.OPEN else None

    @property
    def awaits_trial(self) -> bool:
        """True while the next call is the trial that closes the breaker or opens it again."""
        return self.state is BreakerState.HALF_OPEN and not self._on_trial

    def admits(self) -> bool:
        """Return True if the call is to be made; `succeeded`, `failed` or `came_to_nothing` must follow."""
        if self.state is BreakerState.CLOSED:
            return True
        if self.state is BreakerState.OPEN or self._on_trial:
            return False
        self._on_trial = True
        return True

    def succeeded(self) -> None:
        """Record an answer that passed every check."""
        if self.state is BreakerState.CLOSED:
            self._in_a_row = 0
            self._this_second().calls += 1
        elif self.state is BreakerState.HALF_OPEN:
            self._on_trial = False
            self._in_a_row = self.opened = 0
            self._seconds.clear()
            self._enter(BreakerState.CLOSED)

    def failed(self, why: str) -> None:
        """Record a call without a usable answer."""
        self.last_failure = why
        if self.state is BreakerState.HALF_OPEN and self._on_trial:
            self._open()
        elif self.state is BreakerState.CLOSED:
            self._in_a_row += 1
            second = self._this_second()
            second.calls += 1
            second.failed += 1
            if self._in_a_row >= IN_A_ROW or self._half_failed():
                self._open()

    def came_to_nothing(self) -> None:
        """Record a call that was cancelled, or whose failure is not the instance's."""
        self._on_trial = False

    def probed(self) -> None:
        """Record that the instance answered a probe."""
        if self.state is BreakerState.OPEN and self._clock() >= self._trial_s:
            self._on_trial = False
            self._enter(BreakerState.HALF_OPEN)

    def _open(self) -> None:
        self._on_trial = False
        pause_s = min(FIRST_PAUSE_S * 2 ** min(self.opened, 10), MAX_PAUSE_S)
        self.opened += 1
        self.era += 1
        self._trial_s = self._clock() + pause_s
        self._enter(BreakerState.OPEN)

    def _enter(self, state: BreakerState) -> None:
        self.state = state
        self._changed()

    def _this_second(self) -> _Second:
        second = int(self._clock())
        if not self._seconds or self._seconds[-1].second != second:
            self._seconds.append(_Second(second))
            while self._seconds[0].second <= second - WINDOW_S:
                self._seconds.popleft()
        return self._seconds[-1]

    def _half_failed(self) -> bool:
        calls = sum(one.calls for one in self._seconds)
        return calls >= ENOUGH_CALLS and sum(one.failed for one in self._seconds) >= FAILED_SHARE * calls
