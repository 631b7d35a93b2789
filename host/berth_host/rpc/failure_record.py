"""`FailureRecord`: the failures of one instance as one plugin, and whether the instance may be called.

A conduct record has:

- a circuit breaker per extension point;
- violations of the contract: three within a minute end in quarantine;
- copies of the state that drifted: three within an hour end in quarantine;
- silence: probes were not answered.

`attach` makes one for each plugin of each instance, and the relay reads it before every call. Calls of the
outbox are always made, because the plugin must get them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from berth_sdk.clocks import monotonic_s
from berth_sdk.extension_points import ExtensionPoint

from berth_host.errors.plugins import (
    CircuitOpenError,
    HostFaultError,
    PluginError,
    PluginStaleError,
    PluginTimeoutError,
)
from berth_host.rpc.breaker import Breaker, BreakerState
from berth_host.rpc.call import AnyCall, Lane

VIOLATIONS: Final = 3
VIOLATIONS_WITHIN_S: Final = 60.0
DRIFTS: Final = 3
DRIFTS_WITHIN_S: Final = 3600.0


class FailureRecord:
    """The conduct record of one instance as one plugin.

    `quarantine`: why the instance is no longer called; empty while it may be called. `silent`: the same for
    missed probes, until a probe is answered.
    """

    def __init__(
        self, plugin: str, changed: Callable[[], None], clock: Callable[[], float] = monotonic_s
    ) -> None:
        """Begin a record. `changed`: called after every change of the record. `clock`: monotonic seconds."""
        self.quarantine = ""
        self.silent = ""
        self.breakers: dict[ExtensionPoint, Breaker] = {}
        self._plugin = plugin
        self._changed = changed
        self._clock = clock
        self._violations = Strikes(VIOLATIONS, VIOLATIONS_WITHIN_S, clock)
        self._drifts = Strikes(DRIFTS, DRIFTS_WITHIN_S, clock)

    @contextmanager
    def watched(self, call: AnyCall, *, begun: bool = False) -> Iterator[None]:
        """Watch one attempt of a call and the checks of its answer. `begun`: an earlier round of the same
        call was made, so this one is made, too. Raises CircuitOpenError.
        """
        if call.lane is Lane.OUTBOX:
            yield
            return
        breaker = self._breaker(call.point)
        whole = self.quarantine or self.silent
        if not begun and (whole or not breaker.admits()):
            raise CircuitOpenError(self._plugin, call.rpc, whole or breaker.last_failure)
        # A further round is never a trial: it counts only while the circuit breaker is closed.
        counts = not begun or breaker.state is BreakerState.CLOSED
        era = breaker.era
        try:
            yield
        except BaseException as failure:
            # If the breaker opened meanwhile, another call is its trial.
            if counts and breaker.era == era:
                _tell(breaker, failure)
            raise
        if counts and breaker.era == era:
            breaker.succeeded()

    def answered(self, call: AnyCall) -> None:
        """Record that an answer to this call came with that of another one and passed every check."""
        breaker = self.breakers.get(call.point)
        if breaker is not None and breaker.state is BreakerState.HALF_OPEN:
            breaker.succeeded()

    def violated(self, why: str) -> None:
        """Count an answer that broke the contract."""
        if self._violations.again():
            self._quarantine(
                f"broke the contract {VIOLATIONS} times within {VIOLATIONS_WITHIN_S:.0f} s, last: {why}"
            )

    def drifted(self) -> None:
        """Count a copy of the state that the instance dropped because it did not match the host's digests."""
        if self._drifts.again():
            minutes = DRIFTS_WITHIN_S / 60
            self._quarantine(
                f"lost its copy of the cluster's state {DRIFTS} times within {minutes:.0f} minutes"
            )

    def _quarantine(self, why: str) -> None:
        if not self.quarantine:
            self.quarantine = f"{why}; fix the plugin, then restart it"
            self._changed()

    def missed(self, why: str) -> None:
        """Refuse calls until a probe is answered: several probes in a row were not."""
        if not self.silent:
            self.silent = why
            self._changed()

    def probed(self) -> None:
        """Record an answered probe."""
        if self.silent:
            self.silent = ""
            self._changed()
        for breaker in self.breakers.values():
            breaker.probed()

    @property
    def next_trial_s(self) -> float | None:
        """The time at which a probe is due so that a call may be tried (monotonic seconds); None: no probe is
        due.
        """
        times_s = (breaker.next_trial_s for breaker in self.breakers.values())
        return min((time_s for time_s in times_s if time_s is not None), default=None)

    def refuses(self, point: ExtensionPoint) -> bool:
        """Return True while no call is made at this point."""
        breaker = self.breakers.get(point)
        is_open = breaker is not None and breaker.state is BreakerState.OPEN
        return is_open or bool(self.quarantine or self.silent)

    def awaits_trial(self, point: ExtensionPoint) -> bool:
        """Return True when the next call at this point is the trial that may close its circuit breaker."""
        breaker = self.breakers.get(point)
        return breaker is not None and breaker.awaits_trial

    @property
    def is_refusing(self) -> bool:
        """True while no call is made at some point."""
        return bool(self.quarantine or self.silent) or any(self.refuses(point) for point in self.breakers)

    @property
    def complaint(self) -> str:
        """The reason why calls are refused or on trial; empty if all calls are made."""
        if self.quarantine or self.silent:
            return self.quarantine or self.silent
        # Kept answers read the complaint several times per pod, and nearly always find none.
        complaints: list[str] = []
        for point, breaker in self.breakers.items():
            if breaker.state is not BreakerState.CLOSED:
                complaints.append(f"is not asked at {point.config_name}: {breaker.last_failure}")
        return "; ".join(complaints) if complaints else ""

    @property
    def opened(self) -> int:
        """The largest number of openings in a row of a breaker."""
        return max((breaker.opened for breaker in self.breakers.values()), default=0)

    def _breaker(self, point: ExtensionPoint) -> Breaker:
        found = self.breakers.get(point)
        if found is None:
            found = self.breakers[point] = Breaker(self._changed, self._clock)
        return found


def _tell(breaker: Breaker, failure: BaseException) -> None:
    if isinstance(failure, PluginError) and _says_something(failure):
        breaker.failed(failure.said_of_it)
    else:
        breaker.came_to_nothing()


def _says_something(failure: PluginError) -> bool:
    """Return True if the failure is the instance's, and not the host's or that of an earlier plugin."""
    if isinstance(failure, HostFaultError | PluginStaleError):
        return False
    return not (isinstance(failure, PluginTimeoutError) and failure.others_spent)


class Strikes:
    """A count of violations with a limit: `limit` within `within_s` seconds. `clock`: monotonic seconds."""

    def __init__(self, limit: int, within_s: float, clock: Callable[[], float]) -> None:
        self.limit = limit
        self.within_s = within_s
        self._clock = clock
        self._times_s: deque[float] = deque(maxlen=limit)

    def again(self) -> bool:
        """Count one more violation. Return True when the limit is exceeded."""
        now_s = self._clock()
        self._times_s.append(now_s)
        return len(self._times_s) == self.limit and now_s - self._times_s[0] <= self.within_s
