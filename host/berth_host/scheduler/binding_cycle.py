"""A pod's way from Permit to the API: one task per pod, thousands may wait at once.

    PreBindPreFlight -> WaitOnPermit -> queue.done -> PreBind -> Bind -> PostBind
    any failure -> Unreserve, forget -> `failure` puts the pod back into the queue

Started by `schedule_one`, whose own failures after assume leave through here as well, so there is one way
to undo. An ambiguous bind is read back before anything is undone.
Source: kube-scheduler `schedule_one.go` (bindingCycle, handleBindingCycleError), v1.36.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from berth_sdk.pod import Pod
from berth_sdk.results import BindResult
from berth_sdk.status import SUCCESS, Code, Status

from berth_host.cache.cache import Cache
from berth_host.errors.cluster import ClusterError
from berth_host.explain.diagnosis import Diagnoses, Outcome
from berth_host.explain.fit_error import fit_error_message
from berth_host.log import get_logger
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.rpc.cycle import Outcome as CycleOutcome
from berth_host.rpc.relay import LOST
from berth_host.scheduler.attempt import HOST_STOPS, POD_DELETED, Attempt, Failed
from berth_host.scheduler.cluster_calls import ClusterCalls
from berth_host.scheduler.failure import Failure, FailureHandler
from berth_host.scheduler.pod_status import PodStatusWriter

log = get_logger()


class BindingCycle:
    """All binding cycles of the host. `diagnoses` keeps every attempt, bound or not."""

    def __init__(
        self,
        queue: SchedulingQueue,
        cache: Cache,
        binder: ClusterCalls,
        failures: FailureHandler,
        status: PodStatusWriter,
        diagnoses: Diagnoses,
    ) -> None:
        self._queue = queue
        self._cache = cache
        self._binder = binder
        self._failures = failures
        self._status = status
        self._diagnoses = diagnoses
        self._running: dict[str, Attempt] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self.bound_count = 0

    def __len__(self) -> int:
        """Binding cycles under way."""
        return len(self._tasks)

    @property
    def active_count(self) -> int:
        """Binding cycles that do something, or await a call; the others wait for time or a decision."""
        return sum(1 for attempt in self._running.values() if not attempt.cycle.idle)

    def attempts(self) -> list[Attempt]:
        """The binding cycles under way."""
        return list(self._running.values())

    def queued(self) -> list[QueuedPodInfo]:
        """The pods of the binding cycles under way."""
        return [attempt.queued for attempt in self._running.values()]

    def start(self, attempt: Attempt) -> None:
        """Begin the pod's binding cycle; the scheduling loop goes on."""
        attempt.cycle.context.binding = True
        task = asyncio.get_running_loop().create_task(self._run(attempt))
        attempt.task = task
        self._running[attempt.pod.uid] = attempt
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, attempt))

    def abort_pod(self, uid: str) -> bool:
        """The pod was deleted: cancel what its binding cycle waits for. False if it has none."""
        attempt = self._running.get(uid)
        if attempt is None:
            return False
        attempt.abort(POD_DELETED)
        return True

    def preempt_pod(self, uid: str, reason: str) -> bool:
        """Take the node from a pod whose PreBind plugins are at work; it is tried again. False: too late."""
        attempt = self._running.get(uid)
        if attempt is None or not attempt.in_pre_bind:
            return False
        attempt.in_pre_bind = False
        attempt.abort(reason)
        return True

    async def stop(self) -> None:
        """Cancel every binding cycle and wait until each has undone its work."""
        for attempt in list(self._running.values()):
            attempt.abort(HOST_STOPS)
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _ended(self, attempt: Attempt, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if self._running.get(attempt.pod.uid) is attempt:
            del self._running[attempt.pod.uid]
        if not task.cancelled() and (err := task.exception()) is not None:
            log.error("task.failed", pod=attempt.pod.key, exc_info=err)

    # --- the way forward -----------------------------------------------------------------------

    async def _run(self, attempt: Attempt) -> None:
        try:
            await self._prepare(attempt)
            plugin, answer = await attempt.framework.run_bind(attempt.cycle, attempt.node_name)
            await self._complete_bind(attempt, plugin, answer)
        except Failed as failure:
            await self.fail_binding(attempt, failure)
        except asyncio.CancelledError:
            if not attempt.aborted:
                raise
            await self.abort(attempt)
        else:
            await self._finish(attempt)

    async def _prepare(self, attempt: Attempt) -> None:
        """Everything up to PreBind; raises Failed."""
        framework, cycle, node_name = attempt.framework, attempt.cycle, attempt.node_name
        status, will_act = await framework.run_pre_bind_pre_flight(cycle, node_name)
        if not status.is_success:
            raise Failed(status, status.message)
        waits = framework.waiting_pods.is_waiting(attempt.pod.uid)
        if will_act or waits:
            attempt.diagnosis.outcome = Outcome.WAITING
            await self._status.nominate(attempt.pod, node_name)
        status = await framework.wait_on_permit(cycle) if waits else SUCCESS
        if not status.is_success:
            raise self.rejected(attempt, status)
        # From here on no failure can park the pod: a later event would not find it.
        self._queue.done(attempt.pod.uid)
        if will_act:
            attempt.in_pre_bind = True
            status = await framework.run_pre_bind(cycle, node_name)
            attempt.in_pre_bind = False
            if not status.is_success:
                # A plugin that failed wakes the pod when it is back; one that rejected it is not on record.
                failed_plugin = "" if status.is_rejected else status.plugin
                raise Failed(Status(status.code, status.reasons, failed_plugin), status.message)
        for plugin in cycle.context.lost_by:
            status = Status.error(f'plugin "{plugin}" {LOST}')
            raise Failed(status, status.message)

    async def _complete_bind(self, attempt: Attempt, plugin: str, answer: BindResult) -> None:
        """Post the Binding, or check that the plugin did; raises Failed."""
        status = answer.status
        if status.is_success and answer.host_binds:
            try:
                await self._binder.bind(attempt.pod.ref, attempt.node_name)
                return
            except ClusterError as err:
                status = Status.error(f'running Bind plugin "{plugin}": {err}')
        elif status.is_success or plugin in attempt.cycle.context.unknown_outcome:
            pass
        else:
            skipped = "every Bind plugin skipped the pod" if status.code is Code.SKIP else ""
            raise Failed(Status(status.code, status.reasons), status.message or skipped)
        # The plugin says that it bound the pod, or nobody knows whether a bind happened: read it back.
        if await self._is_bound_here(attempt):
            return
        if status.is_success:
            status = Status.error(
                f'running Bind plugin "{plugin}": it answered success,'
                f" but the pod is not bound to {attempt.node_name}"
            )
        raise Failed(Status(status.code, status.reasons), status.message)

    async def _is_bound_here(self, attempt: Attempt) -> bool:
        try:
            now = await self._binder.get("pods", attempt.pod.ref)
        except ClusterError:
            return False
        return now is not None and now.get("spec.nodeName") == attempt.node_name

    async def _finish(self, attempt: Attempt) -> None:
        pod, node_name = attempt.pod, attempt.node_name
        self.bound_count += 1
        self._record(attempt, Outcome.BOUND, "")
        log.info(
            "pod.bound",
            pod=pod.key,
            node=node_name,
            attempt=attempt.diagnosis.attempt,
            feasible_count=attempt.diagnosis.feasible_count,
            duration_ms=attempt.diagnosis.duration_ms,
        )
        note = f"Successfully assigned {pod.key} to {node_name}"
        await self._status.event(pod, "Normal", "Scheduled", "Binding", note)
        await attempt.framework.run_post_bind(attempt.cycle, node_name)
        attempt.framework.end_cycle(attempt.cycle, CycleOutcome.BOUND)
        self._queue.activate_named(attempt.take_pods_to_activate())

    # --- the way back --------------------------------------------------------------------------

    def rejected(self, attempt: Attempt, status: Status) -> Failed:
        """Reserve, Permit or WaitOnPermit said no: a FitError over the one node, or an error."""
        if not status.is_rejected:
            return Failed(status, status.message)
        attempt.diagnosis.blame(status)
        reasons = dict.fromkeys(status.reasons, 1)
        message = fit_error_message(1, reasons)
        return Failed(Status(status.code, (message,)), message, fit_error=True)

    async def fail_cycle(self, attempt: Attempt, failed: Failed) -> None:
        """The scheduling cycle failed. No AssignedPod/Delete event: nobody saw the pod on the node."""
        if attempt.assumed:
            await self._unreserve(attempt, failed.message)
            self._forget(attempt.pod.on_node(attempt.node_name))
        self._failures.handle(attempt.queued, self._ended_with(attempt, failed))

    async def fail_binding(self, attempt: Attempt, failed: Failed) -> None:
        """The binding cycle failed: other pods may fit now, and are told."""
        await self._unreserve(attempt, failed.message)
        assumed = attempt.pod.on_node(attempt.node_name)
        self._failures.handle_binding_failure(attempt.queued, assumed, self._ended_with(attempt, failed))

    async def abort(self, attempt: Attempt) -> None:
        """The pod is gone or preempted, or the host stops: undo, and end its cycle everywhere."""
        log.info("pod.aborted", pod=attempt.pod.key, node=attempt.node_name, reason=attempt.aborted)
        nominated = None if attempt.aborted in (HOST_STOPS, POD_DELETED) else ""
        failed = Failed(Status.error(attempt.aborted), attempt.aborted, nominated=nominated)
        if attempt.assumed:
            await self.fail_binding(attempt, failed)
        else:
            self._failures.handle(attempt.queued, self._ended_with(attempt, failed))

    async def _unreserve(self, attempt: Attempt, reason: str) -> None:
        attempt.framework.waiting_pods.discard(attempt.pod.uid)
        await attempt.framework.run_unreserve(attempt.cycle, attempt.node_name, reason)

    def _forget(self, assumed: Pod) -> None:
        if self._cache.is_assumed(assumed.uid):
            self._cache.forget(assumed)

    def _ended_with(self, attempt: Attempt, failed: Failed) -> Failure:
        """Record the attempt, release its cycle, and say what the queue is to know."""
        rejected = failed.status.is_rejected
        self._record(attempt, Outcome.UNSCHEDULABLE if rejected else Outcome.ERROR, failed.message)
        if attempt.has_cycle:
            how = CycleOutcome.ABORTED if attempt.aborted else CycleOutcome.UNSCHEDULABLE
            attempt.framework.end_cycle(attempt.cycle, how)
        diagnosis = attempt.diagnosis
        log.info(
            "pod.unschedulable" if rejected else "pod.failed",
            pod=attempt.pod.key,
            attempt=diagnosis.attempt,
            message=failed.message,
            plugins=sorted(diagnosis.unschedulable_plugins),
        )
        return Failure(
            status=failed.status,
            message=failed.message,
            nominated=failed.nominated,
            unschedulable_plugins=frozenset(diagnosis.unschedulable_plugins if failed.fit_error else ()),
            pending_plugins=frozenset(diagnosis.pending_plugins if failed.fit_error else ()),
        )

    def skip_deleting(self, pod: Pod) -> None:
        """A popped pod that is on its way out: say so, and let it go."""
        note = f"skip schedule deleting pod: {pod.key}"
        self._status.event_soon(pod, "Warning", "FailedScheduling", "Scheduling", note)

    def _record(self, attempt: Attempt, outcome: Outcome, message: str) -> None:
        diagnosis = attempt.diagnosis
        diagnosis.outcome, diagnosis.message = outcome, message
        diagnosis.duration_ms = round(1000 * (time.perf_counter() - attempt.started_s), 3)
        if attempt.has_cycle:
            context = attempt.cycle.context
            diagnosis.notes.extend(context.notes)
            diagnosis.timings_s = context.timings_s
        self._diagnoses.add(diagnosis)
