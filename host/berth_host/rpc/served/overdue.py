"""`Overdue`: the age of the oldest reservation that waits to be given back, and a warning if it is too old.

Part of the `Outbox`. The metrics read the age.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from berth_host.log import get_logger
from berth_host.model.clock import Clock, Timer

_LOG = get_logger()
OVERDUE_S: Final = 60.0
"""Seconds: twice the usual pause before a lost instance is tried again, and longer than a restart."""


class Overdue:
    """The age of a plugin's oldest reservation that waits to be given back. `since`: when it began to wait
    (monotonic seconds); None: none waits.
    """

    def __init__(self, plugin: str, clock: Clock, since: Callable[[], float | None]) -> None:
        self._plugin = plugin
        self._clock = clock
        self._since = since
        self._timer: Timer | None = None
        self._of_s = 0.0
        self._due_s = OVERDUE_S

    @property
    def age_s(self) -> float:
        """The seconds that the oldest reservation has waited; 0 if none waits."""
        since_s = self._since()
        return 0.0 if since_s is None else self._clock.monotonic_s() - since_s

    def watch(self) -> None:
        """Watch the reservations until none is left."""
        if self._timer is None:
            self._look()

    def close(self) -> None:
        """Stop the watch."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Warn of a reservation after OVERDUE_S, after twice that time, and so on."""
        self._timer = None
        since_s = self._since()
        if since_s is None:
            return
        if since_s != self._of_s:
            self._of_s, self._due_s = since_s, OVERDUE_S
        # The sum that the timer is set by: a rounded difference could stay below for ever.
        if self._clock.monotonic_s() >= since_s + self._due_s:
            self._due_s *= 2
            _LOG.warning("outbox.overdue", plugin=self._plugin, age_s=round(self.age_s))
        # Once a minute at least: another one may be the oldest by then.
        soon_s = self._clock.monotonic_s() + OVERDUE_S
        self._timer = self._clock.call_at(min(since_s + self._due_s, soon_s), self._look)
