"""`OnAttempt`: hands the diagnosis of every attempt to a function of the program that runs the host."""

from __future__ import annotations

from collections.abc import Callable

from berth_host.cycle.attempt import Attempt
from berth_host.cycle.observer import Unobserved
from berth_host.explain.diagnosis import Diagnosis


class OnAttempt(Unobserved):
    """Calls `told` at the end of every attempt, after the observers before it."""

    def __init__(self, told: Callable[[Diagnosis], None]) -> None:
        self._told = told

    def settled(self, attempt: Attempt) -> None:
        """Hand over the diagnosis."""
        self._told(attempt.diagnosis)
