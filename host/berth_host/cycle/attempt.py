"""The scheduler's records of one attempt, which the story in `schedule_one` fills in.

- `Attempt`: what is known of the attempt. `Guard`: turns whatever ends its steps early into a `Failed`.
- `SearchStart`, `ScheduleResult`, `TiedNodes`: where a search begins, and what it returns.
- `Failed`: raised when an attempt binds no pod. `Failure`: the same for the queue and the pod's owner.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable

from berth_host.attempt.cycle import Cycle
from berth_host.errors.plugins import CycleRestartError
from berth_host.errors.state import InvariantError
from berth_host.explain.diagnosis import Diagnosis
from berth_host.framework.filtering import Rows
from berth_host.framework.framework import Framework
from berth_host.framework.score_table import ScoreTable
from berth_host.log import get_logger
from berth_host.metrics.series import instant_s
from berth_host.queue.queued_pod import QueuedPodInfo

log = get_logger()

HOST_STOPS = "the host stops"

CUT_OFF = "the attempt was cancelled from inside; the plugins' code says where"

UNSCHEDULABLE: Final = "Unschedulable"

SCHEDULER_ERROR: Final = "SchedulerError"


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


class NodeOrder(Protocol):
    """An order of nodes by rank (`preemption.node_ranks`)."""

    def in_order(self, nodes: NodeTable, rows: Rows) -> Rows:
        """Return `rows` with the lowest rank first, in their order where the rank is the same."""
        ...


class SearchStart:
    """The position where the next sampled search starts (nextStartNodeIndex). Shared by all profiles.

    `order`: the snapshot's slots interleaved by zone, in which sampling visits the nodes. None: by slot.
    """

    def __init__(self, order: np.ndarray[tuple[int], np.dtype[np.intp]] | None = None) -> None:
        self.next_start = 0
        self.order = order
        self.ranks: NodeOrder | None = None
        """The order that comes before that of the nodes; None: no order does."""

    def in_order(self, rows: Rows) -> Rows:
        """Return the rows of the whole snapshot in visiting order. A subset keeps its own order."""
        if self.order is None or len(self.order) != len(rows):
            return rows
        return self.order

    def advance(self, visited_count: int, node_count: int) -> None:
        """Move the start of the next search behind the `visited_count` nodes that this search visited."""
        self.next_start = (self.next_start + visited_count) % node_count if node_count else 0


class Failed(Exception):  # noqa: N818  # the end of an attempt, not an error of the host
    """An attempt that ended without a bound pod. `status` goes to the queue.

    `nominated`: the node to nominate, "" to clear the nomination, None to leave it as it is.
    `fit_error`: the plugins in the diagnosis rejected the pod; otherwise no plugin is on record and the
    pod goes through the error backoff. `plugins`: the plugins that rejected the pod's group, which are on
    record then; None: the group is not the cause.
    """

    def __init__(
        self,
        status: Status,
        message: str,
        *,
        nominated: str | None = "",
        fit_error: bool = False,
        plugins: frozenset[str] | None = None,
    ) -> None:
        self.status = status
        self.message = message
        self.nominated = nominated
        self.fit_error = fit_error
        self.plugins = plugins
        super().__init__(message)


class Aborted(Failed):
    """An attempt that was cut short from outside: the pod was deleted, or the host stops."""

    def __init__(self, why: str) -> None:
        super().__init__(Status.error(why), why)


class Restarted(Failed):
    """An attempt that must begin again: a plugin was restarted and does not know the cycle."""

    def __init__(self, restart: CycleRestartError) -> None:
        self.restart = restart
        super().__init__(Status.error(str(restart)), str(restart))


def unexpected(err: Exception) -> Failed:
    """Return the failure for an unforeseen error: the pod is tried again after its backoff."""
    text = f"unexpected {type(err).__name__}: {err}"
    return Failed(Status.error(text), text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The end of an attempt that bound no pod.

    `message`: the text for the owner, in full. `nominated`: the node to nominate, "" to clear the
    nomination, None to leave it as the pod's status has it. `unschedulable_plugins`, `pending_plugins`:
    the diagnosis of a pod that fits nowhere, empty for every other failure; a plugin that answered Pending
    is in both. An ERROR status may name in `plugin` the plugin that could not be asked. `cause`: the plugin
    with which the attempt failed, "" for none, and its reason. `by_group`: the pod's group has no place; then
    the status has the group's reasons, and the message only names the group.
    """

    status: Status
    message: str = ""
    nominated: str | None = ""
    unschedulable_plugins: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()
    cause: tuple[str, str] | None = None
    by_group: bool = False

    @property
    def reason(self) -> str:
        """The reason of the pod's condition."""
        return UNSCHEDULABLE if self.status.is_rejected else SCHEDULER_ERROR


class Attempt(Cycle):
    """The scheduler's record of one attempt: the `Cycle` that every step gets, with the parts of the layers
    above the calls. `started_s`: `instant_s` at the start. `chosen_at`: the cache's generation that the
    cycle's snapshot has; `lacked`: what was too little on the node then, because no plugin of the profile
    judges it.
    """

    def __init__(
        self, queued: QueuedPodInfo, framework: Framework, diagnosis: Diagnosis, budget_s: float
    ) -> None:
        super().__init__(diagnosis.cycle_id, queued.pod, diagnosis.profile, budget_s=budget_s)
        self.queued = queued
        self.framework = framework
        self.diagnosis = diagnosis
        self.started_s = instant_s()
        self.chosen_at = 0
        self.lacked: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name` of the pod, for logs."""
        return self.pod.key

    def stopped(self) -> None:
        """Note the end of the steps of the scheduling cycle."""
        self.diagnosis.cycle_ms = 1000 * (instant_s() - self.started_s)

    def try_again(self, cycle_id: str) -> None:
        """Go on under another id, for a further tentative reservation in the same trial."""
        trial = self.trial
        self.decide(cycle_id)
        self.trial = trial

    def change_host(self, framework: Framework) -> None:
        """Go on in another host, after the Binding: with its plugins, and with what the plugins left as
        tokens.
        """
        self.framework, self.parent = framework, None
        for plugin, part in self.parts.items():
            part.instance = None
            if part.state is not None:
                token = part.state.token
                part.state = CycleState(self.cycle_id, plugin=plugin, shared=self.shared)
                part.state.token = token

    def anew(self, cycle_id: str) -> Attempt:
        """Return a record of the same attempt with a new cycle id and without the plugins' answers."""
        self.diagnosis.cycle_id = cycle_id
        again = Attempt(self.queued, self.framework, self.diagnosis, self.budget_s)
        again.started_s, again.restarted = self.started_s, True
        again.is_question = self.is_question
        again.trace = self.trace
        again.task, again.cancellations, again.aborted = self.task, self.cancellations, self.aborted
        return again


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


def _current_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    if task is None:
        raise InvariantError("a cycle runs in a task")
    return task
