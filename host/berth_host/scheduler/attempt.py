"""One attempt for one pod: the values that the two cycles and the failure path hand to each other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from berth_sdk.cycle_state import PODS_TO_ACTIVATE, read_pods_to_activate
from berth_sdk.pod import Pod
from berth_sdk.status import Status

from berth_host.explain.diagnosis import Diagnosis, TopScores
from berth_host.framework.cycle import Cycle
from berth_host.framework.framework import Framework
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.scheduler.algorithm import ScheduleResult

_TOP_SCORES = 3
HOST_STOPS = "the host stops"
CUT_OFF = "the attempt was cancelled from inside; the plugins' code says where"


class Failed(Exception):  # noqa: N818  # the end of an attempt, not an error of the host
    """An attempt that ended without a bound pod. `status` goes to the queue.

    `nominated`: the node to nominate, "" to clear the nomination, None to leave it as it is.
    `fit_error`: the plugins in the diagnosis rejected the pod; otherwise no plugin is on record and the
    pod goes through the error backoff.
    """

    def __init__(
        self, status: Status, message: str, *, nominated: str | None = "", fit_error: bool = False
    ) -> None:
        self.status = status
        self.message = message
        self.nominated = nominated
        self.fit_error = fit_error
        super().__init__(message)


def unexpected(err: Exception) -> Failed:
    """The end of an attempt by an unforeseen error: the pod is tried again after its backoff."""
    text = f"unexpected {type(err).__name__}: {err}"
    return Failed(Status.error(text), text)


@dataclass(slots=True, eq=False)
class Attempt:
    """`assumed`: the pod counts on its node in the cache. `aborted`: why it was cut short.
    `in_pre_bind`: PreBind plugins are at work, and the attempt can still be undone. `in_bind`: from the
    Binding on, which may take effect whatever is cancelled here: an abort waits until its outcome is known,
    and a pod that is bound is not undone. `is_told`: the event of its binding is written. `task` is cancelled
    by `abort` (None: nothing to cancel); `cancellations`: how often it did.
    """

    queued: QueuedPodInfo
    framework: Framework
    diagnosis: Diagnosis
    started_s: float
    cycle: Cycle = field(init=False)
    node_name: str = ""
    assumed: bool = False
    aborted: str = ""
    in_pre_bind: bool = False
    in_bind: bool = False
    is_told: bool = False
    task: asyncio.Task[None] | None = None
    cancellations: int = 0

    @property
    def has_cycle(self) -> bool:
        """Whether the attempt came as far as a snapshot."""
        return hasattr(self, "cycle")

    @property
    def is_claimed(self) -> bool:
        """Whether a plugin says that it has bound the pod, and the host is checking this."""
        return self.in_bind and self.is_told

    @property
    def pod(self) -> Pod:
        """The pod as it was popped."""
        return self.queued.pod

    def abort(self, reason: str) -> None:
        """Cancel the outstanding calls; the attempt then undoes itself."""
        self.aborted = reason
        if self.in_bind:
            return
        # A caller inside the attempt runs on to its end: a cancellation would strike later, when the
        # task is about another pod.
        if self.task is not None and self.task is not asyncio.current_task() and self.task.cancel():
            self.cancellations += 1

    def take_pods_to_activate(self) -> list[str]:
        """Pods (`namespace/name`) that plugins want in activeQ now; each is handed out once."""
        shared = self.cycle.context.shared.values
        taken: list[str] = []
        for key in [key for key in shared if key.endswith(f"/{PODS_TO_ACTIVATE}")]:
            taken.extend(read_pods_to_activate(shared.pop(key)))
        return taken


def record_scores(diagnosis: Diagnosis, result: ScheduleResult) -> None:
    """Keep the best few nodes with the score of each plugin."""
    table = result.scores
    if table is None:
        return
    best = table.top(_TOP_SCORES)
    diagnosis.scores = TopScores(
        [table.nodes.name(row) for row in best.tolist()],
        table.total[best].tolist(),
        [
            (item.plugin, item.weight, item.raw[best].tolist(), item.normalized[best].tolist())
            for item in table.plugins
        ],
    )
