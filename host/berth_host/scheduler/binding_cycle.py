"""Binding cycles: from Permit to PostBind, one task per pod. Thousands may wait at once.

    PreBindPreFlight -> WaitOnPermit -> queue.done -> PreBind -> a last look at the node -> Bind -> PostBind
    any failure -> Unreserve, forget -> `failure` puts the pod back into the queue

`schedule_one` starts binding cycles, and also hands over the failures of its own cycles: all attempts are
undone here. If the outcome of a Binding is unknown, the host reads the pod until the cluster answers
(`readback`). Meanwhile the pod counts as assumed on its node, and its binding cycle is never cancelled.

The last look: if others took room on the node after the snapshot in which it was chosen (another scheduler
bound a pod, a pod was resized, the node offers less), and the pod no longer fits beside the pods that are
bound or whose Binding was sent, the pod goes back to the queue. Only what the profile's NodeResourcesFit and
NodePorts judge counts. kube-scheduler binds the pod, and the kubelet refuses it.
Source: kube-scheduler `schedule_one.go` (bindingCycle, handleBindingCycleError), v1.36.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.results import Cancellation
from berth_sdk.status import SUCCESS, Code, Status

from berth_host.cache.cache import Cache
from berth_host.cache.room import PORTS_TAKEN, exceeds, lacking
from berth_host.errors.cluster import ClusterError, ConflictError
from berth_host.errors.state import InvariantError
from berth_host.explain.diagnosis import Diagnoses, Outcome
from berth_host.extenders.client import ExtenderName
from berth_host.extenders.extenders import NO_EXTENDERS, Extenders
from berth_host.log import get_logger
from berth_host.metrics.series import instant_s
from berth_host.model.fate import Fate
from berth_host.queue.queued_pod import PRE_BIND, WAITING, QueuedPodInfo
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.rpc.cycle import POD_DELETED, CycleEnd
from berth_host.rpc.relay import LOST
from berth_host.scheduler.attempt import CUT_OFF, HOST_STOPS, Attempt, Failed, unexpected
from berth_host.scheduler.failure import Failure, FailureHandler
from berth_host.scheduler.pod_status import PodStatusWriter
from berth_host.scheduler.readback import ReadBack
from berth_host.scheduler.repeating import Binder
from berth_host.scheduler.undoing import Undoing, is_cancelled_from_outside
from berth_host.scheduler.until import all_ended

log = get_logger()
LEFT_OUT: Final = "PluginLeftOut"
"""The reason of the Kubernetes Event for a pod that was placed without the answer of a plugin."""


class BindingCycle(Undoing):
    """All binding cycles of the host. `diagnoses` keeps every attempt, bound or not. `filled_count`: the
    number of pods that went back because others had filled their node.

    `undecided`: assumed pods whose Binding had no answer in time when this host, or the host before it, was
    stopped. Only the cluster can tell whether they are bound.
    """

    def __init__(
        self,
        queue: SchedulingQueue,
        cache: Cache,
        binder: Binder,
        failures: FailureHandler,
        status: PodStatusWriter,
        diagnoses: Diagnoses,
        read_back: ReadBack,
        fate: Fate,
        extenders: Extenders = NO_EXTENDERS,
        *,
        binds_for_extenders: bool = False,
        looks_before_binding: bool = True,
    ) -> None:
        """Make the binding cycles. `binds_for_extenders`: the host posts the Bindings that extenders claim to
        have posted, because they cannot reach the cluster, as in a simulation. `looks_before_binding`: take
        the last look.
        """
        self._queue = queue
        self._cache = cache
        self._binder = binder
        self._failures = failures
        self._status = status
        self._diagnoses = diagnoses
        self._read_back = read_back
        self._fate = fate
        self._extenders = extenders
        self._binds_for_extenders = binds_for_extenders
        self._looks_before_binding = looks_before_binding
        self._is_draining = False
        self._running: dict[str, Attempt] = {}
        self.tasks: set[asyncio.Future[None]] = set()
        self.bound_count = 0
        self.filled_count = 0
        self.undecided: list[Pod] = []

    def __len__(self) -> int:
        """Return the number of binding cycles under way."""
        return len(self.tasks)

    @property
    def active_count(self) -> int:
        """The number of binding cycles that work or wait for a call. The others wait for time or for a
        decision.
        """
        return sum(1 for attempt in self._running.values() if not attempt.idle)

    def attempts(self) -> list[Attempt]:
        """Return the binding cycles under way."""
        return list(self._running.values())

    def queued(self) -> list[QueuedPodInfo]:
        """Return the pods of the binding cycles under way."""
        return [attempt.queued for attempt in self._running.values()]

    def start(self, attempt: Attempt) -> None:
        """Start the pod's binding cycle as a task of its own, beside the scheduling loop."""
        attempt.binding = True
        task = asyncio.get_running_loop().create_task(self._run(attempt))
        self._running[attempt.pod.uid] = attempt
        self.tasks.add(task)
        task.add_done_callback(partial(self._ended, attempt))

    def abort_pod(self, uid: str) -> bool:
        """Tell the binding cycle of a pod that it was deleted. Return False if it has none.

        PreBind plugins between two rounds are asked a last time, and their answer ends the cycle. Every other
        call that the cycle waits for is cancelled.
        """
        attempt = self._running.get(uid)
        if attempt is None:
            return False
        if not (attempt.in_pre_bind and attempt.tell_pod_deleted()):
            attempt.abort(POD_DELETED)
        return True

    async def ended(self, uid: str) -> None:
        """Wait until the binding cycle of a pod has ended, undone or not; return at once without one."""
        attempt = self._running.get(uid)
        if attempt is not None and attempt.task is not None:
            await asyncio.wait({attempt.task})

    def preempt_pod(self, uid: str, reason: str) -> bool:
        """Abort the binding cycle of a pod during PreBind; the pod goes back to the queue. False: too
        late.
        """
        attempt = self._running.get(uid)
        if attempt is None or not attempt.in_pre_bind:
            return False
        attempt.in_pre_bind = False
        attempt.abort(reason)
        return True

    def cancel(self, uid: str, cycle_id: str, reason: str) -> Cancellation:
        """Abort the binding cycle of a pod during PreBind, because a plugin asked for it.

        `cycle_id`: the cycle to abort. Empty: the current one.
        """
        attempt = self._running.get(uid)
        if attempt is not None and attempt.in_pre_bind and cycle_id not in ("", attempt.cycle_id):
            return Cancellation.STALE_CYCLE
        return Cancellation.CANCELLED if self.preempt_pod(uid, reason) else Cancellation.NOT_IN_PRE_BIND

    def adopt(self, assumed: Pod) -> None:
        """Find out where an assumed pod is whose Binding the previous host could not follow."""
        # If this host stops before the cluster has answered, the next host must ask on.
        self.undecided.append(assumed)
        task = asyncio.get_running_loop().create_task(self._decide(assumed))
        self.tasks.add(task)
        task.add_done_callback(self._decided)

    async def _decide(self, assumed: Pod) -> None:
        node_name = await self._read_back.node_of(assumed)
        self.undecided.remove(assumed)
        if node_name == assumed.node_name:
            return  # the watch confirms it
        self._cache.forget_if_assumed(assumed)
        self._failures.put_back(assumed)

    def _decided(self, task: asyncio.Future[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (err := task.exception()) is not None:
            self._fate.fail(err)

    async def drain(self, timeout_s: float) -> bool:
        """Abort the binding cycles that wait at Permit, and wait until the others have ended.

        Returns True if all ended within `timeout_s` (seconds of real time).
        """
        self._is_draining = True
        for attempt in list(self._running.values()):
            if attempt.framework.waiting_pods.is_waiting(attempt.pod.uid):
                attempt.abort(HOST_STOPS)
        return await all_ended(self.tasks, timeout_s)

    async def stop(self, timeout_s: float) -> None:
        """Cancel every binding cycle and wait until each has undone its work.

        A cycle whose Binding was sent has `timeout_s` (seconds of real time) to get the outcome. After that
        its pod is `undecided`, and nothing of the cycle is undone, because the pod may be bound.
        """
        self._is_draining = True
        for attempt in list(self._running.values()):
            attempt.abort(HOST_STOPS)
        if await all_ended(self.tasks, timeout_s):
            return
        for task in self.tasks:
            task.cancel()
        await all_ended(self.tasks, timeout_s)

    def _ended(self, attempt: Attempt, task: asyncio.Future[None]) -> None:
        self.tasks.discard(task)
        if self._running.get(attempt.pod.uid) is attempt:
            del self._running[attempt.pod.uid]
        if not task.cancelled() and (err := task.exception()) is not None:
            log.error("task.failed", pod=attempt.pod.key, exc_info=err)
            if isinstance(err, InvariantError):
                self._fate.fail(err)

    # --- the way forward -----------------------------------------------------------------------

    async def _run(self, attempt: Attempt) -> None:
        # Only the running task can be cancelled: a task cancelled before its first step would undo nothing.
        attempt.task = asyncio.current_task()
        try:
            if attempt.aborted:
                raise Failed(Status.error(attempt.aborted), attempt.aborted)
            await self._prepare(attempt)
            await self._bind(attempt)
        except Failed as failure:
            if attempt.aborted:
                await self.abort(attempt)
            else:
                await self.fail_binding(attempt, failure)
        except asyncio.CancelledError:
            if attempt.in_bind:
                self.undecided.append(attempt.pod.on_node(attempt.node_name))
                log.error("pod.bind_unknown", pod=attempt.pod.key, node=attempt.node_name)
                raise
            if attempt.aborted:
                await self.abort(attempt)
            elif is_cancelled_from_outside():
                raise
            else:
                # The task itself was not cancelled: a plugin raised CancelledError.
                await self.fail_binding(attempt, Failed(Status.error(CUT_OFF), CUT_OFF))
        except InvariantError:
            raise
        except Exception as err:
            # No error may lose a pod: the attempt is undone, and the pod goes back to the queue.
            log.error("task.failed", pod=attempt.pod.key, exc_info=err)
            await self.fail_binding(attempt, unexpected(err))
        else:
            await self._finish(attempt)

    async def _prepare(self, attempt: Attempt) -> None:
        """Run PreBindPreFlight, wait for Permit, and run PreBind. Raises Failed."""
        framework, node_name = attempt.framework, attempt.node_name
        # The write of an earlier failure, which may be under way, must not come after the Binding or the
        # nomination: the condition would say for ever that the pod has no node.
        if self._status.pending_count:
            await self._status.settled(attempt.pod)
        status, will_act = await framework.run_pre_bind_pre_flight(attempt, node_name)
        if not status.is_success:
            raise Failed(status, status.message)
        waits = framework.waiting_pods.is_waiting(attempt.pod.uid)
        if waits and self._is_draining:
            raise Failed(Status.error(HOST_STOPS), HOST_STOPS, nominated=None)
        if will_act or waits:
            attempt.diagnosis.outcome = Outcome.WAITING
            plugins = framework.waiting_pods.held_by(attempt.pod.uid) if waits else ()
            self._queue.note(attempt.queued, WAITING if waits else PRE_BIND, ", ".join(plugins) or node_name)
            await self._status.nominate(attempt.pod, node_name)
        status = await framework.wait_on_permit(attempt) if waits else SUCCESS
        if not status.is_success:
            raise self.rejected(attempt, status)
        # From here on a failed pod goes to its backoff: the queue no longer keeps the events of its attempt.
        self._queue.done(attempt.pod.uid)
        if will_act:
            if waits:
                self._queue.note(attempt.queued, PRE_BIND, node_name)
            attempt.in_pre_bind = True
            status = await framework.run_pre_bind(attempt, node_name)
            attempt.in_pre_bind = False
            if attempt.aborted:
                # A PreBind plugin in this task aborted the attempt; a task cannot be cancelled from inside
                # itself.
                raise Failed(Status.error(attempt.aborted), attempt.aborted)
            if not status.is_success:
                # The pod is requeued when a failed plugin is available again. A plugin that rejected the pod
                # is not recorded.
                failed_plugin = "" if status.is_rejected else status.plugin
                raise Failed(Status(status.code, status.reasons, failed_plugin), status.message)
        if attempt.lost:
            status = Status.error(f'plugin "{attempt.lost}" {LOST}')
            raise Failed(status, status.message)

    async def _bind(self, attempt: Attempt) -> None:
        """Run Bind, then post the Binding, or check that a plugin bound the pod. Raises Failed.

        An abort from here on waits until the host has read from the cluster whether the pod is bound.
        """
        self._look_again(attempt)
        attempt.in_bind = True
        status, is_known = await self._ask_to_bind(attempt)
        if is_known and status.is_success:
            return
        if not is_known and await self._is_bound_here(attempt):
            return
        attempt.in_bind = False
        raise Failed(Status(status.code, status.reasons), status.message)

    def note_room(self, attempt: Attempt, chosen_at: int) -> None:
        """Note the state of the node on which the attempt's pod was assumed, for the last look.

        `chosen_at`: the generation that the cycle's snapshot has of the cache. A cycle may take seconds, in
        which others may fill the node.
        """
        info = self._cache.node_info(attempt.node_name)
        if info is None or not self._looks_before_binding:
            return
        attempt.chosen_at = chosen_at
        if info.taken_generation <= chosen_at and exceeds(info.node_offers, info.requested, len(info.pods)):
            attempt.lacked = lacking(info, attempt.pod, lambda _: True, ports=False)

    def _look_again(self, attempt: Attempt) -> None:
        """Raise Failed if others took the pod's room on the node after it was chosen."""
        info = self._cache.node_info(attempt.node_name)
        if info is None or info.taken_generation <= attempt.chosen_at or not self._looks_before_binding:
            return
        judges = {one.name for one in attempt.framework.plugins_at(ExtensionPoint.FILTER)}
        found = lacking(info, attempt.pod, self._is_sure, ports="NodePorts" in judges)
        lost = [
            reason
            for reason in found
            if reason not in attempt.lacked and (reason == PORTS_TAKEN or "NodeResourcesFit" in judges)
        ]
        if not lost:
            return
        self.filled_count += 1
        message = (
            f"node {attempt.node_name} was filled by others after it was chosen: {', '.join(lost)};"
            " the pod is tried again"
        )
        log.info("pod.node_filled", pod=attempt.pod.key, node=attempt.node_name, lacks=lost)
        raise Failed(Status.unschedulable(message), message)

    def _is_sure(self, pod: Pod) -> bool:
        """Return False for a pod of a binding cycle that has sent no Binding: it looks for itself later."""
        attempt = self._running.get(pod.uid)
        return attempt is None or attempt.in_bind or not self._cache.is_assumed(pod.uid)

    async def _is_bound_here(self, attempt: Attempt) -> bool:
        return await self._read_back.node_of(attempt.pod, attempt) == attempt.node_name

    async def _ask_to_bind(self, attempt: Attempt) -> tuple[Status, bool]:
        """Return the status of Bind, and whether the outcome is known.

        If the outcome is not known, the status applies only if the pod turns out not to be bound.
        """
        try:
            if self._extenders:
                bound = await self._extenders.bind(attempt, attempt.node_name)
                if bound is not None:
                    return await self._bound_by_extender(attempt, *bound)
            plugin, answer = await attempt.framework.run_bind(attempt, attempt.node_name)
        except asyncio.CancelledError:
            if is_cancelled_from_outside():
                raise
            return Status.error(CUT_OFF), False
        status = answer.status
        if status.is_success and answer.host_binds:
            return await self._post(attempt, plugin)
        if status.is_success:
            return await self._confirm(attempt, plugin), True
        if status.code is Code.SKIP and not status.message:
            return Status(status.code, ("every Bind plugin skipped the pod",)), True
        return status, not attempt.part(plugin).is_bind_unknown

    async def _bound_by_extender(
        self, attempt: Attempt, extender: str, status: Status, is_known: bool
    ) -> tuple[Status, bool]:
        """Return the status of a Bind that an extender did, and whether the outcome is known."""
        if not status.is_success:
            return status, is_known
        if self._binds_for_extenders:
            return await self._post(attempt, extender)
        return await self._confirm(attempt, extender), True

    async def _confirm(self, attempt: Attempt, plugin: str) -> Status:
        """Record the Scheduled event after a plugin answered that it bound the pod, and read the pod back.

        Returns SUCCESS, or an error if the pod is not on the node.
        """
        self._tell(attempt)
        found = await self._read_back.comes_to(attempt.pod, attempt)
        if found == attempt.node_name:
            return SUCCESS
        untrue = f"it answered success, but the pod is not bound to {attempt.node_name}"
        if found is not None:  # a deleted pod may have been bound
            attempt.framework.bind_was_untrue(attempt, plugin, untrue)
        if isinstance(plugin, ExtenderName):
            return Status.error(
                f"{plugin} answered that it bound the pod, but the pod is not on {attempt.node_name}"
            )
        return Status.error(f'running Bind plugin "{plugin}": {untrue}')

    async def _post(self, attempt: Attempt, plugin: str) -> tuple[Status, bool]:
        try:
            await self._binder.bind(attempt.pod.ref, attempt.node_name)
        except ClusterError as err:
            # A conflict is ambiguous too: an earlier try of this host may have bound the pod.
            is_known = err.outcome_known and not isinstance(err, ConflictError)
            return Status.error(f'running Bind plugin "{plugin}": {err}'), is_known
        except InvariantError:
            raise
        except Exception as err:
            log.error("task.failed", pod=attempt.pod.key, exc_info=err)
            return Status.error(f'running Bind plugin "{plugin}": {type(err).__name__}: {err}'), False
        return SUCCESS, True

    async def _finish(self, attempt: Attempt) -> None:
        pod, node_name = attempt.pod, attempt.node_name
        self.bound_count += 1
        self._record(attempt, Outcome.BOUND, "")
        log.debug(
            "pod.bound",
            pod=pod.key,
            node=node_name,
            attempt=attempt.diagnosis.attempt,
            feasible_count=attempt.diagnosis.feasible_count,
            duration_ms=attempt.diagnosis.duration_ms,
        )
        try:
            self._tell(attempt)
            await attempt.framework.run_post_bind(attempt, node_name)
        except InvariantError:
            raise
        except Exception as err:
            # The pod is bound: an error after that does not fail the attempt.
            log.error("task.failed", pod=pod.key, exc_info=err)
        finally:
            attempt.framework.end_cycle(attempt, CycleEnd.BOUND)
            self._queue.activate_named(attempt.take_pods_to_activate())

    def _tell(self, attempt: Attempt) -> None:
        """Record the Scheduled event of a pod, and its PluginLeftOut events, at most once per attempt."""
        if not attempt.is_told:
            attempt.is_told = True
            note = f"Successfully assigned {attempt.pod.key} to {attempt.node_name}"
            self._status.event(attempt.pod, "Normal", "Scheduled", "Binding", note)
            for omission in attempt.omissions:
                self._status.event(attempt.pod, "Warning", LEFT_OUT, "Scheduling", f"placed {omission}")

    # --- the way back --------------------------------------------------------------------------

    async def fail_cycle(self, attempt: Attempt, failed: Failed) -> None:
        """Undo a failed scheduling cycle and put the pod back into the queue.

        No AssignedPod/Delete cluster event follows, because no other pod saw this one on the node.
        """
        if attempt.assumed:
            await self.unreserve(attempt, failed.message)
            self._cache.forget_if_assumed(attempt.pod.on_node(attempt.node_name))
        self._failures.handle(attempt.queued, self._ended_with(attempt, failed))

    async def fail_binding(self, attempt: Attempt, failed: Failed) -> None:
        """Undo a failed binding cycle, put the pod back, and requeue pods that the freed room may help."""
        await self.unreserve(attempt, failed.message)
        assumed = attempt.pod.on_node(attempt.node_name)
        self._failures.handle_binding_failure(attempt.queued, assumed, self._ended_with(attempt, failed))

    async def abort(self, attempt: Attempt) -> None:
        """Undo the attempt of a pod that was deleted or preempted, or whose host stops, and end its cycle."""
        log.info("pod.aborted", pod=attempt.pod.key, node=attempt.node_name, reason=attempt.aborted)
        nominated = None if attempt.aborted in (HOST_STOPS, POD_DELETED) else ""
        failed = Failed(Status.error(attempt.aborted), attempt.aborted, nominated=nominated)
        if attempt.assumed:
            await self.fail_binding(attempt, failed)
        else:
            self._failures.handle(attempt.queued, self._ended_with(attempt, failed))

    def _ended_with(self, attempt: Attempt, failed: Failed) -> Failure:
        """Record the failed attempt, end its cycle at the plugins, and return the failure for the queue."""
        rejected = failed.status.is_rejected
        self._record(attempt, Outcome.UNSCHEDULABLE if rejected else Outcome.ERROR, failed.message)
        is_over = attempt.aborted or attempt.pod_deleted
        attempt.framework.end_cycle(attempt, CycleEnd.ABORTED if is_over else CycleEnd.UNSCHEDULABLE)
        diagnosis = attempt.diagnosis
        said: dict[str, Any] = {
            "pod": attempt.pod.key,
            "attempt": diagnosis.attempt,
            "message": failed.message,
            "plugins": sorted(diagnosis.unschedulable_plugins),
        }
        if rejected:
            # This line may come for every pod: at level info it would cost too much.
            log.debug("pod.unschedulable", **said)
        else:
            log.info("pod.failed", **said)
        return Failure(
            status=failed.status,
            message=failed.message,
            nominated=failed.nominated,
            unschedulable_plugins=frozenset(diagnosis.unschedulable_plugins if failed.fit_error else ()),
            pending_plugins=frozenset(diagnosis.pending_plugins if failed.fit_error else ()),
            cause=diagnosis.cause_of(failed.status),
        )

    def skip_deleting(self, pod: Pod) -> None:
        """Record the FailedScheduling event for a popped pod that is being deleted."""
        note = f"skip schedule deleting pod: {pod.key}"
        self._status.event(pod, "Warning", "FailedScheduling", "Scheduling", note)

    def _record(self, attempt: Attempt, outcome: Outcome, message: str) -> None:
        diagnosis = attempt.diagnosis
        diagnosis.outcome, diagnosis.message = outcome, message
        diagnosis.duration_ms = round(1000 * (instant_s() - attempt.started_s), 3)
        diagnosis.notes.extend(attempt.notes)
        diagnosis.timings_s = attempt.timings_s
        diagnosis.reserve_skipped = attempt.reserve_skipped
        self._diagnoses.add(diagnosis)
