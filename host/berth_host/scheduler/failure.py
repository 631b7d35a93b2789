"""A failed attempt -> the pod back in the queue, its nomination, and the message to its owner.

    failure -> queued pod refreshed from the informer -> add_unschedulable -> nomination -> StatusWriter

Called by the scheduling cycle (`handle`) and by the binding cycle (`handle_binding_failure`). The
StatusWriter writes the event and the condition to the cluster. If a write fails, the queue is not affected.
Source: kube-scheduler `schedule_one.go` (handleSchedulingFailure, handleBindingCycleError), v1.36.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from berth_sdk.pod import Pod
from berth_sdk.status import Code, Status

from berth_host.queue.events import reservation_freed
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.queue.seams import PodLister

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The end of an attempt that bound no pod.

    `message`: the text for the owner, in full. `nominated`: the node to nominate, "" to clear the
    nomination, None to leave it as the pod's status has it. `unschedulable_plugins`, `pending_plugins`:
    the diagnosis of a pod that fits nowhere, empty for every other failure; a plugin that answered Pending
    is in both. An ERROR status may name in `plugin` the plugin that could not be asked. `cause`: the plugin
    with which the attempt failed, "" for none, and its reason.
    """

    status: Status
    message: str = ""
    nominated: str | None = ""
    unschedulable_plugins: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()
    cause: tuple[str, str] | None = None

    @property
    def reason(self) -> str:
        """The reason of the pod's condition."""
        return UNSCHEDULABLE if self.status.is_rejected else SCHEDULER_ERROR


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
