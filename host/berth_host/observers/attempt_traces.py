"""`AttemptTraces`: begins the trace of each attempt, records its steps, and ends it.

`app` makes it if tracing is on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from berth_sdk.status import Code, Status

from berth_host.attempt.call_record import CycleRecord
from berth_host.attempt.cycle import Cycle
from berth_host.cycle.attempt import Attempt
from berth_host.cycle.observer import AttemptStep, Unobserved
from berth_host.explain.diagnosis import Outcome
from berth_host.framework.filtering import all_rows, filter_error
from berth_host.groups.group_attempt import GroupAttempt
from berth_host.metrics.points import code_of
from berth_host.metrics.series import instant_s
from berth_host.queue.queued_group import GroupOutcome
from berth_host.tracing.attempt_trace import MOST_CALLS, AttemptTrace, Step
from berth_host.tracing.tracing import Attributes, RunningTrace, Tracing

T = TypeVar("T")

TRIAL: Final = "trial"
"""The outcome of an attempt for a member of a group whose node was given back for another trial."""

OUTCOMES: Final = {
    GroupOutcome.SUCCESS: "scheduled",
    GroupOutcome.REJECTED: "unschedulable",
    GroupOutcome.ERROR: "error",
}


class AttemptTraces(Unobserved):
    """The traces of one host's attempts, of which `tracing` samples some."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._group: RunningTrace | None = None
        """The trace of the group's attempt under way."""
        self._members: list[Attempt] = []
        """The attempts of members in it that are traced."""

    def begun(self, attempt: CycleRecord) -> None:
        """Give the attempt a trace if it is sampled."""
        if isinstance(attempt, GroupAttempt):
            self._group_begun(attempt)
        elif isinstance(attempt, Attempt):
            trace = self._tracing.begin(attempt.pod, attempt.started_s, self._group)
            if trace.is_sampled:
                attempt.trace = trace
                if self._group is not None:
                    self._members.append(attempt)

    def step(self, record: CycleRecord, step: AttemptStep, ran: Awaitable[T]) -> Awaitable[T]:
        """Record the time and the code of the step if the attempt is traced."""
        trace = record.trace
        return ran if trace is None else _recorded(trace, record, step, ran)

    def binds(self, attempt: Attempt) -> None:
        """Begin the span of the binding cycle."""
        if attempt.trace is not None:
            attempt.trace.binding_s = instant_s()

    def ended(self, attempt: CycleRecord) -> None:
        """Make the spans of the attempt."""
        if isinstance(attempt, GroupAttempt):
            self._group_ended(attempt)
        elif isinstance(attempt, Attempt):
            trace, attempt.trace = attempt.trace, None
            if isinstance(trace, RunningTrace):
                diagnosis = attempt.diagnosis
                error = diagnosis.message if diagnosis.outcome is Outcome.ERROR else None
                self._tracing.ended(trace, _attributes(attempt, diagnosis.outcome.value), error=error)

    def _group_begun(self, attempt: GroupAttempt) -> None:
        annotations = [attempt.tree.group.annotations, *(one.pod.annotations for one in attempt.members)]
        trace = self._group = self._tracing.begin_group(annotations, attempt.started_s)
        if trace.is_sampled:
            attempt.trace = attempt.sampler = trace

    def _group_ended(self, attempt: GroupAttempt) -> None:
        members, self._members, self._group = self._members, [], None
        left_out = 0
        for number, member in enumerate(members):
            if isinstance(member.trace, RunningTrace) and not member.binding:
                # A trial whose nodes were given back: no other code ends it.
                if number < MOST_CALLS:
                    self._tracing.ended(member.trace, _attributes(member, TRIAL), error=None)
                else:
                    left_out += 1
                member.trace = None
        trace = attempt.trace
        if isinstance(trace, RunningTrace):
            trace.left_out += left_out
            attributes = _attributes_of_group(attempt)
            error = str(attributes.get("berth.message", ""))
            failed = attempt.outcome is GroupOutcome.ERROR
            self._tracing.ended(trace, attributes, error=error if failed else None)


async def _recorded(trace: AttemptTrace, record: CycleRecord, step: AttemptStep, ran: Awaitable[T]) -> T:
    with trace.at(step.value) as recorded:
        found = await ran
        read = _CODES.get(step)
        recorded.code = code_of(found) if read is None else read(record, found)
    if step is AttemptStep.SCORE and isinstance(record, Cycle):
        _split_score(trace, record, recorded)
    return found


def _split_score(trace: AttemptTrace, cycle: Cycle, score: Step) -> None:
    """Record PreScore as a step before Score."""
    if score.began_s < cycle.pre_scored_s < score.ended_s:
        trace.steps.append(Step("PreScore", score.began_s, cycle.pre_scored_s, Code.SUCCESS))
        score.began_s = cycle.pre_scored_s


def _code_of_first(record: CycleRecord, found: tuple[object, object]) -> Code:
    return code_of(found[0])


def _code_of_second(record: CycleRecord, found: tuple[object, object]) -> Code:
    return code_of(found[1])


def _code_of_filter(record: CycleRecord, passed: Sequence[Any]) -> Code:
    statuses = record.statuses if isinstance(record, Cycle) else None
    if statuses is not None and filter_error(statuses, all_rows(statuses.table)) is not None:
        return Code.ERROR
    return Code.SUCCESS if len(passed) else Code.UNSCHEDULABLE


def _code_of_write(record: CycleRecord, found: tuple[Status, bool]) -> Code:
    status, is_known = found
    return status.code if is_known else Code.ERROR


_CODES: Final[Mapping[AttemptStep, Callable[[CycleRecord, Any], Code]]] = {
    AttemptStep.FILTER: _code_of_filter,
    AttemptStep.POST_FILTER: _code_of_second,
    AttemptStep.PRE_BIND_PRE_FLIGHT: _code_of_first,
    AttemptStep.BIND: _code_of_second,
    AttemptStep.WRITE_BINDING: _code_of_write,
    AttemptStep.POD_GROUP_POST_FILTER: _code_of_second,
}
"""How the code of a step is read, where its answer is not a status or a record with one."""


def _attributes(attempt: Attempt, outcome: str) -> Attributes:
    diagnosis, pod = attempt.diagnosis, attempt.pod
    attributes: dict[str, str | int | Sequence[str]] = {
        "k8s.namespace.name": pod.namespace,
        "k8s.pod.name": pod.name,
        "k8s.pod.uid": pod.uid,
        "berth.profile": diagnosis.profile,
        "berth.attempt": diagnosis.attempt,
        "berth.cycle_id": attempt.cycle_id,
        "berth.outcome": outcome,
        "berth.nodes": diagnosis.node_count,
        "berth.nodes.evaluated": diagnosis.evaluated_count,
        "berth.nodes.feasible": diagnosis.feasible_count,
    }
    if attempt.node_name:
        attributes["k8s.node.name"] = attempt.node_name
    if diagnosis.message:
        attributes["berth.message"] = diagnosis.message
    if attempt.trial is not None:
        attributes["berth.placement"] = attempt.trial.placement
    return attributes


def _attributes_of_group(attempt: GroupAttempt) -> Attributes:
    group, status = attempt.tree.group, attempt.tree.status
    attributes: dict[str, str | int | Sequence[str]] = {
        "k8s.namespace.name": group.namespace,
        "berth.group": attempt.key,
        "berth.group.members": [member.pod.key for member in attempt.members[:MOST_CALLS]],
        "berth.group.size": len(attempt.members),
        "berth.group.trials": attempt.trials,
        "berth.profile": attempt.profile,
        "berth.attempt": attempt.info.attempts,
        "berth.cycle_id": attempt.cycle_id,
        "berth.outcome": OUTCOMES[attempt.outcome],
        "berth.nodes": len(attempt.nodes),
    }
    if status is not None and not status.is_success:
        attributes["berth.message"] = status.message
    return attributes
