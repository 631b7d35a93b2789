"""`PodSteps`: the steps of a scheduling cycle for one pod, alone or as a member of a group.

    open -> (PreFilter, Filter) -> pick: (PreScore, Score) -> the best node
    take: assume -> Reserve -> Permit

`schedule_one` has the story of a single pod and the search itself, `schedule_group` the story of a group.
Source: kube-scheduler `schedule_one.go` (schedulingCycle), v1.37.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Protocol, TypeAlias

import numpy as np
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable

from berth_host.cache.cache import Cache
from berth_host.cache.snapshot import Snapshot
from berth_host.config.default_plugins import EXTENDER
from berth_host.errors.plugins import CycleRestartError
from berth_host.errors.state import CacheError, InvariantError
from berth_host.explain.diagnosis import Diagnosis, TopScores
from berth_host.explain.fit_error import NO_NODES, fit_error_message
from berth_host.explain.slot_names import SlotNames
from berth_host.framework.framework import Framework
from berth_host.framework.score_table import ScoreTable
from berth_host.log import get_logger
from berth_host.metrics.series import instant_s
from berth_host.model.clock import Clock
from berth_host.model.node_statuses import NodeStatuses
from berth_host.queue.nominated_columns import NominatedColumns
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.rpc.cycle import Cycle, CycleEnd
from berth_host.scheduler.attempt import CUT_OFF, Aborted, Attempt, Failed, Restarted, unexpected
from berth_host.scheduler.binding_cycle import BindingCycle
from berth_host.scheduler.chooser import Chooser
from berth_host.scheduler.nominations import Nominations
from berth_host.scheduler.search import ScheduleResult, SearchStart

log = get_logger()
_TOP_SCORES: Final = 3
MakeRoom: TypeAlias = Callable[[Attempt, NodeStatuses], Awaitable[str | None]]
"""Runs PostFilter; returns the node to nominate, "" to clear the nomination, None to leave it as it is."""


class Searches(Protocol):
    """The search for a node (`schedule_one.Algorithm`)."""

    @property
    def chooser(self) -> Chooser:
        """Breaks ties."""
        ...

    async def find_feasible(self, cycle: Cycle, search: SearchStart) -> Status:
        """Run PreFilter and Filter, and write the result into `cycle`."""
        ...

    async def prioritize(self, cycle: Cycle) -> ScheduleResult | Status:
        """Score the feasible nodes (at least one) and pick one of the best."""
        ...


class CycleProfile(Protocol):
    """The plugins and the search of one schedulerName (`schedule_one.Profile`)."""

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


class Guarded(Protocol):
    """An attempt of a pod or of a group. `aborted`: why it was cut short from outside."""

    task: asyncio.Task[None] | None
    cancellations: int
    aborted: str

    @property
    def key(self) -> str:
        """The pod or the group, for logs."""
        ...

    def stopped(self) -> None:
        """Note the end of the guarded steps."""
        ...


class Guard:
    """Turns whatever ends the steps of an attempt early into a `Failed`, so that no error loses a pod.

    `attempt`: the attempt under way; a restart replaces it. `failed`: None if the steps ended well. Two
    errors pass through: InvariantError, and a cancellation of the loop without `Attempt.aborted`.
    """

    __slots__ = ("_task", "attempt", "failed")

    def __init__(self, attempt: Guarded) -> None:
        self.attempt = attempt
        self.failed: Failed | None = None
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Guard:
        # The pod's deletion cancels the plugin call under way; the loop then continues with the next pod.
        self._task = self.attempt.task = _current_task()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        attempt, task = self.attempt, self._task
        attempt.stopped()
        attempt.task = None
        if task is not None:
            for _ in range(attempt.cancellations):
                task.uncancel()
            attempt.cancellations = 0
        if error is None:
            return True
        if isinstance(error, Failed):
            self.failed = error
        elif isinstance(error, asyncio.CancelledError):
            if attempt.aborted:
                # The pod was deleted, or the host stops: the plugin call under way was cancelled.
                self.failed = Aborted(attempt.aborted)
            elif task is not None and not task.cancelling():
                # The loop itself was not cancelled: a plugin raised CancelledError.
                self.failed = Failed(Status.error(CUT_OFF), CUT_OFF)
        elif isinstance(error, CycleRestartError):
            self.failed = Restarted(error)
        elif isinstance(error, Exception) and not isinstance(error, InvariantError):
            # No error may end the loop: this pod is tried again later, and the loop continues.
            log.error("task.failed", attempt=attempt.key, exc_info=error)
            self.failed = unexpected(error)
        return self.failed is not None


class SearchSteps:
    """The steps up to the choice of a node, over a snapshot that is held. What-ifs need no others.

    `nominated`: the nominated pods. `search`: where the next sampled search starts; shared by all profiles.
    """

    def __init__(self, nominated: NominatedColumns, snapshot: Snapshot, clock: Clock) -> None:
        self.search = SearchStart()
        self._snapshot = snapshot
        self._clock = clock
        self.nominations = Nominations(nominated, clock.now_s)
        self._slot_names = SlotNames()
        self._life = secrets.token_hex(10)
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
            attempt.leave_out(plugin, "PreEnqueue", why)
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
        for stray in attempt.strays.values():
            reasons[stray.message] += 1
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
    ) -> None:
        super().__init__(queue.nominated_columns, snapshot, clock)
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
        status = await attempt.framework.run_reserve(attempt, node_name)
        if status.is_success:
            status = await attempt.framework.run_permit(attempt, node_name)
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


def _current_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    if task is None:
        raise InvariantError("a cycle runs in a task")
    return task


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
