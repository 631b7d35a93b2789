"""`TracedSteps` and `TracedBindingCycle`: begin the trace of each attempt of a pod, and end it.

`app` makes them in place of their base classes if tracing is on. `groups.traced` traces groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from berth_sdk.status import Code, Status

from berth_host.cache.cache import Cache
from berth_host.cache.snapshot import Snapshot
from berth_host.cycle.attempt import Attempt, Failed, Failure
from berth_host.cycle.schedule_one import BindingCycle, CycleProfile, PodSteps
from berth_host.explain.diagnosis import Outcome
from berth_host.metrics.series import instant_s
from berth_host.model.clock import Clock
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.tracing.attempt_trace import MOST_CALLS
from berth_host.tracing.tracing import RunningTrace, Tracing

TRIAL: Final = "trial"
"""The outcome of an attempt for a member of a group whose node was given back for another trial."""


class TracedSteps(PodSteps):
    """The steps of scheduling cycles whose attempts may be traced."""

    def __init__(
        self,
        queue: SchedulingQueue,
        cache: Cache,
        snapshot: Snapshot,
        binding: BindingCycle,
        clock: Clock,
        tracing: Tracing,
    ) -> None:
        super().__init__(queue, cache, snapshot, binding, clock)
        self._tracing = tracing

        self._group: RunningTrace | None = None
        """The trace of the group's attempt under way."""
        self._begun: list[Attempt] = []
        """The attempts of members in it that are traced."""

    def begin(self, queued: QueuedPodInfo, profile: CycleProfile) -> Attempt:
        """Return the record of a new attempt, with its trace if the attempt is sampled."""
        attempt = super().begin(queued, profile)
        trace = self._tracing.begin(attempt.pod, attempt.started_s, self._group)
        if trace.is_sampled:
            attempt.trace = trace
            if self._group is not None:
                self._begun.append(attempt)
        return attempt

    @contextmanager
    def in_group(self, annotations: Sequence[Mapping[str, str]], started_s: float) -> Iterator[RunningTrace]:
        """Trace a group's attempt, for the block, and the attempts of members that begin in the block.

        `annotations`: those of the group and of its members. `started_s`: `instant_s` at the start.
        """
        trace = self._group = self._tracing.begin_group(annotations, started_s)
        try:
            yield trace
        finally:
            self._group, begun, self._begun = None, self._begun, []
            left_out = 0
            for number, attempt in enumerate(begun):
                if isinstance(attempt.trace, RunningTrace) and not attempt.binding:
                    # A trial whose nodes were given back: no other code ends it.
                    if number < MOST_CALLS:
                        self._tracing.ended(attempt.trace, _attributes(attempt, TRIAL), error=None)
                    else:
                        left_out += 1
                    attempt.trace = None
            trace.left_out += left_out


class TracedBindingCycle(BindingCycle):
    """All binding cycles of a host, and the end of every attempt's trace."""

    def __init__(self, tracing: Tracing, *parts: Any, **options: Any) -> None:
        """Make the binding cycles. `parts`, `options`: as for `BindingCycle`."""
        super().__init__(*parts, **options)
        self._tracing = tracing

    def start(self, attempt: Attempt) -> None:
        """Start the pod's binding cycle, which gets a span of its own."""
        if attempt.trace is not None:
            attempt.trace.binding_s = instant_s()
        super().start(attempt)

    async def _post(self, attempt: Attempt, plugin: str) -> tuple[Status, bool]:
        if attempt.trace is None:
            return await super()._post(attempt, plugin)
        with attempt.trace.at("write Binding") as step:
            status, is_known = await super()._post(attempt, plugin)
            step.code = status.code if is_known else Code.ERROR
        return status, is_known

    async def _finish(self, attempt: Attempt) -> None:
        await super()._finish(attempt)
        self._end_trace(attempt)

    def _ended_with(self, attempt: Attempt, failed: Failed) -> Failure:
        failure = super()._ended_with(attempt, failed)
        self._end_trace(attempt)
        return failure

    def _end_trace(self, attempt: Attempt) -> None:
        trace, attempt.trace = attempt.trace, None
        if isinstance(trace, RunningTrace):
            diagnosis = attempt.diagnosis
            error = diagnosis.message if diagnosis.outcome is Outcome.ERROR else None
            self._tracing.ended(trace, _attributes(attempt, diagnosis.outcome.value), error=error)


def _attributes(attempt: Attempt, outcome: str) -> dict[str, str | int]:
    diagnosis, pod = attempt.diagnosis, attempt.pod
    attributes: dict[str, str | int] = {
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
