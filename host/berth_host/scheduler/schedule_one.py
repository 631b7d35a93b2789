"""One pod's scheduling cycle, from the queue to the start of its binding cycle. READ THIS FIRST (host).

    pop -> snapshot -> PreFilter, Filter [PostFilter] -> PreScore, Score, Normalize -> assume
        -> Reserve -> Permit -> a task for the binding cycle (`binding_cycle`)
    any failure -> Unreserve, forget -> `failure` puts the pod back into the queue

Cycles are serial: the next pod is popped when this one has its node or has failed. The snapshot moves only
at the start of a cycle and stands still until Permit has returned, also when events arrive; the
cache, which assume and forget write to, moves at once.
Called by `app`, which runs `Scheduler.run` as the host's main task.
Source: kube-scheduler `schedule_one.go` (ScheduleOne, schedulingCycle, schedulingAlgorithm), v1.36.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from berth_sdk.results import PostFilterResult
from berth_sdk.status import Code, Status

from berth_host.cache.cache import Cache
from berth_host.cache.snapshot import Snapshot
from berth_host.errors.plugins import CycleRestartError
from berth_host.errors.state import CacheError, InvariantError
from berth_host.explain.diagnosis import Diagnosis
from berth_host.explain.fit_error import NO_NODES, fit_error_message
from berth_host.explain.slot_names import SlotNames
from berth_host.framework.cycle import Cycle
from berth_host.framework.framework import Framework
from berth_host.log import get_logger
from berth_host.model.clock import Clock
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.rpc.cycle import CycleContext, CycleEnd
from berth_host.scheduler.algorithm import Algorithm, Feasible, ScheduleResult, SearchStart
from berth_host.scheduler.attempt import CUT_OFF, HOST_STOPS, Attempt, Failed, record_scores, unexpected
from berth_host.scheduler.binding_cycle import BindingCycle
from berth_host.scheduler.nominations import Nominations

log = get_logger()


class EvictVictims(Protocol):
    """Executes a nomination (`evictions`)."""

    def nominate(self, cycle: Cycle, plugin: str, result: PostFilterResult) -> str | None:
        """The node to nominate (None: leave the nomination as it is); the victims leave in the background,
        after the other changes that PostFilter plugins ask for.
        """
        ...

    def change(self, cycle: Cycle) -> None:
        """Apply the changes that the cycle's PostFilter plugins ask for, in the background."""
        ...


@dataclass(frozen=True, slots=True)
class Profile:
    """One schedulerName: its plugins and how it searches."""

    framework: Framework
    algorithm: Algorithm
    cycle_budget_s: float


class Scheduler:
    """Owns the loop. All parts live on the same asyncio loop and need no locks."""

    def __init__(
        self,
        profiles: dict[str, Profile],
        queue: SchedulingQueue,
        cache: Cache,
        snapshot: Snapshot,
        binding: BindingCycle,
        evictions: EvictVictims,
        clock: Clock,
    ) -> None:
        self.profiles = profiles
        self.queue = queue
        self.cache = cache
        self.snapshot = snapshot
        self.binding = binding
        self.evictions = evictions
        self.clock = clock
        self.search = SearchStart()
        self.nominations = Nominations(queue.nominated_columns)
        self._slot_names = SlotNames()
        self._stopping = False
        self._life = secrets.token_hex(10)
        self._cycle_count = 0
        self.before_pop: Callable[[], Awaitable[None]] | None = None
        """Awaited before each pop; a simulation waits in it for the effects of the earlier attempts."""
        self._turns = 0
        """Counts the pops after which every task that waited for the loop has had its turn."""
        self.in_cycle: Attempt | None = None
        """The attempt whose scheduling cycle runs now: the snapshot must not move."""

    async def run(self) -> None:
        """Schedule pods until `stop`; then cancel the task, which may wait for a pod or for a plugin."""
        loop = asyncio.get_running_loop()
        while not self._stopping:
            await self.queue.ready()
            if self.before_pop is not None:
                await self.before_pop()
            queued = self.queue.pop()
            turns = self._turns
            loop.call_soon(self._count_turn)
            if queued is not None:
                await self.schedule_one(queued)
            # Watches, binding tasks and answers get one turn of the loop per pod. Best is the one in which a
            # plugin elsewhere was waited for: in there their work costs no time of its own.
            if self._turns == turns:
                await asyncio.sleep(0)

    def _count_turn(self) -> None:
        self._turns += 1

    def stop_popping(self) -> None:
        """No pod is popped any more; a cycle under way ends as it would."""
        self._stopping = True

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    def stop(self) -> None:
        """Pop no more pods; a cycle under way undoes its steps when it is cancelled."""
        self._stopping = True
        if self.in_cycle is not None:
            self.in_cycle.aborted = HOST_STOPS

    async def schedule_one(self, queued: QueuedPodInfo) -> None:
        """One attempt for one popped pod; every end of it has put the pod somewhere."""
        pod = queued.pod
        profile = self.profiles.get(pod.scheduler_name)
        if profile is None or pod.terminating or self.cache.is_assumed(pod.uid):
            self._drop(queued, profile)
            return
        attempt = Attempt(queued, profile.framework, self._diagnose(queued), time.perf_counter())
        self.in_cycle = attempt
        try:
            await self._scheduling_cycle(attempt, profile)
        except Failed as failure:
            await self.binding.fail_cycle(attempt, failure)
        except asyncio.CancelledError:
            if attempt.aborted:
                # The pod was deleted, or the host stops, while a plugin was asked: that call is cancelled.
                await self.binding.abort(attempt)
            elif _current_task().cancelling():
                raise
            else:
                # Nobody cancelled the loop: a plugin let a cancellation of its own escape.
                await self.binding.fail_cycle(attempt, Failed(Status.error(CUT_OFF), CUT_OFF))
        except InvariantError:
            raise
        except Exception as err:
            # The loop's top: after any error this pod is tried again, and the next pod has its turn.
            log.error("task.failed", pod=pod.key, exc_info=err)
            await self.binding.fail_cycle(attempt, unexpected(err))
        finally:
            self.snapshot.release()
            self.in_cycle = None

    async def _scheduling_cycle(self, attempt: Attempt, profile: Profile) -> None:
        # The pod's deletion cancels the call in these lines, and the loop goes on with the next pod.
        task = attempt.task = _current_task()
        try:
            await self._choose_and_reserve(attempt, profile)
        finally:
            attempt.task = None
            for _ in range(attempt.cancellations):
                task.uncancel()
        self.binding.start(attempt)

    async def _choose_and_reserve(self, attempt: Attempt, profile: Profile) -> None:
        try:
            try:
                result = await self._choose(attempt, profile, restarted=False)
            except CycleRestartError as restart:
                log.info("cycle.restarted", pod=attempt.pod.key, plugin=restart.plugin, reason=restart.reason)
                attempt.framework.end_cycle(attempt.cycle, CycleEnd.ABORTED)
                result = await self._choose(attempt, profile, restarted=True)
            finally:
                self.nominations.release()
            await self._assume_and_reserve(attempt, result)
        finally:
            attempt.diagnosis.cycle_ms = 1000 * (time.perf_counter() - attempt.started_s)

    # --- choosing a node -----------------------------------------------------------------------

    async def _choose(self, attempt: Attempt, profile: Profile, *, restarted: bool) -> ScheduleResult:
        """The node for the pod; raises Failed where there is none."""
        begun_s = time.perf_counter()
        self._begin(attempt, profile, restarted=restarted)
        cycle, diagnosis = attempt.cycle, attempt.diagnosis
        if not len(cycle.nodes):
            raise Failed(Status.unresolvable(NO_NODES), NO_NODES)
        cycle.nominated = self.nominations.counted_for(attempt.pod, cycle.nodes)
        feasible = await profile.algorithm.find_feasible(cycle, cycle.nominated, self.search)
        diagnosis.feasible_count = len(feasible.rows)
        diagnosis.evaluated_count = feasible.visited_count
        if not feasible.status.is_success and not feasible.status.is_rejected:
            raise Failed(feasible.status, feasible.status.message)
        if not len(feasible.rows):
            raise await self._no_fit(attempt, feasible)
        result = await profile.algorithm.prioritize(cycle, feasible)
        if isinstance(result, Status):
            raise Failed(result, result.message)
        diagnosis.algorithm_ms = 1000 * (time.perf_counter() - begun_s)
        record_scores(diagnosis, result)
        return result

    def _begin(self, attempt: Attempt, profile: Profile, *, restarted: bool) -> None:
        """Bring the snapshot up to date, and pin it for this cycle."""
        self.snapshot.release()
        self.snapshot.update(self.cache)
        self.snapshot.hold()
        nodes = self.snapshot.nodes
        self.search.order = self.snapshot.order
        context = CycleContext(
            attempt.diagnosis.cycle_id if not restarted else self._next_id(),
            attempt.pod,
            attempt.pod.scheduler_name,
            version=self.snapshot.version,
            budget_s=profile.cycle_budget_s,
            restarted=restarted,
        )
        for plugin, why in attempt.queued.entered_without.items():
            context.leave_out(plugin, "PreEnqueue", why)
        attempt.diagnosis.cycle_id = context.cycle_id
        attempt.diagnosis.node_count = len(nodes)
        attempt.cycle = Cycle(context, nodes)

    async def _no_fit(self, attempt: Attempt, feasible: Feasible) -> Failed:
        """Ask PostFilter, and make the FitError; this attempt has failed even if PostFilter helps."""
        diagnosis, statuses = attempt.diagnosis, feasible.statuses
        attempt.cycle.statuses = statuses
        counted = statuses.group_counts()
        diagnosis.record_rejections(statuses, counted, self._slot_names)
        diagnosis.pre_filter_message = feasible.pre_filter_message
        for status, rows in feasible.pre_filter.rejected_rows(statuses.table):
            diagnosis.record_rejection(statuses.table, status, rows)
        nominated: str | None = ""
        if attempt.framework.has_post_filters:
            nominated = await self._post_filter(attempt, feasible)
        message = fit_error_message(
            diagnosis.node_count,
            statuses.reasons(counted),
            pre_filter_message=feasible.pre_filter_message,
            post_filter_message=diagnosis.post_filter_message,
        )
        return Failed(Status.unschedulable(message), message, nominated=nominated, fit_error=True)

    async def _post_filter(self, attempt: Attempt, feasible: Feasible) -> str | None:
        """The node to nominate, "" to clear the nomination, None to leave it as it is."""
        plugin, result = await attempt.framework.run_post_filter(
            attempt.cycle, feasible.statuses.rejections()
        )
        attempt.diagnosis.post_filter_message = result.status.message
        if result.status.is_success and result.nominated_node:
            attempt.diagnosis.nominated_node = result.nominated_node
            return self.evictions.nominate(attempt.cycle, plugin, result)
        self.evictions.change(attempt.cycle)
        return "" if result.clear_nomination else None

    # --- taking the node -----------------------------------------------------------------------

    async def _assume_and_reserve(self, attempt: Attempt, result: ScheduleResult) -> None:
        """From here on every failure undoes the attempt; see `BindingCycle.fail_cycle`."""
        attempt.node_name = attempt.diagnosis.node_name = result.node_name
        try:
            self.cache.assume(attempt.pod.on_node(result.node_name))
        except CacheError as err:
            raise Failed(Status.error(str(err)), str(err)) from err
        attempt.assumed = True
        self.queue.delete_nomination(attempt.pod)
        attempt.cycle.context.reserved = True
        status = await attempt.framework.run_reserve(attempt.cycle, result.node_name)
        if status.is_success:
            status = await attempt.framework.run_permit(attempt.cycle, result.node_name)
        if status.is_success or status.code is Code.WAIT:
            self.queue.activate_named(attempt.take_pods_to_activate())
            return
        raise self.binding.rejected(attempt, status)

    # --- the edges -----------------------------------------------------------------------------

    def _diagnose(self, queued: QueuedPodInfo) -> Diagnosis:
        first_us = queued.initial_attempt_timestamp_us
        return Diagnosis(
            pod=queued.pod,
            profile=queued.pod.scheduler_name,
            cycle_id=self._next_id(),
            attempt=queued.attempts,
            started_at_s=self.clock.now_s(),
            first_tried_at_s=None if first_us is None else first_us / 1e6,
            after_flush=queued.was_flushed_from_unschedulable,
            history=queued.history,
        )

    def _next_id(self) -> str:
        """32 hexadecimal digits that no other cycle has, of this host or of another one."""
        self._cycle_count += 1
        return f"{self._life}{self._cycle_count:012x}"

    def _drop(self, queued: QueuedPodInfo, profile: Profile | None) -> None:
        """Drop a pod that is not to be scheduled: unknown profile, being deleted, or assumed already."""
        pod = queued.pod
        self.queue.done(pod.uid)
        if profile is not None and pod.terminating:
            self.binding.skip_deleting(pod)
        log.info("pod.dropped", pod=pod.key, known_profile=profile is not None, terminating=pod.terminating)


def _current_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    if task is None:
        raise InvariantError("a cycle runs in a task")
    return task
