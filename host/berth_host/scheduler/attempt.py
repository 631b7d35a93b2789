"""`Attempt`: the scheduler's record of one attempt. `Failed`: raised when an attempt binds no pod."""

from __future__ import annotations

from berth_sdk.status import Status

from berth_host.errors.plugins import CycleRestartError
from berth_host.explain.diagnosis import Diagnosis
from berth_host.framework.framework import Framework
from berth_host.metrics.series import instant_s
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.rpc.cycle import Cycle

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

    def anew(self, cycle_id: str) -> Attempt:
        """Return a record of the same attempt with a new cycle id and without the plugins' answers."""
        self.diagnosis.cycle_id = cycle_id
        again = Attempt(self.queued, self.framework, self.diagnosis, self.budget_s)
        again.started_s, again.restarted = self.started_s, True
        again.is_question = self.is_question
        again.trace = self.trace
        again.task, again.cancellations, again.aborted = self.task, self.cancellations, self.aborted
        return again
