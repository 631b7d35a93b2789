"""One pod's scheduling cycle, from the queue to the start of its binding cycle. READ THIS FIRST (host).

    pop -> snapshot -> PreFilter, Filter, extenders [PostFilter] -> PreScore, Score, Normalize, extenders
        -> assume -> Reserve -> Permit -> a task for the binding cycle (`binding_cycle`)
    any failure -> Unreserve, forget -> `failure` puts the pod back into the queue

Scheduling cycles are serial: the loop pops the next pod when the current pod has a node or has failed. The
snapshot changes only at the start of a cycle and stays unchanged until Permit has returned, even if events
arrive. The cache changes at once: assume, forget and events write to it.
`app` runs `Scheduler.run` as the host's main task.
Source: kube-scheduler `schedule_one.go` (ScheduleOne, schedulingCycle, schedulingAlgorithm), v1.36.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from berth_sdk.results import PostFilterResult
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.tables import NodeTable

from berth_host.cache.cache import Cache
from berth_host.cache.snapshot import Snapshot
from berth_host.config.default_plugins import EXTENDER
from berth_host.errors.plugins import CycleRestartError
from berth_host.errors.state import CacheError, InvariantError
from berth_host.explain.diagnosis import Diagnosis, TopScores
from berth_host.explain.fit_error import NO_NODES, fit_error_message
from berth_host.explain.slot_names import SlotNames
from berth_host.extenders.extenders import NO_EXTENDERS, Extenders
from berth_host.framework.filtering import Rows, all_rows, filter_error
from berth_host.framework.framework import Framework
from berth_host.framework.score_table import ScoreTable
from berth_host.log import get_logger
from berth_host.metrics.series import instant_s
from berth_host.model.clock import Clock
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.pre_filter_outcome import PreFilterOutcome, rows_named
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.rpc.cycle import Cycle, CycleEnd
from berth_host.scheduler import sampling
from berth_host.scheduler.attempt import CUT_OFF, HOST_STOPS, Attempt, Failed, unexpected
from berth_host.scheduler.binding_cycle import BindingCycle
from berth_host.scheduler.chooser import Chooser
from berth_host.scheduler.nominations import Nominations

log = get_logger()
_TOP_SCORES: Final = 3


class EvictVictims(Protocol):
    """Executes a nomination (`evictions`)."""

    def nominate(self, cycle: Cycle, plugin: str, result: PostFilterResult) -> str | None:
        """Evict the victims in the background, after the other changes that PostFilter plugins ask for.

        Returns the node to nominate. None: the nomination stays as it is.
        """
        ...

    def change(self, cycle: Cycle) -> None:
        """Apply the changes that the cycle's PostFilter plugins ask for, in the background."""
        ...


class TiedNodes:
    """Equally good nodes, as rows of a table. A name is made only when it is read: there may be thousands."""

    __slots__ = ("_rows", "_table")

    def __init__(self, table: NodeTable, rows: Rows) -> None:
        self._table = table
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def name(self, position: int) -> str:
        """Return the name of one of these nodes."""
        return self._table.name(self._rows.item(position))

    @property
    def names(self) -> list[str]:
        """The names of all these nodes, in the order of the rows."""
        return self._table.take(self._rows).names


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleResult:
    """The chosen node, and the nodes `tied` with it. `scores` is None if no node was scored."""

    node_name: str
    feasible_count: int
    evaluated_count: int
    tied: TiedNodes
    scores: ScoreTable | None = None


class SearchStart:
    """The position where the next sampled search starts (nextStartNodeIndex). Shared by all profiles.

    `order`: the snapshot's slots interleaved by zone, in which sampling visits the nodes. None: by slot.
    """

    def __init__(self, order: np.ndarray[tuple[int], np.dtype[np.intp]] | None = None) -> None:
        self.next_start = 0
        self.order = order

    def in_order(self, rows: Rows) -> Rows:
        """Return the rows of the whole snapshot in visiting order. A subset keeps its own order."""
        if self.order is None or len(self.order) != len(rows):
            return rows
        return self.order

    def advance(self, visited_count: int, node_count: int) -> None:
        """Move the start of the next search behind the `visited_count` nodes that this search visited."""
        self.next_start = (self.next_start + visited_count) % node_count if node_count else 0


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
        passed = await self.framework.run_filter(cycle, statuses, rows, cycle.nominated)
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

    async def _fits_nominated(self, cycle: Cycle, statuses: NodeStatuses) -> bool:
        """Run Filter for the nominated node alone; return True if the pod fits there."""
        row = cycle.nodes.position(cycle.pod.nominated_node)
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
        """Awaited before each pop. A simulation waits in this function for the effects of the earlier
        attempts.
        """
        self._turns = 0
        """The number of pops after which the asyncio loop has run every task that was ready."""
        self.in_cycle: Attempt | None = None
        """The attempt whose scheduling cycle runs now. While it runs, the snapshot must not change."""

    async def run(self) -> None:
        """Schedule pods until `stop` or `stop_popping` is called.

        The caller of `stop` then cancels the task of `run`, which may be waiting for a pod or for a plugin.
        """
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
            # Watches, binding tasks and replies get one turn of the asyncio loop per pod. If the cycle waited
            # for a served plugin, they have had their turn, at no extra time.
            if self._turns == turns:
                await asyncio.sleep(0)

    def _count_turn(self) -> None:
        self._turns += 1

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
        if self.in_cycle is not None:
            self.in_cycle.aborted = HOST_STOPS

    async def schedule_one(self, queued: QueuedPodInfo) -> None:
        """Make one attempt for one popped pod.

        At the end the pod is in its binding cycle, back in the queue, or dropped. No error loses a pod.
        """
        pod = queued.pod
        profile = self.profiles.get(pod.scheduler_name)
        if profile is None or pod.terminating or self.cache.is_assumed(pod.uid):
            self._drop(queued, profile)
            return
        attempt = Attempt(queued, profile.framework, self._diagnose(queued), profile.cycle_budget_s)
        self.in_cycle = attempt
        try:
            # The pod's deletion cancels the plugin call under way; the loop then continues with the next pod.
            task = attempt.task = _current_task()
            try:
                while True:
                    begun_s = instant_s()
                    try:
                        self._begin(attempt)
                        found = await profile.algorithm.find_feasible(attempt, self.search)
                        result = await self._pick(attempt, profile, found, begun_s)
                        break
                    except CycleRestartError as restart:
                        log.info("cycle.restarted", pod=pod.key, plugin=restart.plugin, reason=restart.reason)
                        attempt.framework.end_cycle(attempt, CycleEnd.ABORTED)
                        attempt = self.in_cycle = attempt.anew(self._next_id())
                    finally:
                        self.nominations.release()
                await self._assume_and_reserve(attempt, result)
            finally:
                attempt.diagnosis.cycle_ms = 1000 * (instant_s() - attempt.started_s)
                attempt.task = None
                for _ in range(attempt.cancellations):
                    task.uncancel()
            self.binding.start(attempt)
        except Failed as failure:
            await self.binding.fail_cycle(attempt, failure)
        except asyncio.CancelledError:
            if attempt.aborted:
                # The pod was deleted, or the host stops: the plugin call under way was cancelled.
                await self.binding.abort(attempt)
            elif _current_task().cancelling():
                raise
            else:
                # The loop itself was not cancelled: a plugin raised CancelledError.
                await self.binding.fail_cycle(attempt, Failed(Status.error(CUT_OFF), CUT_OFF))
        except InvariantError:
            raise
        except Exception as err:
            # No error may end the loop: this pod is tried again later, and the loop continues.
            log.error("task.failed", pod=pod.key, exc_info=err)
            await self.binding.fail_cycle(attempt, unexpected(err))
        finally:
            self.snapshot.release()
            self.in_cycle = None

    # --- choosing a node -----------------------------------------------------------------------

    def _begin(self, attempt: Attempt) -> None:
        """Update the snapshot and hold it unchanged for this cycle. Raises Failed if the cluster has no
        node.
        """
        self.snapshot.release()
        self.snapshot.update(self.cache)
        self.snapshot.hold()
        nodes = attempt.nodes = self.snapshot.nodes
        attempt.version = self.snapshot.version
        self.search.order = self.snapshot.order
        attempt.diagnosis.node_count = len(nodes)
        for plugin, why in attempt.queued.entered_without.items():
            attempt.leave_out(plugin, "PreEnqueue", why)
        if not len(nodes):
            raise Failed(Status.unresolvable(NO_NODES), NO_NODES)
        attempt.nominated = self.nominations.counted_for(attempt.pod, nodes)

    async def _pick(
        self, attempt: Attempt, profile: Profile, found: Status, begun_s: float
    ) -> ScheduleResult:
        """Return the best feasible node. Raises Failed if no node is feasible, or after an error.

        `found`: the status of the search. `begun_s`: the start of the search (`instant_s`).
        """
        diagnosis = attempt.diagnosis
        diagnosis.feasible_count = len(attempt.feasible)
        diagnosis.evaluated_count = attempt.visited_count
        if not found.is_success and not found.is_rejected:
            raise Failed(found, found.message)
        if not len(attempt.feasible):
            raise await self._no_fit(attempt)
        result = await profile.algorithm.prioritize(attempt)
        if isinstance(result, Status):
            raise Failed(result, result.message)
        diagnosis.algorithm_ms = 1000 * (instant_s() - begun_s)
        if result.scores is not None:
            record_scores(diagnosis, result.scores)
        return result

    async def _no_fit(self, attempt: Attempt) -> Failed:
        """Run PostFilter and return the FitError. The attempt fails even if PostFilter nominates a node."""
        diagnosis, outcome = attempt.diagnosis, attempt.pre_filter
        statuses = attempt.statuses or NodeStatuses(attempt.nodes)
        counted = statuses.group_counts()
        diagnosis.record_rejections(statuses, counted, self._slot_names)
        diagnosis.pre_filter_message = outcome.message
        for status, rows in outcome.rejected_rows(statuses.table):
            diagnosis.record_rejection(statuses.table, status, rows)
        nominated: str | None = ""
        if attempt.framework.has_post_filters:
            nominated = await self._post_filter(attempt, statuses)
        reasons = statuses.reasons(counted)
        if attempt.is_shrunk:
            diagnosis.unschedulable_plugins.add(EXTENDER)
        for extender, dropped in attempt.unexplained.items():
            # For `berth why` alone: kube-scheduler's message has no word of these nodes.
            left_out = np.zeros(len(statuses.table), dtype=np.bool_)
            left_out[dropped] = True
            diagnosis.record_rejection(statuses.table, Status(Code.UNSCHEDULABLE, (), extender), left_out)
        for stray in attempt.strays.values():
            reasons[stray.message] += 1
        message = fit_error_message(
            diagnosis.node_count,
            reasons,
            pre_filter_message=outcome.message,
            post_filter_message=diagnosis.post_filter_message,
        )
        return Failed(Status.unschedulable(message), message, nominated=nominated, fit_error=True)

    async def _post_filter(self, attempt: Attempt, statuses: NodeStatuses) -> str | None:
        """Run PostFilter; return the node to nominate, "" to clear the nomination, None to leave it as it
        is.
        """
        plugin, result = await attempt.framework.run_post_filter(attempt, statuses.rejections())
        attempt.diagnosis.post_filter_message = result.status.message
        if result.status.is_success and result.nominated_node:
            attempt.diagnosis.nominated_node = result.nominated_node
            return self.evictions.nominate(attempt, plugin, result)
        self.evictions.change(attempt)
        return "" if result.clear_nomination else None

    # --- taking the node -----------------------------------------------------------------------

    async def _assume_and_reserve(self, attempt: Attempt, result: ScheduleResult) -> None:
        """Assume the pod on its node, then run Reserve and Permit. Raises Failed.

        After assume, every failure undoes the attempt (`BindingCycle.fail_cycle`).
        """
        attempt.node_name = attempt.diagnosis.node_name = result.node_name
        try:
            self.cache.assume(attempt.pod.on_node(result.node_name))
        except CacheError as err:
            raise Failed(Status.error(str(err)), str(err)) from err
        attempt.assumed = True
        self.queue.delete_nomination(attempt.pod)
        attempt.reserved = True
        status = await attempt.framework.run_reserve(attempt, result.node_name)
        if status.is_success:
            status = await attempt.framework.run_permit(attempt, result.node_name)
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
        """Return a cycle id of 32 hexadecimal digits, unique among the cycles of all hosts."""
        self._cycle_count += 1
        return f"{self._life}{self._cycle_count:012x}"

    def _drop(self, queued: QueuedPodInfo, profile: Profile | None) -> None:
        """Drop a pod that must not be scheduled: its profile is unknown, or it is being deleted or
        assumed.
        """
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


def record_scores(diagnosis: Diagnosis, table: ScoreTable) -> None:
    """Write the nodes with the highest totals, and the scores of each plugin for them, into `diagnosis`."""
    best = table.top(_TOP_SCORES)
    diagnosis.scores = TopScores(
        [table.nodes.name(row) for row in best.tolist()],
        table.total[best].tolist(),
        [
            (item.plugin, item.weight, item.raw[best].tolist(), item.normalized[best].tolist())
            for item in table.plugins
        ],
    )
