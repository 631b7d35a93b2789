"""`TracedSteps` and `TracedBindingCycle`: begin the trace of each attempt, and end it.

Made in place of their base classes if tracing is on.
"""

from __future__ import annotations

from typing import Any

from berth_sdk.status import Code, Status

from berth_host.cache.cache import Cache
from berth_host.cache.snapshot import Snapshot
from berth_host.explain.diagnosis import Outcome
from berth_host.metrics.series import instant_s
from berth_host.model.clock import Clock
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.scheduler.attempt import Attempt, Failed
from berth_host.scheduler.binding_cycle import BindingCycle
from berth_host.scheduler.failure import Failure
from berth_host.scheduler.pod_steps import CycleProfile, PodSteps
from berth_host.tracing.tracing import RunningTrace, Tracing


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

    def begin(self, queued: QueuedPodInfo, profile: CycleProfile) -> Attempt:
        """Return the record of a new attempt, with its trace if the attempt is sampled."""
        attempt = super().begin(queued, profile)
        attempt.trace = self._tracing.begin(attempt.pod, attempt.started_s)
        return attempt


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
        if not isinstance(trace, RunningTrace):
            return
        diagnosis, pod = attempt.diagnosis, attempt.pod
        attributes: dict[str, str | int] = {
            "k8s.namespace.name": pod.namespace,
            "k8s.pod.name": pod.name,
            "k8s.pod.uid": pod.uid,
            "berth.profile": diagnosis.profile,
            "berth.attempt": diagnosis.attempt,
            "berth.cycle_id": attempt.cycle_id,
            "berth.outcome": diagnosis.outcome.value,
            "berth.nodes": diagnosis.node_count,
            "berth.nodes.evaluated": diagnosis.evaluated_count,
            "berth.nodes.feasible": diagnosis.feasible_count,
        }
        if attempt.node_name:
            attributes["k8s.node.name"] = attempt.node_name
        if diagnosis.message:
            attributes["berth.message"] = diagnosis.message
        error = diagnosis.message if diagnosis.outcome is Outcome.ERROR else None
        self._tracing.ended(trace, attributes, error=error)
