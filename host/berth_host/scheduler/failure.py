"""A failed attempt -> the pod back in the queue, its nomination, and the message to its owner.

    failure -> queued pod refreshed from the informer -> add_unschedulable -> nomination -> StatusWriter

Called by the scheduling cycle (`handle`) and by the binding cycle (`handle_binding_failure`). Writing the
event and the condition is the StatusWriter's: it talks to the cluster, and its failure changes nothing here.
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
    """How an attempt ended.

    `message`: the text for the owner, in full. `nominated`: the node to nominate, "" to clear the
    nomination, None to leave it as the pod's status has it. `unschedulable_plugins`, `pending_plugins`:
    the diagnosis of a pod that fits nowhere, empty for every other failure; a plugin that said Pending is
    in both. An ERROR status may name in `plugin` the plugin that could not be asked.
    """

    status: Status
    message: str = ""
    nominated: str | None = ""
    unschedulable_plugins: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()

    @property
    def reason(self) -> str:
        """The reason of the pod's condition."""
        return UNSCHEDULABLE if self.status.is_rejected else SCHEDULER_ERROR


class StatusWriter(Protocol):
    """Writes the event, and the condition with the nomination, for the pod's owner."""

    def attempt_failed(self, pod: Pod, failure: Failure) -> None:
        """Write event and condition in the background. `pod`: the newest version that is known."""
        ...


class FailureHandler:
    """`forget` takes an assumed pod out of the cache; it may be gone from there already."""

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
        """Put the pod back, unless it is gone, bound meanwhile, or another pod has its name."""
        queued.unschedulable_plugins = set(failure.unschedulable_plugins)
        queued.pending_plugins = set(failure.pending_plugins)
        queued.ungate()
        pod = queued.pod
        current = self._pods.pod(pod.key)
        nominated = failure.nominated
        if current is None or current.node_name:
            # Bound: by another writer, or our own bind succeeded although its answer was lost. A pod that is
            # bound or gone has no nomination that could be taken back.
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
        """Queue a pod that turned out not to be bound, if it still exists and has no node."""
        current = self._pods.pod_by_uid(assumed.uid)
        if current is not None and not current.node_name and self._queue.places.find(current.key) is None:
            self._queue.add(current)
        self._queue.move_all(reservation_freed(assumed))

    def handle_binding_failure(self, queued: QueuedPodInfo, assumed: Pod, failure: Failure) -> None:
        """Put back an assumed pod that did not get bound. Its node is free again, which may help others.

        After a rejection the pod itself is not woken up by this: it would be tried again at once, and
        rejected again. After an error every pod is, before this one goes into its backoff.
        """
        self._forget(assumed)
        freed = reservation_freed(assumed)
        if failure.status.is_rejected:
            self.handle(queued, failure)
            self._queue.move_all(freed, lambda other: other.uid != assumed.uid)
        else:
            self._queue.move_all(freed)
            self.handle(queued, failure)
