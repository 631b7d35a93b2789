"""`AttemptObserver`: what traces, metrics and a shadow see of attempts, of pods and of groups of pods.

    begun -> step, step, ... -> chosen -> step, ... -> binds -> step, ... -> settled -> step -> ended

The cycles call an observer at these moments, and `app` hands it over. A host has one observer; the package
`observers` has one that tells several.
"""

from __future__ import annotations

from collections.abc import Awaitable
from enum import Enum
from typing import Final, Protocol, TypeVar

from berth_host.attempt.call_record import CycleRecord
from berth_host.cycle.attempt import Attempt, ScheduleResult

T = TypeVar("T")


class AttemptStep(Enum):
    """A step of an attempt. The values are the names of spans."""

    PRE_FILTER = "PreFilter"
    FILTER = "Filter"
    POST_FILTER = "PostFilter"
    SCORE = "Score"
    """PreScore, Score and NormalizeScore; `Cycle.pre_scored_s` has the end of PreScore."""
    RESERVE = "Reserve"
    UNRESERVE = "Unreserve"
    PERMIT = "Permit"
    PRE_BIND_PRE_FLIGHT = "PreBindPreFlight"
    WAIT_ON_PERMIT = "WaitOnPermit"
    PRE_BIND = "PreBind"
    BIND = "Bind"
    WRITE_BINDING = "write Binding"
    """The request to the cluster."""
    POST_BIND = "PostBind"
    PLACEMENT_GENERATE = "PlacementGenerate"
    PLACEMENT_FEASIBLE = "PlacementFeasible"
    PLACEMENT_SCORE = "PlacementScore"
    POD_GROUP_POST_FILTER = "PodGroupPostFilter"


class AttemptObserver(Protocol):
    """Sees the attempts of one host. Changes nothing of them but `CycleRecord.trace` and `sampler`."""

    def begun(self, attempt: CycleRecord) -> None:
        """Note the start of an attempt of a pod (`Attempt`) or of a group (`GroupAttempt`).

        The attempts of a group's members begin and end inside that of the group.
        """
        ...

    def step(self, record: CycleRecord, step: AttemptStep, ran: Awaitable[T]) -> Awaitable[T]:
        """Return an awaitable that runs the step: `ran`, or one around it.

        `record`: of the attempt; of a placement for a step of a group's trial.
        """
        ...

    def chosen(self, attempt: Attempt, result: ScheduleResult) -> None:
        """Note the node that a search has chosen. The score table changes with the next search."""
        ...

    def binds(self, attempt: Attempt) -> None:
        """Note the start of the binding cycle."""
        ...

    def settled(self, attempt: Attempt) -> None:
        """Note that the outcome is known: the attempt's diagnosis is complete. PostBind may follow."""
        ...

    def ended(self, attempt: CycleRecord) -> None:
        """Note that nothing of the attempt runs any more.

        Not called for a member's attempt in a group whose node was given back for another trial.
        """
        ...


class Unobserved:
    """Implements `AttemptObserver`, and notes nothing. Observers override what they need."""

    def begun(self, attempt: CycleRecord) -> None:
        """Do nothing."""

    def step(self, record: CycleRecord, step: AttemptStep, ran: Awaitable[T]) -> Awaitable[T]:
        """Return `ran`."""
        return ran

    def chosen(self, attempt: Attempt, result: ScheduleResult) -> None:
        """Do nothing."""

    def binds(self, attempt: Attempt) -> None:
        """Do nothing."""

    def settled(self, attempt: Attempt) -> None:
        """Do nothing."""

    def ended(self, attempt: CycleRecord) -> None:
        """Do nothing."""


UNOBSERVED: Final[AttemptObserver] = Unobserved()
