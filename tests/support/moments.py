"""`Moments`: an observer of attempts that notes each moment, for tests."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from berth_host.attempt.call_record import CycleRecord
from berth_host.cycle.attempt import Attempt, ScheduleResult
from berth_host.cycle.observer import AttemptStep
from berth_host.groups.group_attempt import GroupAttempt

T = TypeVar("T")


class Moments:
    """Implements `AttemptObserver`. `seen`: (name of the pod or group, moment), in order.

    A step is noted at its end, by its name; one that was cut off with "cut off" after the name.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def of(self, name: str) -> list[str]:
        """Return the moments of one pod or group."""
        return [moment for one, moment in self.seen if one == name]

    def begun(self, attempt: CycleRecord) -> None:
        """Note the moment."""
        self._note(attempt, "begun")

    async def step(self, record: CycleRecord, step: AttemptStep, ran: Awaitable[T]) -> T:
        """Note the step."""
        try:
            found = await ran
        except BaseException:
            self._note(record, f"{step.value} cut off")
            raise
        self._note(record, step.value)
        return found

    def chosen(self, attempt: Attempt, result: ScheduleResult) -> None:
        """Note the node."""
        self._note(attempt, f"chosen: {result.node_name}")

    def binds(self, attempt: Attempt) -> None:
        """Note the moment."""
        self._note(attempt, "binds")

    def settled(self, attempt: Attempt) -> None:
        """Note the outcome."""
        self._note(attempt, f"settled: {attempt.diagnosis.outcome.value}")

    def ended(self, attempt: CycleRecord) -> None:
        """Note the moment; of a group, with the outcome."""
        said = f"ended: {attempt.outcome.name}" if isinstance(attempt, GroupAttempt) else "ended"
        self._note(attempt, said)

    def _note(self, record: CycleRecord, moment: str) -> None:
        name = record.pod.name if isinstance(record, Attempt) else record.root.subject.group.name
        self.seen.append((name, moment))
