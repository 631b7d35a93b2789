"""One pod's scheduling cycle, from the queue to the start of its binding cycle. READ THIS FIRST (host).

    pop -> snapshot -> PreFilter, Filter, extenders [PostFilter] -> PreScore, Score, Normalize, extenders
        -> assume -> Reserve -> Permit -> a task for the binding cycle (`binding_cycle`)
    any failure -> Unreserve, forget -> `failure` puts the pod back into the queue

Scheduling cycles are serial: the loop pops the next pod when the current pod has a node or has failed. The
snapshot changes only at the start of a cycle and stays unchanged until Permit has returned, even if events
arrive. The cache changes at once: assume, forget and events write to it. The steps are in `pod_steps`; read
`schedule_group` next: the cycle of a group of pods takes the same steps for each of its members.
`app` runs `Scheduler.run` as the host's main task.
Source: kube-scheduler `schedule_one.go` (ScheduleOne, schedulingCycle, schedulingAlgorithm), v1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import numpy as np
from berth_sdk.results import PostFilterResult
from berth_sdk.status import SUCCESS, Code, Status
from numpy.typing import NDArray

from berth_host.cache.cache import Cache
from berth_host.cache.snapshot import Snapshot
from berth_host.errors.plugins import CycleRestartError
from berth_host.explain.group_record import GroupRecords
from berth_host.extenders.extenders import NO_EXTENDERS, Extenders
from berth_host.framework.filtering import all_rows, filter_error
from berth_host.framework.framework import Framework
from berth_host.framework.score_table import ScoreTable
from berth_host.log import get_logger
from berth_host.metrics.group_metrics import GroupMetrics
from berth_host.metrics.series import instant_s
from berth_host.model.clock import Clock
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.pre_filter_outcome import PreFilterOutcome, rows_named
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.rpc.cycle import Cycle
from berth_host.scheduler import sampling
from berth_host.scheduler.attempt import HOST_STOPS, Attempt
from berth_host.scheduler.binding_cycle import BindingCycle
from berth_host.scheduler.chooser import Chooser
from berth_host.scheduler.gang_holds import GangHolds
from berth_host.scheduler.pod_steps import PodSteps
from berth_host.scheduler.preemption.group_evaluator import GroupEvaluator
from berth_host.scheduler.schedule_group import EvictForGroup, GroupScheduler, WriteCondition
from berth_host.scheduler.search import ScheduleResult, SearchStart, TiedNodes
from berth_host.scheduler.traced import TracedGroups, TracedSteps
from berth_host.tracing.tracing import Tracing

log = get_logger()

MOST_IN_TURN: Final = 8
"""The most pods that are popped in one turn of the asyncio loop."""
TURN_S: Final = 0.002
"""Seconds after the first pop of a turn, from which on no further pod is popped in it."""


class EvictVictims(EvictForGroup, Protocol):
    """Executes a nomination (`evictions`)."""

    def nominate(self, cycle: Cycle, plugin: str, result: PostFilterResult) -> str | None:
        """Evict the victims in the background, after the other changes that PostFilter plugins ask for.

        Returns the node to nominate. None: the nomination stays as it is.
        """
        ...


class Algorithm:
    """The part of a scheduling cycle that only reads: the search for the feasible nodes and the best of them.
    Can be used alone with a Framework and a snapshot built by hand.

    `percentage`: percentageOfNodesToScore of the profile. 1..99: a search samples; else it filters all nodes.
    """

    def __init__(
        self,
        framework: Framework,
        chooser: Chooser,
        percentage: int = 0,
        extenders: Extenders = NO_EXTENDERS,
    ) -> None:
        self.framework = framework
        self.extenders = extenders
        self.chooser = chooser
        self.percentage = percentage if 1 <= percentage <= 99 else 0

    async def find_feasible(self, cycle: Cycle, search: SearchStart) -> Status:
        """Run PreFilter, then Filter over the nodes that PreFilter left, and write the result into `cycle`.

        Returns SUCCESS (also if no node fits), PreFilter's rejection of the pod, or the error that ended the
        search.
        """
        table = cycle.nodes
        statuses = cycle.statuses = NodeStatuses(table)
        outcome = cycle.pre_filter = await self.framework.run_pre_filter(cycle)
        if not outcome.status.is_success:
            if outcome.status.is_rejected:
                statuses.absent = outcome.status
                _keep_left_out(outcome, statuses)
            return outcome.status
        if cycle.pod.nominated_node and await self._fits_nominated(cycle, statuses):
            return SUCCESS
        statuses.absent = outcome.absent
        rows = all_rows(table) if outcome.eligible is None else rows_named(table, outcome.eligible)
        passed = await self.filtered(cycle, statuses, rows)
        if self.percentage:
            order = sampling.rotated(search.in_order(rows), search.next_start)
            decides = self.has_scores or self.extenders.have_filters
            wanted = sampling.wanted_count(len(rows), self.percentage) if decides else 1
            cycle.feasible, cycle.visited_count = sampling.cut(statuses, order, passed, wanted)
            search.advance(cycle.visited_count, len(table))
            rows = order
        else:
            cycle.feasible, cycle.visited_count = passed, len(rows)
        error = filter_error(statuses, rows)
        if error is not None or not self.extenders.have_filters:
            return error or SUCCESS
        return await self._ask_extenders(cycle, statuses)

    def filtered(
        self, cycle: Cycle, statuses: NodeStatuses, rows: NDArray[np.intp]
    ) -> Awaitable[NDArray[np.intp]]:
        """Run Filter over `rows`; return the rows that passed. A question may ask about fewer nodes."""
        return self.framework.run_filter(cycle, statuses, rows, cycle.nominated)

    async def _ask_extenders(self, cycle: Cycle, statuses: NodeStatuses) -> Status:
        """Let the extenders filter the feasible nodes; return SUCCESS, or the error that ends the search."""
        passed, rejected = cycle.feasible, statuses.rejected_count
        cycle.feasible, status = await self.extenders.filter(cycle, statuses, passed)
        gone = len(passed) - len(cycle.feasible)
        cycle.is_shrunk = gone > 0
        # A node that an extender leaves out without a reason counts as not evaluated.
        cycle.visited_count += statuses.rejected_count + len(cycle.strays) - rejected - gone
        return status

    @property
    def has_scores(self) -> bool:
        """True if a Score plugin or an extender scores nodes."""
        return self.framework.has_scores or self.extenders.have_scores

    def nominated_row(self, cycle: Cycle) -> int | None:
        """Return the row of the node that the pod is nominated to. A question may leave that node out."""
        return cycle.nodes.position(cycle.pod.nominated_node)

    async def _fits_nominated(self, cycle: Cycle, statuses: NodeStatuses) -> bool:
        """Run Filter for the nominated node alone; return True if the pod fits there."""
        row = self.nominated_row(cycle)
        if row is None:
            return False
        rows = np.asarray([row], dtype=np.intp)
        passed = await self.framework.run_filter(cycle, statuses, rows, cycle.nominated)
        if len(passed):
            eligible = cycle.pre_filter.eligible
            if eligible is not None and cycle.pod.nominated_node not in eligible:
                # A plugin that narrows at PreFilter need not repeat its rejection at Filter.
                return False
            if self.extenders.have_filters:
                # An error here does not fail the attempt: the extenders are asked about all nodes next.
                passed, status = await self.extenders.filter(cycle, statuses, passed)
                if not (status.is_success and len(passed)):
                    return False
            cycle.feasible, cycle.visited_count = passed, 1
            return True
        if filter_error(statuses, rows) is not None:
            # An error here does not fail the attempt: Filter runs for all nodes next.
            statuses.forget(rows)
        return False

    async def prioritize(self, cycle: Cycle) -> ScheduleResult | Status:
        """Score the feasible nodes (at least one) and pick one of the best."""
        nodes = cycle.nodes
        counts = (len(cycle.feasible), cycle.visited_count)
        if len(cycle.feasible) == 1:
            return self._chosen(TiedNodes(nodes, cycle.feasible), counts)
        # Sampling leaves the feasible rows in visiting order; without sampling they ascend already.
        rows = np.sort(cycle.feasible) if self.percentage else cycle.feasible
        candidates = nodes if len(rows) == len(nodes) else nodes.take(rows)
        if not self.has_scores:
            return self._chosen(TiedNodes(candidates, all_rows(candidates)), counts)
        scores: ScoreTable | Status
        if self.framework.has_scores:
            scores = await self.framework.run_score(cycle, candidates)
        else:
            scores = ScoreTable(candidates, np.zeros(len(candidates), dtype=np.int64))
        if isinstance(scores, Status):
            return scores
        if self.extenders.have_scores:
            await self.extenders.prioritize(cycle, scores)
        return self.select_host(scores, counts)

    def select_host(self, scores: ScoreTable, counts: tuple[int, int]) -> ScheduleResult:
        """Return one of the nodes with the highest total score; the Chooser breaks ties."""
        return self._chosen(TiedNodes(scores.nodes, scores.best()), counts, scores)

    def _chosen(
        self, tied: TiedNodes, counts: tuple[int, int], scores: ScoreTable | None = None
    ) -> ScheduleResult:
        return ScheduleResult(tied.name(self.chooser.pick(tied)), *counts, tied, scores)


def _keep_left_out(outcome: PreFilterOutcome, statuses: NodeStatuses) -> None:
    """Make preemption skip the nodes that PreFilter left out, even if another plugin rejected the pod as
    UNSCHEDULABLE: no eviction on such a node would help.
    """
    if outcome.eligible is None or outcome.status.code is not Code.UNSCHEDULABLE:
        return
    left_out = np.ones(len(statuses.table), dtype=np.bool_)
    left_out[rows_named(statuses.table, outcome.eligible)] = False
    statuses.groups[left_out] = statuses.group_of(outcome.absent)


@dataclass(frozen=True, slots=True)
class Profile:
    """The plugins and the search of one schedulerName. `cycle_budget_s`: seconds for one scheduling cycle."""

    framework: Framework
    algorithm: Algorithm
    cycle_budget_s: float


class Scheduler:
    """The scheduling loop. All parts of the host run on one asyncio loop and need no locks."""

    def __init__(
        self,
        profiles: dict[str, Profile],
        queue: SchedulingQueue,
        cache: Cache,
        snapshot: Snapshot,
        binding: BindingCycle,
        evictions: EvictVictims,
        clock: Clock,
        conditions: WriteCondition,
        group_evaluator: GroupEvaluator,
        metrics: GroupMetrics,
        group_records: GroupRecords,
        holds: GangHolds,
        *,
        group_policy: bool = False,
        tracing: Tracing | None = None,
    ) -> None:
        """Make the loop. `group_policy`: see `GroupScheduler`. `tracing` None: no attempt is traced."""
        self.profiles = profiles
        self.queue = queue
        self.cache = cache
        self.snapshot = snapshot
        self.binding = binding
        self.evictions = evictions
        self.steps = PodSteps(queue, cache, snapshot, binding, clock)
        group_scheduler: Callable[..., GroupScheduler] = GroupScheduler
        if tracing is not None:
            self.steps = TracedSteps(queue, cache, snapshot, binding, clock, tracing)
            group_scheduler = partial(TracedGroups, tracing)
        self.groups = group_scheduler(
            profiles,
            self.steps,
            queue,
            cache,
            snapshot,
            binding,
            evictions,
            conditions,
            group_evaluator,
            metrics,
            group_records,
            holds,
            group_policy=group_policy,
        )
        """The cycles of pod groups."""
        self._stopping = False
        self._next_question = asyncio.Lock()
        """Held by the one question that has the snapshot or is the next one to get it."""
        self._rest_ends_s = 0.0
        """Before this reading of `instant_s`, no question delays a scheduling cycle that pods wait for."""
        self._questions = asyncio.Lock()
        """Held while a question has the snapshot; the next scheduling cycle waits for its end."""
        self._between = asyncio.Event()
        """Set when the loop is between two cycles and waits for a question, and when the loop ends."""
        self._asked: Attempt | None = None
        """The attempt of a question, so that plugins may ask the host about it during PostFilter."""
        self.before_pop: Callable[[], Awaitable[None]] | None = None
        """Awaited before each pop. A simulation waits in this function for the effects of the earlier
        attempts.
        """
        self._turns = 0
        """The number of turns with pops in which the asyncio loop has run every task that was ready."""
        self._counted_turn = -1
        """The value of `_turns` at the latest pop."""
        self._popped = 0
        """The number of pops in this turn."""
        self._turn_began_s = 0.0
        self._alone: Attempt | None = None
        """The attempt of a pod without a group in its scheduling cycle."""

    @property
    def in_cycle(self) -> Attempt | None:
        """The attempt whose scheduling cycle runs now. While it runs, the snapshot must not change."""
        group = self.groups.in_cycle
        if group is None:
            return self._alone or self._asked
        return None if group.tried is None else group.tried.attempt

    @property
    def is_busy(self) -> bool:
        """True while a scheduling cycle runs."""
        return self._alone is not None or self.groups.in_cycle is not None

    async def run(self) -> None:
        """Schedule pods until `stop` or `stop_popping` is called.

        The caller of `stop` then cancels the task of `run`, which may be waiting for a pod or for a plugin.
        """
        try:
            await self._run()
        finally:
            self._between.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping:
            await self.queue.ready()
            if self.before_pop is not None:
                await self.before_pop()
            if self._questions.locked():
                self._between.set()
                async with self._questions:
                    pass
            queued = self.queue.pop()
            turns = self._turns
            if turns != self._counted_turn:
                self._counted_turn, self._popped, self._turn_began_s = turns, 0, instant_s()
                loop.call_soon(self._count_turn)
            self._popped += 1
            if isinstance(queued, QueuedPodInfo):
                may_go_on = await self.schedule_one(queued)
            else:
                may_go_on = False
                if queued is not None:
                    await self.groups.schedule_group(queued)
            # Watches, binding tasks and replies get a turn of the asyncio loop after each pod, or after a run
            # of pods with short cycles: the bindings of a run share a write. If a cycle waited for a served
            # plugin, they have had their turn, at no extra time.
            if self._turns == turns and not (may_go_on and self._turn_has_room()):
                await asyncio.sleep(0)

    def _count_turn(self) -> None:
        self._turns += 1

    def _turn_has_room(self) -> bool:
        """Return True if one more pod may be popped in this turn of the asyncio loop."""
        return (
            self._popped < MOST_IN_TURN
            and self.before_pop is None
            and instant_s() - self._turn_began_s < TURN_S
        )

    @asynccontextmanager
    async def undisturbed(self) -> AsyncIterator[Callable[[Attempt | None], None]]:
        """Hold the newest snapshot for a question, between two scheduling cycles.

        Yields a function that names the attempt of the question, about which plugins may ask the host. The
        next cycle begins after the block, in which no trial step is left. While pods wait for a cycle, the
        next question begins after the cycles have had as much time as this one took.
        """
        # The other questions wait here, so that a cycle waits for one question, however many there are.
        async with self._next_question:
            rest_s = self._rest_ends_s - instant_s()
            if rest_s > 0 and self.queue.has_ready and not self._stopping:
                await asyncio.sleep(rest_s)
            async with self._questions:
                while self.is_busy:
                    self._between.clear()
                    await self._between.wait()
                began_s = instant_s()
                self.steps.hold_snapshot()
                try:
                    yield self._ask_about
                finally:
                    self._asked = None
                    self.snapshot.release()
                    ended_s = instant_s()
                    self._rest_ends_s = ended_s + (ended_s - began_s)

    def _ask_about(self, attempt: Attempt | None) -> None:
        self._asked = attempt

    def stop_popping(self) -> None:
        """Pop no more pods; let the scheduling cycle under way finish."""
        self._stopping = True

    @property
    def is_stopping(self) -> bool:
        """True after `stop` or `stop_popping` was called."""
        return self._stopping

    def stop(self) -> None:
        """Pop no more pods; mark the scheduling cycle under way as aborted, so that its cancellation undoes
        it.
        """
        self._stopping = True
        if self._alone is not None:
            self._alone.aborted = HOST_STOPS
        if self.groups.in_cycle is not None:
            self.groups.in_cycle.cut(HOST_STOPS)

    async def schedule_one(self, queued: QueuedPodInfo) -> bool:
        """Make one attempt for one popped pod. Return True after a short cycle that found a node.

        At the end the pod is in its binding cycle, back in the queue, or dropped. No error loses a pod.
        """
        pod = queued.pod
        profile = self.profiles.get(pod.scheduler_name)
        if profile is None or pod.terminating or self.cache.is_assumed(pod.uid):
            self._drop(queued, profile)
            return False
        attempt = self.steps.begin(queued, profile)
        self._alone = attempt
        try:
            with self.steps.guard(attempt) as ended:
                while True:
                    begun_s = instant_s()
                    try:
                        self.steps.hold_snapshot()
                        self.steps.open(attempt, self.snapshot.nodes)
                        found = await profile.algorithm.find_feasible(attempt, self.steps.search)
                        result = await self.steps.pick(
                            attempt, profile.algorithm, found, begun_s, self._post_filter
                        )
                        break
                    except CycleRestartError as restart:
                        attempt = self._alone = ended.attempt = self.steps.restart(attempt, restart)
                    finally:
                        self.steps.nominations.release()
                await self.steps.take(attempt, result)
            if ended.failed is None:
                self.binding.start(attempt)
                return attempt.is_short
            await self.steps.give_back(attempt, ended.failed)
            return False
        finally:
            self.snapshot.release()
            self._alone = None

    async def _post_filter(self, attempt: Attempt, statuses: NodeStatuses) -> str | None:
        """Run PostFilter; return the node to nominate, "" to clear the nomination, None to leave it as it
        is.
        """
        plugin, result = await attempt.framework.run_post_filter(attempt, statuses.rejections())
        attempt.diagnosis.post_filter_message = result.status.message
        if result.status.is_success and result.nominated_node:
            attempt.diagnosis.nominated_node = result.nominated_node
            return self.evictions.nominate(attempt, plugin, result)
        self.evictions.change((attempt.pod,), attempt.changes)
        return "" if result.clear_nomination else None

    def _drop(self, queued: QueuedPodInfo, profile: Profile | None) -> None:
        """Drop a pod that must not be scheduled: its profile is unknown, or it is being deleted or
        assumed.
        """
        pod = queued.pod
        self.queue.done(pod.uid)
        if profile is not None and pod.terminating:
            self.binding.skip_deleting(pod)
        log.info("pod.dropped", pod=pod.key, known_profile=profile is not None, terminating=pod.terminating)
