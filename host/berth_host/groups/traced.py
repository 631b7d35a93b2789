"""`TracedGroups`: begins the trace of each attempt of a group, and ends it. Made if tracing is on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from berth_host.cycle.traced import TracedSteps
from berth_host.groups.group_attempt import GroupAttempt
from berth_host.groups.schedule_group import GroupScheduler
from berth_host.queue.queued_group import GroupOutcome
from berth_host.tracing.attempt_trace import MOST_CALLS
from berth_host.tracing.tracing import Attributes, Tracing

OUTCOMES: Final = {
    GroupOutcome.SUCCESS: "scheduled",
    GroupOutcome.REJECTED: "unschedulable",
    GroupOutcome.ERROR: "error",
}


class TracedGroups(GroupScheduler):
    """The cycles of groups, each of which may be traced."""

    def __init__(
        self, tracing: Tracing, profiles: Any, steps: TracedSteps, *parts: Any, **options: Any
    ) -> None:
        """Make the cycles. `profiles`, `parts`, `options`: as for `GroupScheduler`."""
        super().__init__(profiles, steps, *parts, **options)
        self._tracing = tracing
        self._traced_steps = steps

    async def _schedule(self, attempt: GroupAttempt) -> GroupOutcome:
        annotations = [attempt.tree.group.annotations, *(one.pod.annotations for one in attempt.members)]
        with self._traced_steps.in_group(annotations, attempt.started_s) as trace:
            if trace.is_sampled:
                attempt.trace = attempt.sampler = trace
            outcome = await super()._schedule(attempt)
        if trace.is_sampled:
            attributes = _attributes_of_group(attempt, outcome)
            error = str(attributes["berth.message"]) if outcome is GroupOutcome.ERROR else None
            self._tracing.ended(trace, attributes, error=error)
        return outcome


def _attributes_of_group(attempt: GroupAttempt, outcome: GroupOutcome) -> Attributes:
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
        "berth.outcome": OUTCOMES[outcome],
        "berth.nodes": len(attempt.nodes),
    }
    if status is not None and not status.is_success:
        attributes["berth.message"] = status.message
    return attributes
