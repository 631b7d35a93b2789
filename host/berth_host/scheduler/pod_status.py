"""What an attempt leaves on the pod: its PodScheduled condition, its nomination, and events.

Called by the failure handler, the binding cycle and evictions. A write that fails is logged and lost, as
in kube-scheduler: the next attempt writes again.
Source: kube-scheduler `schedule_one.go` (handleSchedulingFailure, updatePod), v1.36.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from berth_sdk.pod import Pod

from berth_host.errors.cluster import ClusterError
from berth_host.log import get_logger
from berth_host.model.clock import Clock, rfc3339
from berth_host.scheduler.cluster_calls import ClusterCalls
from berth_host.scheduler.failure import Failure

log = get_logger()
NOTE_MAX_BYTES: Final = 1024
Write: TypeAlias = Callable[[], Awaitable[None]]


class PodStatusWriter:
    """Writes through the cluster port; nothing is sent where nothing changed.

    What an ended attempt leaves is written in the background (`pending_count`), in order per pod.
    """

    def __init__(self, cluster: ClusterCalls, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._lines: dict[str, _Line] = {}

    @property
    def pending_count(self) -> int:
        """Pods whose writes are under way."""
        return len(self._lines)

    async def flush(self) -> None:
        """Wait until everything is written."""
        while self._lines:
            await asyncio.wait({line.task for line in self._lines.values()})

    async def settled(self, pod: Pod) -> None:
        """Wait until what was handed over about `pod` is written."""
        while (line := self._lines.get(pod.uid)) is not None:
            await asyncio.wait({line.task})

    def attempt_failed(self, pod: Pod, failure: Failure) -> None:
        """The event, PodScheduled=False with the whole message, and the nomination."""
        self.in_order(pod, lambda: self._failed(pod, failure))

    def event_soon(self, pod: Pod, type: str, reason: str, action: str, note: str) -> None:
        """An event about `pod`, in the background."""
        self.in_order(pod, lambda: self.event(pod, type, reason, action, note))

    def in_order(self, pod: Pod, write: Write) -> asyncio.Future[None]:
        """Write in the background, after what was handed over about `pod` before."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._lines.get(pod.uid)
        if line is None:
            line = self._lines[pod.uid] = _Line()
            line.task = asyncio.ensure_future(self._write(pod.uid, line.writes))
            # Cancelled before it began, it cannot do that itself.
            line.task.add_done_callback(partial(self._ended, pod.uid, line))
        line.writes.append((write, done))
        return done

    async def _write(self, uid: str, writes: deque[tuple[Write, asyncio.Future[None]]]) -> None:
        """What is handed over about one pod, until nothing is left; one task for all of it."""
        while writes:
            await _written(uid, *writes.popleft())
        del self._lines[uid]

    def _ended(self, uid: str, line: _Line, _task: asyncio.Future[None]) -> None:
        if self._lines.get(uid) is line:
            del self._lines[uid]
        for _, done in line.writes:
            done.cancel()

    async def event(self, pod: Pod, type: str, reason: str, action: str, note: str) -> None:
        """An event about `pod`; the note is cut to 1024 bytes."""
        try:
            self._cluster.record_event(pod, type, reason, action, cut_note(note))
        except ClusterError as err:
            log.warning("pod.status_refused", pod=pod.key, reason=reason, problem=str(err))

    async def _failed(self, pod: Pod, failure: Failure) -> None:
        await self.event(pod, "Warning", "FailedScheduling", "Scheduling", failure.message)
        patch: dict[str, Any] = {}
        conditions = self._conditions(pod, failure.reason, failure.message)
        if conditions is not None:
            patch["conditions"] = conditions
        if failure.nominated is not None and failure.nominated != pod.nominated_node:
            patch["nominatedNodeName"] = failure.nominated or None
        if patch:
            await self._patch(pod, patch)

    async def nominate(self, pod: Pod, node_name: str) -> None:
        """status.nominatedNodeName, before long work at Permit or PreBind; "" clears it."""
        if node_name != pod.nominated_node:
            await self._patch(pod, {"nominatedNodeName": node_name or None})

    async def clear_nomination(self, pod: Pod) -> None:
        """Take status.nominatedNodeName away, whatever `pod` says of it: it may be older than that."""
        await self._patch(pod, {"nominatedNodeName": None})

    def _conditions(self, pod: Pod, reason: str, message: str) -> list[Mapping[str, Any]] | None:
        """The conditions with PodScheduled replaced; None when it says the same already."""
        existing = pod.object.get("status.conditions", []) if pod.object else []
        old = next((item for item in existing if item.get("type") == "PodScheduled"), None)
        wanted = {"status": "False", "reason": reason, "message": message}
        if old is not None and all(old.get(key) == value for key, value in wanted.items()):
            return None
        new = {"type": "PodScheduled", **wanted}
        if old is not None and old.get("status") == "False":
            new["lastTransitionTime"] = old.get("lastTransitionTime")
        else:
            new["lastTransitionTime"] = rfc3339(self._clock.now_s())
        generation = pod.object.get("metadata.generation") if pod.object else None
        if generation is not None:
            new["observedGeneration"] = generation
        return [*(item for item in existing if item.get("type") != "PodScheduled"), new]

    async def _patch(self, pod: Pod, status: Mapping[str, Any]) -> None:
        try:
            await self._cluster.patch("pods", pod.ref, {"status": status}, subresource="status")
        except ClusterError as err:
            log.warning("pod.status_refused", pod=pod.key, problem=str(err))


class _Line:
    """What is to be written about one pod, in order, and the task that does it."""

    __slots__ = ("task", "writes")

    def __init__(self) -> None:
        self.task: asyncio.Future[None]
        self.writes: deque[tuple[Write, asyncio.Future[None]]] = deque()


async def _written(uid: str, write: Write, done: asyncio.Future[None]) -> None:
    """Write, and say so in `done`, for whoever waits for it."""
    try:
        await write()
    except Exception as err:
        if not isinstance(err, ClusterError):
            log.error("task.failed", pod_uid=uid, exc_info=err)
        if not done.done():
            done.set_exception(err)
            done.exception()  # seen, also where nobody waits
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            done.cancel()
            raise
        # Nobody cancelled the line: the adapter gave up on this write, and the others are still due.
        if not done.done():
            done.set_exception(ClusterError("pods", uid, "the write was cancelled by the client"))
            done.exception()
    else:
        if not done.done():
            done.set_result(None)


def cut_note(note: str) -> str:
    """At most 1024 bytes: a longer note keeps its first 1020 and ends in ` ...`."""
    raw = note.encode()
    if len(raw) <= NOTE_MAX_BYTES:
        return note
    return raw[: NOTE_MAX_BYTES - 4].decode(errors="ignore") + " ..."
