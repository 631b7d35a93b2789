"""The life of one attempt to schedule one pod, from top to bottom. READ THIS FIRST (host).

    PodCycles       pop -> snapshot -> search -> assume -> Reserve -> Permit -> a task for the binding cycle
    PodSteps        the steps of that cycle, which members of a group take too
    Algorithm       PreFilter, Filter, extenders [PostFilter] -> PreScore, Score, Normalize, extenders
    BindingCycle    PreBindPreFlight -> WaitOnPermit -> queue.done -> PreBind -> Bind
    BoundEnds       the snapshot shows the pod -> PostBind
    Undoing, FailureHandler   any failure -> Unreserve, forget -> the pod back in the queue

Scheduling cycles are serial: `loop` pops the next pod when the current pod has a node or has failed. The
snapshot changes only at the start of a cycle and stays unchanged until Permit has returned, even if events
arrive. The cache changes at once: assume, forget and events write to it. Binding cycles are tasks, one for
each pod; thousands may wait at once. Read `loop` for the order of pods, and `groups.schedule_group` for the
cycle of a group, which takes the same steps for each of its members.
Source: kube-scheduler `schedule_one.go` (ScheduleOne, schedulingCycle, schedulingAlgorithm, bindingCycle,
handleSchedulingFailure, handleBindingCycleError), v1.37.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from berth_sdk import chance
from berth_sdk.extension_points import Account, ExtensionPoint
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.results import Cancellation, PostFilterResult
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.attempt.call_record import Changes
from berth_host.attempt.cycle import POD_DELETED, Cycle, CycleEnd
from berth_host.cache.cache import Cache
from berth_host.cache.room import PORTS_TAKEN, exceeds, lacking
from berth_host.cache.snapshot import Snapshot
from berth_host.config.default_plugins import EXTENDER
from berth_host.cycle import sampling
from berth_host.cycle.attempt import (
    CUT_OFF,
    HOST_STOPS,
    Aborted,
    Attempt,
    Failed,
    Failure,
    Guard,
    Guarded,
    ScheduleResult,
    SearchStart,
    TiedNodes,
    unexpected,
)
from berth_host.cycle.bound_ends import BoundEnds
from berth_host.cycle.chooser import Chooser
from berth_host.cycle.claim_users import ClaimUsers
from berth_host.cycle.nominations import Nominations
from berth_host.cycle.observer import UNOBSERVED, AttemptObserver, AttemptStep
from berth_host.cycle.pod_status import PodStatusWriter
from berth_host.cycle.readback import ReadBack
from berth_host.cycle.repeating import Binder
from berth_host.cycle.wait_for_tasks import all_ended
from berth_host.errors.cluster import ClusterError, ConflictError
from berth_host.errors.plugins import CycleRestartError
from berth_host.errors.state import CacheError, InvariantError
from berth_host.explain.diagnosis import Diagnoses, Diagnosis, Outcome, TopScores
from berth_host.explain.fit_error import NO_NODES, fit_error_message
from berth_host.explain.slot_names import SlotNames
from berth_host.extenders.client import ExtenderName
from berth_host.extenders.extenders import NO_EXTENDERS, Extenders
from berth_host.framework.binding import claim_names
from berth_host.framework.filtering import all_rows, filter_error
from berth_host.framework.framework import Framework
from berth_host.framework.score_table import ScoreTable
from berth_host.log import get_logger
from berth_host.metrics.series import instant_s
from berth_host.model.clock import Clock
from berth_host.model.internal_error import InternalError
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.pre_filter_outcome import PreFilterOutcome, rows_named
from berth_host.queue.events import RESERVATION_OVER, PluginRequest, reservation_freed
from berth_host.queue.interfaces import PodLister
from berth_host.queue.nominated_columns import NominatedColumns
from berth_host.queue.queued_pod import PRE_BIND, WAITING, QueuedPodInfo
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.rpc.relay import LOST

log = get_logger()

_TOP_SCORES: Final = 3
_MOST_READ_GONE: Final = 1000

LEFT_OUT: Final = "PluginLeftOut"
"""The reason of the Kubernetes Event for a pod that was placed without the answer of a plugin."""

MakeRoom: TypeAlias = Callable[[Attempt, NodeStatuses], Awaitable[str | None]]
"""Runs PostFilter; returns the node to nominate, "" to clear the nomination, None to leave it as it is."""


class EvictVictims(Protocol):
    """Executes a nomination (`preemption.evictions`)."""

    def nominate(self, cycle: Cycle, plugin: str, result: PostFilterResult) -> str | None:
        """Evict the victims in the background, after the other changes that PostFilter plugins ask for.

        Returns the node to nominate. None: the nomination stays as it is.
        """
        ...

    def change(self, pods: Sequence[Pod], changes: Sequence[Changes]) -> asyncio.Future[None] | None:
        """Apply the changes that plugins ask for, in the background."""
        ...


class Searches(Protocol):
    """The search for a node (`Algorithm`)."""

    @property
    def chooser(self) -> Chooser:
        """Breaks ties."""
        ...

    @property
    def follows_from_plugins(self) -> bool:
        """True if a search follows from the plugins' answers alone: it does not sample, and there are no
        extenders.
        """
        ...

    async def find_feasible(self, cycle: Cycle, search: SearchStart) -> Status:
        """Run PreFilter and Filter, and write the result into `cycle`."""
        ...

    async def prioritize(self, cycle: Cycle) -> ScheduleResult | Status:
        """Score the feasible nodes (at least one) and pick one of the best."""
        ...


class CycleProfile(Protocol):
    """The plugins and the search of one schedulerName (`Profile`)."""

    @property
    def framework(self) -> Framework:
        """The plugins."""
        ...

    @property
    def algorithm(self) -> Searches:
        """The search."""
        ...

    @property
    def cycle_budget_s(self) -> float:
        """Seconds for the calls of served plugins in one scheduling cycle of one pod."""
        ...

    @property
    def placements_percentage(self) -> int:
        """The percentage of the placements of a group that are scored, 0 for one by the number of nodes."""
        ...


@dataclass(frozen=True, slots=True)
class Profile:
    """The plugins and the search of one schedulerName. `cycle_budget_s`: seconds for one scheduling cycle.
    `placements_percentage`: see `CycleProfile`.
    """

    framework: Framework
    algorithm: Algorithm
    cycle_budget_s: float
    placements_percentage: int = 0


class PodCycles:
    """The scheduling cycles of pods without a group. `profiles`: by schedulerName."""

    def __init__(
        self,
        profiles: dict[str, Profile],
        steps: PodSteps,
        queue: SchedulingQueue,
        cache: Cache,
        snapshot: Snapshot,
        binding: BindingCycle,
        evictions: EvictVictims,
    ) -> None:
        self.profiles = profiles
        self.evictions = evictions
        self.in_cycle: Attempt | None = None
        """The attempt whose scheduling cycle runs now."""
        self._steps = steps
        self._queue = queue
        self._cache = cache
        self._snapshot = snapshot
        self._binding = binding
        self._observer = steps.observer

    async def schedule_one(self, queued: QueuedPodInfo) -> bool:
        """Make one attempt for one popped pod. Return True after a short cycle that found a node.

        At the end the pod is in its binding cycle, back in the queue, or dropped. No error loses a pod.
        """
        pod = queued.pod
        profile = self.profiles.get(pod.scheduler_name)
        if profile is None or pod.terminating or self._cache.is_assumed(pod.uid):
            self._drop(queued, profile)
            return False
        attempt = self._steps.begin(queued, profile)
        self._observer.begun(attempt)
        self.in_cycle = attempt
        try:
            with self._steps.guard(attempt) as ended:
                while True:
                    begun_s = instant_s()
                    try:
                        self._steps.hold_snapshot()
                        self._steps.open(attempt, self._snapshot.nodes)
                        found = await profile.algorithm.find_feasible(attempt, self._steps.search)
                        result = await self._steps.pick(
                            attempt, profile.algorithm, found, begun_s, self._post_filter
                        )
                        self._observer.chosen(attempt, result)
                        break
                    except CycleRestartError as restart:
                        attempt = self.in_cycle = ended.attempt = self._steps.restart(attempt, restart)
                    finally:
                        self._steps.nominations.release()
                await self._steps.take(attempt, result)
            if ended.failed is None:
                self._binding.start(attempt)
                return attempt.is_short
            await self._steps.give_back(attempt, ended.failed)
            return False
        finally:
            self._snapshot.release()
            self.in_cycle = None

    async def _post_filter(self, attempt: Attempt, statuses: NodeStatuses) -> str | None:
        """Run PostFilter; return the node to nominate, "" to clear the nomination, None to leave it as it
        is.
        """
        ran = attempt.framework.run_post_filter(attempt, statuses.rejections())
        plugin, result = await self._observer.step(attempt, AttemptStep.POST_FILTER, ran)
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
        self._queue.done(pod.uid)
        if profile is not None and pod.terminating:
            self._binding.skip_deleting(pod)
        log.info("pod.dropped", pod=pod.key, known_profile=profile is not None, terminating=pod.terminating)


class SearchSteps:
    """The steps up to the choice of a node, over a snapshot that is held. What-ifs need no others.

    `nominated`: the nominated pods. `search`: where the next sampled search starts; shared by all profiles.
    """

    observer: AttemptObserver = UNOBSERVED
    """The observer of the attempts that take these steps."""

    def __init__(self, nominated: NominatedColumns, snapshot: Snapshot, clock: Clock) -> None:
        self.search = SearchStart()
        self._snapshot = snapshot
        self._clock = clock
        self.nominations = Nominations(nominated, clock.now_s)
        self._slot_names = SlotNames()
        self._life = chance.token_hex(10)
        self._cycle_count = 0

    def begin(self, queued: QueuedPodInfo, profile: CycleProfile) -> Attempt:
        """Return the record of a new attempt."""
        return Attempt(queued, profile.framework, self._diagnose(queued), profile.cycle_budget_s)

    def next_id(self) -> str:
        """Return a cycle id of 32 hexadecimal digits, unique among the cycles of all hosts."""
        self._cycle_count += 1
        return f"{self._life}{self._cycle_count:012x}"

    # --- choosing a node -----------------------------------------------------------------------

    def open(self, attempt: Attempt, nodes: NodeTable) -> None:
        """Let the attempt read `nodes`: the held snapshot, or some of its rows.

        Raises Failed if there are none. `nominations.release` ends what begins here.
        """
        attempt.nodes = nodes
        attempt.version = self._snapshot.version
        attempt.diagnosis.node_count = len(nodes)
        for plugin, why in attempt.queued.entered_without.items():
            attempt.account.leave_out(plugin, "PreEnqueue", why)
        if not len(nodes):
            raise Failed(Status.unresolvable(NO_NODES), NO_NODES)
        attempt.nominated = self.nominations.counted_for(attempt.pod, nodes)

    async def pick(
        self,
        attempt: Attempt,
        algorithm: Searches,
        found: Status,
        begun_s: float,
        make_room: MakeRoom | None = None,
    ) -> ScheduleResult:
        """Return the best feasible node. Raises Failed if no node is feasible, or after an error.

        `found`: the status of the search. `begun_s`: the start of the search (`instant_s`). `make_room`: runs
        PostFilter if no node is feasible; None: PostFilter does not run.
        """
        diagnosis = attempt.diagnosis
        diagnosis.feasible_count = len(attempt.feasible)
        diagnosis.evaluated_count = attempt.visited_count
        if not found.is_success and not found.is_rejected:
            raise Failed(found, found.message)
        if not len(attempt.feasible):
            raise await self._no_fit(attempt, make_room)
        result = await algorithm.prioritize(attempt)
        if isinstance(result, Status):
            raise Failed(result, result.message)
        diagnosis.algorithm_ms = 1000 * (instant_s() - begun_s)
        if result.scores is not None:
            record_scores(diagnosis, result.scores)
        return result

    def restart(self, attempt: Attempt, restart: CycleRestartError) -> Attempt:
        """Return a record of the same attempt that begins again: a plugin was restarted."""
        log.info("cycle.restarted", pod=attempt.pod.key, plugin=restart.plugin, reason=restart.reason)
        attempt.framework.end_cycle(attempt, CycleEnd.ABORTED)
        return attempt.anew(self.next_id())

    async def _no_fit(self, attempt: Attempt, make_room: MakeRoom | None) -> Failed:
        """Return the FitError. The attempt fails even if PostFilter nominates a node."""
        diagnosis, outcome = attempt.diagnosis, attempt.pre_filter
        statuses = attempt.statuses or NodeStatuses(attempt.nodes)
        counted = statuses.group_counts()
        # The statuses may be of some nodes only: the placement of a group.
        names = self._slot_names.of(self._snapshot.nodes)
        diagnosis.record_rejections(statuses, counted, names)
        diagnosis.counts_resources = attempt.framework.accounting_for(
            Account.RESOURCES, ExtensionPoint.FILTER
        )
        diagnosis.pre_filter_message = outcome.message
        for status, rows in outcome.rejected_rows(statuses.table):
            diagnosis.record_rejection(statuses.table, status, rows)
        nominated: str | None = None if make_room is None else ""
        if make_room is not None and attempt.framework.has_post_filters:
            nominated = await make_room(attempt, statuses)
        reasons = statuses.reasons(counted)
        if attempt.is_shrunk:
            diagnosis.unschedulable_plugins.add(EXTENDER)
        for extender, dropped in attempt.unexplained.items():
            # For `berth why` alone: kube-scheduler's message has no word of these nodes.
            left_out = np.zeros(len(statuses.table), dtype=np.bool_)
            left_out[dropped] = True
            diagnosis.record_rejection(statuses.table, Status(Code.UNSCHEDULABLE, (), extender), left_out)
        for refusal in attempt.unknown_nodes.values():
            reasons[refusal.message] += 1
        message = fit_error_message(
            diagnosis.node_count,
            reasons,
            pre_filter_message=outcome.message,
            post_filter_message=diagnosis.post_filter_message,
        )
        return Failed(Status.unschedulable(message), message, nominated=nominated, fit_error=True)

    # --- what can go wrong ---------------------------------------------------------------------

    def guard(self, attempt: Guarded) -> Guard:
        """Return a guard around steps of the attempt, for a `with` block."""
        return Guard(attempt)

    def _diagnose(self, queued: QueuedPodInfo) -> Diagnosis:
        first_us = queued.initial_attempt_timestamp_us
        return Diagnosis(
            pod=queued.pod,
            profile=queued.pod.scheduler_name,
            cycle_id=self.next_id(),
            attempt=queued.attempts,
            started_at_s=self._clock.now_s(),
            first_tried_at_s=None if first_us is None else first_us / 1e6,
            after_flush=queued.was_flushed_from_unschedulable,
            history=queued.history,
        )


class PodSteps(SearchSteps):
    """All steps, over the parts of one host."""

    def __init__(
        self,
        queue: SchedulingQueue,
        cache: Cache,
        snapshot: Snapshot,
        binding: BindingCycle,
        clock: Clock,
        observer: AttemptObserver = UNOBSERVED,
    ) -> None:
        super().__init__(queue.nominated_columns, snapshot, clock)
        self.observer = observer
        self._queue = queue
        self._cache = cache
        self._binding = binding

    def hold_snapshot(self) -> None:
        """Update the snapshot, and hold it unchanged for a cycle."""
        self._snapshot.release()
        self._snapshot.update(self._cache)
        self._snapshot.hold()
        self.search.order = self._snapshot.order

    async def take(self, attempt: Attempt, result: ScheduleResult) -> None:
        """Assume the pod on its node, then run Reserve and Permit. Raises Failed.

        After assume, every failure undoes the attempt (`BindingCycle.fail_cycle`).
        """
        node_name = attempt.node_name = attempt.diagnosis.node_name = result.node_name
        try:
            self._cache.assume(attempt.pod.on_node(node_name))
        except CacheError as err:
            raise Failed(Status.error(str(err)), str(err)) from err
        attempt.assumed = True
        self._binding.note_room(attempt, self._snapshot.copied_generation)
        self._queue.delete_nomination(attempt.pod)
        room = self._queue.nominated_columns.room
        if room is not None:
            room.count(attempt.pod, node_name, self._clock.now_s())
        attempt.reserved = True
        framework, step = attempt.framework, self.observer.step
        status = await step(attempt, AttemptStep.RESERVE, framework.run_reserve(attempt, node_name))
        if status.is_success:
            status = await step(attempt, AttemptStep.PERMIT, framework.run_permit(attempt, node_name))
        if status.is_success or status.code is Code.WAIT:
            self._queue.activate_named(attempt.take_pods_to_activate())
            return
        raise self._binding.rejected(attempt, status)

    async def give_back(self, attempt: Attempt, failed: Failed) -> None:
        """Undo the attempt, and put its pod back into the queue."""
        if isinstance(failed, Aborted):
            await self._binding.abort(attempt)
        else:
            await self._binding.fail_cycle(attempt, failed)


def record_scores(diagnosis: Diagnosis, table: ScoreTable) -> None:
    """Write the nodes with the highest totals, and the scores of each plugin for them, into `diagnosis`."""
    best = table.top(_TOP_SCORES)
    rows, recorded = best.tolist(), table.recorded
    if recorded is not None and recorded.holds(rows, table.nodes):
        diagnosis.scores = recorded.record
        return
    diagnosis.scores = TopScores(
        [table.nodes.name(row) for row in rows],
        table.total[best].tolist(),
        [
            (item.plugin, item.weight, item.raw[best].tolist(), item.normalized[best].tolist())
            for item in table.plugins
        ],
    )
    if recorded is not None:
        recorded.rows, recorded.names = rows, table.nodes.names_identity
        recorded.record = diagnosis.scores


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
        observer: AttemptObserver = UNOBSERVED,
    ) -> None:
        self.framework = framework
        self.extenders = extenders
        self._observer = observer
        self.chooser = chooser
        self.percentage = percentage if 1 <= percentage <= 99 else 0

    async def find_feasible(self, cycle: Cycle, search: SearchStart) -> Status:
        """Run PreFilter, then Filter over the nodes that PreFilter left, and write the result into `cycle`.

        Returns SUCCESS (also if no node fits), PreFilter's rejection of the pod, or the error that ended the
        search.
        """
        table = cycle.nodes
        statuses = cycle.statuses = NodeStatuses(table)
        ran = self.framework.run_pre_filter(cycle)
        outcome = cycle.pre_filter = await self._observer.step(cycle, AttemptStep.PRE_FILTER, ran)
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
            if search.ranks is not None:
                order = search.ranks.in_order(table, order)
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
        ran = self.framework.run_filter(cycle, statuses, rows, cycle.nominated)
        return self._observer.step(cycle, AttemptStep.FILTER, ran)

    async def _ask_extenders(self, cycle: Cycle, statuses: NodeStatuses) -> Status:
        """Let the extenders filter the feasible nodes; return SUCCESS, or the error that ends the search."""
        passed, rejected = cycle.feasible, statuses.rejected_count
        cycle.feasible, status = await self.extenders.filter(cycle, statuses, passed)
        gone = len(passed) - len(cycle.feasible)
        cycle.is_shrunk = gone > 0
        # A node that an extender leaves out without a reason counts as not evaluated.
        cycle.visited_count += statuses.rejected_count + len(cycle.unknown_nodes) - rejected - gone
        return status

    @property
    def has_scores(self) -> bool:
        """True if a Score plugin or an extender scores nodes."""
        return self.framework.has_scores or self.extenders.have_scores

    @property
    def follows_from_plugins(self) -> bool:
        """True without sampling and extenders; see `Searches`."""
        return not self.percentage and not (self.extenders.have_filters or self.extenders.have_scores)

    def nominated_row(self, cycle: Cycle) -> int | None:
        """Return the row of the node that the pod is nominated to. A question may leave that node out."""
        return cycle.nodes.position(cycle.pod.nominated_node)

    async def _fits_nominated(self, cycle: Cycle, statuses: NodeStatuses) -> bool:
        """Run Filter for the nominated node alone; return True if the pod fits there."""
        row = self.nominated_row(cycle)
        if row is None:
            return False
        rows = np.asarray([row], dtype=np.intp)
        ran = self.framework.run_filter(cycle, statuses, rows, cycle.nominated)
        passed = await self._observer.step(cycle, AttemptStep.FILTER, ran)
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
            return self._chosen(cycle, TiedNodes(nodes, cycle.feasible), counts)
        # Sampling leaves the feasible rows in visiting order; without sampling they ascend already.
        rows = np.sort(cycle.feasible) if self.percentage else cycle.feasible
        candidates = nodes if len(rows) == len(nodes) else nodes.take(rows)
        if not self.has_scores:
            return self._chosen(cycle, TiedNodes(candidates, all_rows(candidates)), counts)
        scores: ScoreTable | Status
        if self.framework.has_scores:
            ran = self.framework.run_score(cycle, candidates)
            scores = await self._observer.step(cycle, AttemptStep.SCORE, ran)
        else:
            scores = ScoreTable(candidates, np.zeros(len(candidates), dtype=np.int64))
        if isinstance(scores, Status):
            return scores
        if self.extenders.have_scores:
            await self.extenders.prioritize(cycle, scores)
        return self._chosen(cycle, TiedNodes(scores.nodes, scores.best()), counts, scores)

    def _chosen(
        self, cycle: Cycle, tied: TiedNodes, counts: tuple[int, int], scores: ScoreTable | None = None
    ) -> ScheduleResult:
        """Return one of the nodes with the highest total score; the Chooser breaks ties."""
        chooser, trial = self.chooser, cycle.trial
        if trial is not None and trial.placement and len(tied) > 1:
            chooser = chooser.of_placement(trial.placement)
        return ScheduleResult(tied.name(chooser.pick(tied)), *counts, tied, scores)


def _keep_left_out(outcome: PreFilterOutcome, statuses: NodeStatuses) -> None:
    """Make preemption skip the nodes that PreFilter left out, even if another plugin rejected the pod as
    UNSCHEDULABLE: no eviction on such a node would help.
    """
    if outcome.eligible is None or outcome.status.code is not Code.UNSCHEDULABLE:
        return
    left_out = np.ones(len(statuses.table), dtype=np.bool_)
    left_out[rows_named(statuses.table, outcome.eligible)] = False
    statuses.groups[left_out] = statuses.group_of(outcome.absent)


class Undoing:
    """Turns rejections of a reserved pod into failures, and gives its reservations back."""

    def __init__(self, observer: AttemptObserver = UNOBSERVED) -> None:
        self._observer = observer

    def rejected(self, attempt: Attempt, status: Status) -> Failed:
        """Return the failure for a status of Reserve, Permit or WaitOnPermit: a FitError for the node, or an
        error.
        """
        if not status.is_rejected:
            return Failed(status, status.message)
        attempt.diagnosis.record_at_node(status, attempt.node_name)
        reasons = dict.fromkeys(status.reasons, 1)
        message = fit_error_message(1, reasons)
        return Failed(Status(status.code, (message,)), message, fit_error=True)

    async def unreserve(self, attempt: Attempt, reason: str) -> None:
        """Run Unreserve. No error of a plugin leaves this method, so that the host's own undo always
        follows.
        """
        attempt.framework.waiting_pods.discard(attempt.pod.uid)
        attempt.is_undoing = True
        try:
            ran = attempt.framework.run_unreserve(attempt, attempt.node_name, reason)
            await self._observer.step(attempt, AttemptStep.UNRESERVE, ran)
        except InvariantError:
            raise
        except Exception as err:
            log.error("task.failed", pod=attempt.pod.key, exc_info=err)
        except asyncio.CancelledError:
            if is_cancelled_from_outside() and not attempt.aborted:
                raise
        finally:
            attempt.is_undoing = False


def is_cancelled_from_outside() -> bool:
    """Return True if someone else cancels the current task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


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
        internal_error: InternalError,
        extenders: Extenders = NO_EXTENDERS,
        observer: AttemptObserver = UNOBSERVED,
        *,
        binds_for_extenders: bool = False,
        looks_before_binding: bool = True,
        claim_users: ClaimUsers | None = None,
        ends: BoundEnds | None = None,
    ) -> None:
        """Make the binding cycles. `binds_for_extenders`: the host posts the Bindings that extenders claim to
        have posted, because they cannot reach the cluster, as in a simulation. `looks_before_binding`: take
        the last look. `claim_users` None: claims keep the pods of undone bindings as their users.
        `ends` None: PostBind follows each Binding at once.
        """
        super().__init__(observer)
        self._queue = queue
        self._cache = cache
        self._binder = binder
        self._failures = failures
        self._status = status
        self._diagnoses = diagnoses
        self._read_back = read_back
        self._internal_error = internal_error
        self._extenders = extenders
        self._binds_for_extenders = binds_for_extenders
        self._looks_before_binding = looks_before_binding
        self._claim_users = claim_users
        self.ends = ends
        self._is_draining = False
        self._read_gone: dict[str, None] = {}
        """UIDs of bound pods that were read back as gone, the oldest first: the cache may have them yet."""
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
        self._observer.binds(attempt)
        task = asyncio.get_running_loop().create_task(self._run(attempt))
        self._running[attempt.pod.uid] = attempt
        self.tasks.add(task)
        task.add_done_callback(partial(self._ended, attempt))

    def abort_pod(self, uid: str) -> bool:
        """Tell the binding cycle of a pod that it was deleted. Return False if it has none.

        PreBind plugins between two rounds are asked a last time, and their answer ends the cycle. A pod that
        was rejected at Permit as `removed` fails by that verdict, as in kube-scheduler. Every other call that
        the cycle waits for is cancelled.
        """
        attempt = self._running.get(uid)
        if attempt is None:
            return False
        if attempt.framework.waiting_pods.fails(uid):
            attempt.pod_deleted = True
        elif not (attempt.in_pre_bind and attempt.tell_pod_deleted()):
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
            self._internal_error.fail(err)

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
                self._internal_error.fail(err)

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
        framework, node_name, step = attempt.framework, attempt.node_name, self._observer.step
        # The write of an earlier failure, which may be under way, must not come after the Binding or the
        # nomination: the condition would say for ever that the pod has no node.
        if self._status.pending_count:
            await self._status.settled(attempt.pod)
        ran = framework.run_pre_bind_pre_flight(attempt, node_name)
        status, will_act = await step(attempt, AttemptStep.PRE_BIND_PRE_FLIGHT, ran)
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
        status = SUCCESS
        if waits:
            status = await step(attempt, AttemptStep.WAIT_ON_PERMIT, framework.wait_on_permit(attempt))
        if not status.is_success:
            raise self.rejected(attempt, status)
        # From here on a failed pod goes to its backoff: the queue no longer keeps the events of its attempt.
        self._queue.done(attempt.pod.uid)
        if will_act:
            if waits:
                self._queue.note(attempt.queued, PRE_BIND, node_name)
            attempt.in_pre_bind = attempt.pre_bind_began = True
            status = await step(attempt, AttemptStep.PRE_BIND, framework.run_pre_bind(attempt, node_name))
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
        resources, ports = (
            bool(attempt.framework.accounting_for(account, ExtensionPoint.FILTER))
            for account in (Account.RESOURCES, Account.HOST_PORTS)
        )
        found = lacking(info, attempt.pod, self._is_sure, ports=ports)
        lost = [
            reason
            for reason in found
            if reason not in attempt.lacked and (reason == PORTS_TAKEN or resources)
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
            ran = attempt.framework.run_bind(attempt, attempt.node_name)
            plugin, answer = await self._observer.step(attempt, AttemptStep.BIND, ran)
        except asyncio.CancelledError:
            if is_cancelled_from_outside():
                raise
            return Status.error(CUT_OFF), False
        status = answer.status
        if status.is_success and answer.host_binds:
            return await self._write(attempt, plugin)
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
            return await self._write(attempt, extender)
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

    def _write(self, attempt: Attempt, plugin: str) -> Awaitable[tuple[Status, bool]]:
        return self._observer.step(attempt, AttemptStep.WRITE_BINDING, self._post(attempt, plugin))

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
        except InvariantError:
            raise
        except Exception as err:
            # The pod is bound: an error after that does not fail the attempt.
            log.error("task.failed", pod=pod.key, exc_info=err)
        awaiting = attempt.framework.awaits_end(attempt)
        if awaiting and self.ends is not None and self.ends.holds(attempt, awaiting, self):
            attempt.framework.end_trials(attempt)
            self._queue.activate_named(attempt.take_pods_to_activate())
            if attempt.trace is not None:
                attempt.trace.over_s = instant_s()
        else:
            await self.report_bound(attempt)

    async def report_bound(self, attempt: Attempt) -> None:
        """Run PostBind, and end the cycle at the plugins. See `bound_ends.Telling`."""
        try:
            ran = attempt.framework.run_post_bind(attempt, attempt.node_name)
            await self._observer.step(attempt, AttemptStep.POST_BIND, ran)
        except InvariantError:
            raise
        except Exception as err:
            log.error("task.failed", pod=attempt.pod.key, exc_info=err)
        finally:
            if attempt.was_gone:
                self._read_gone[attempt.pod.uid] = None
                if len(self._read_gone) > _MOST_READ_GONE:
                    del self._read_gone[next(iter(self._read_gone))]
            is_gone = self._is_gone(attempt.pod.uid)
            holding = attempt.framework.awaits_end(attempt) if is_gone else ()
            attempt.framework.end_cycle(attempt, CycleEnd.BOUND)
            for plugin in holding:
                self._requeue_rejected_by(plugin)
            self._queue.activate_named(attempt.take_pods_to_activate())
        self._observer.ended(attempt)

    def requeue_if_gone(self, plugin: str, pod: ObjectRef) -> None:
        """Requeue the pods that a plugin rejected, if a bound pod of which it was told is gone.

        What the plugin held for the pod is free from now on. The event that the pod was deleted or finished
        came before, and the pods that it requeued may have been rejected again. Where the pod is still there,
        the pod itself counts, and nothing is free.
        """
        if self._is_gone(pod.uid):
            self._requeue_rejected_by(plugin)

    def _is_gone(self, uid: str) -> bool:
        return uid in self._read_gone or self._cache.get_pod(uid) is None

    def _requeue_rejected_by(self, plugin: str) -> None:
        self._queue.requeue(PluginRequest(plugin=plugin, uids=None, label=RESERVATION_OVER))

    def take_over(self, ended: BindingCycle, frameworks: Mapping[str, Framework]) -> None:
        """Hold the ends that a host held that was stopped. `frameworks`: of this host, by schedulerName."""
        if self.ends is not None and ended.ends is not None:
            self.ends.take_over(ended.ends, frameworks, self)

    def leave_bound(self, attempt: Attempt) -> None:
        """End an attempt whose end no plugin is told. See `bound_ends.Telling`."""
        self._observer.ended(attempt)

    def _tell(self, attempt: Attempt) -> None:
        """Record the Scheduled event of a pod, and its PluginLeftOut events, at most once per attempt."""
        if not attempt.is_told:
            attempt.is_told = True
            note = f"Successfully assigned {attempt.pod.key} to {attempt.node_name}"
            self._status.event(attempt.pod, "Normal", "Scheduled", "Binding", note)
            for omission in attempt.account.omissions:
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
        if attempt.assumed:
            self._leave_claims(attempt)

    async def fail_binding(self, attempt: Attempt, failed: Failed) -> None:
        """Undo a failed binding cycle, put the pod back, and requeue pods that the freed room may help."""
        await self.unreserve(attempt, failed.message)
        assumed = attempt.pod.on_node(attempt.node_name)
        self._failures.handle_binding_failure(attempt.queued, assumed, self._ended_with(attempt, failed))
        self._leave_claims(attempt)

    def _leave_claims(self, attempt: Attempt) -> None:
        """Take the pod out of the claims that DynamicResources has reserved for it, and delete the claim of
        its extended resources, unless the host stops.

        In the background: the loop of the cycles does not wait for the API server. The pod's next PreBind
        waits for this write, as for those of its status.
        """
        users, pod, written = self._claim_users, attempt.pod, attempt.written
        if users is None or attempt.aborted == HOST_STOPS or not (written or any(claim_names(pod))):
            return
        if attempt.framework.accounting_for(Account.DEVICES, ExtensionPoint.RESERVE):
            began = attempt.pre_bind_began
            self._status.in_order(pod, partial(users.take_out, pod, may_be_written=began, written=written))

    async def abort(self, attempt: Attempt) -> None:
        """Undo the attempt of a pod that was deleted or preempted, or whose host stops, and end its cycle."""
        log.info("pod.aborted", pod=attempt.pod.key, node=attempt.node_name, reason=attempt.aborted)
        nominated = None if attempt.aborted == HOST_STOPS else ""
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
        self._observer.ended(attempt)
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
            unschedulable_plugins=frozenset(
                diagnosis.unschedulable_plugins if failed.fit_error else failed.plugins or ()
            ),
            pending_plugins=frozenset(diagnosis.pending_plugins if failed.fit_error else ()),
            cause=diagnosis.cause_of(failed.status),
            by_group=failed.plugins is not None,
        )

    def skip_deleting(self, pod: Pod) -> None:
        """Record the FailedScheduling event for a popped pod that is being deleted."""
        note = f"skip schedule deleting pod: {pod.key}"
        self._status.event(pod, "Warning", "FailedScheduling", "Scheduling", note)

    def _record(self, attempt: Attempt, outcome: Outcome, message: str) -> None:
        diagnosis = attempt.diagnosis
        diagnosis.outcome, diagnosis.message = outcome, message
        diagnosis.duration_ms = round(1000 * (instant_s() - attempt.started_s), 3)
        diagnosis.notes.extend(attempt.account.notes)
        diagnosis.timings_s = attempt.account.timings_s
        diagnosis.reserve_skipped = attempt.reserve_skipped
        diagnosis.outside_scopes = attempt.outside_scopes
        self._diagnoses.add(diagnosis)
        self._observer.settled(attempt)


class StatusWriter(Protocol):
    """Writes the event, the condition and the nomination of a pod whose attempt failed."""

    def attempt_failed(self, pod: Pod, failure: Failure) -> None:
        """Write the result of an attempt in the background. `pod`: the newest version that the host has."""
        ...


class FailureHandler:
    """Puts pods back into the queue. `forget`: removes an assumed pod from the cache, if it is there."""

    def __init__(
        self,
        queue: SchedulingQueue,
        pods: PodLister,
        forget: Callable[[Pod], None],
        writer: StatusWriter,
    ) -> None:
        self._queue = queue
        self._pods = pods
        self._forget = forget
        self._writer = writer

    def handle(self, queued: QueuedPodInfo, failure: Failure) -> None:
        """Put the pod back into the queue, unless it is gone, bound, or replaced by another pod of its
        name.
        """
        queued.unschedulable_plugins = set(failure.unschedulable_plugins)
        queued.pending_plugins = set(failure.pending_plugins)
        queued.cause = failure.cause
        queued.ungate()
        pod = queued.pod
        current = self._pods.pod(pod.key)
        nominated = failure.nominated
        if current is None or current.node_name:
            # The pod is bound by another writer, or by our own Binding whose answer was lost. A pod that is
            # bound or gone has no nomination to clear.
            self._queue.done(pod.uid)
            failure = replace(failure, nominated=None)
        elif current.uid != pod.uid:
            self._queue.done(pod.uid)
            return
        else:
            queued.replace_pod(current)
            failed_plugin = failure.status.plugin if failure.status.code is Code.ERROR else ""
            self._queue.add_unschedulable(queued, failed_plugin=failed_plugin)
        self._queue.nominate(queued.pod, nominated)
        if failure.status.code is not Code.SKIP:  # every Bind plugin skipped the pod: nothing is written
            self._writer.attempt_failed(queued.pod, failure)

    def put_back(self, assumed: Pod) -> None:
        """Queue a pod that has no attempt and turned out not to be bound, unless it is gone or queued.

        Requeue the pods that the freed room may help.
        """
        current = self._pods.pod_by_uid(assumed.uid)
        if current is not None and not current.node_name and self._queue.find(current) is None:
            self._queue.add(current)
        self._queue.move_all(reservation_freed(assumed))

    def handle_binding_failure(self, queued: QueuedPodInfo, assumed: Pod, failure: Failure) -> None:
        """Forget an assumed pod that was not bound, put it back, and requeue pods that the room may help.

        After a rejection the pod is put back after the requeue: the freed room would have it tried, and
        rejected, again at once. After an error every pod is requeued, then this pod goes into its backoff.
        """
        self._forget(assumed)
        freed = reservation_freed(assumed)
        if failure.status.is_rejected:
            self.handle(queued, failure)
            self._queue.move_all(freed, lambda other: other.uid != assumed.uid)
        else:
            self._queue.move_all(freed)
            self.handle(queued, failure)
