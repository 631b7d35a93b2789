"""Writes an attempt's result on the pod: its PodScheduled condition, its nomination, and events.

Called by the failure handler, the binding cycle and evictions. A write that still fails after the tries of
`status_patch` is logged and dropped, as in kube-scheduler. The next attempt writes again.
Source: kube-scheduler `schedule_one.go` (handleSchedulingFailure, updatePod), v1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.rfc3339 import format_time
from berth_sdk.status import Code, Status

from berth_host.cluster.port import ClusterCalls
from berth_host.cycle.attempt import Failure
from berth_host.cycle.ordered_writes import OrderedWrites, Write
from berth_host.cycle.status_patch import condition_patch, patch_status
from berth_host.errors.cluster import ClusterError
from berth_host.log import get_logger
from berth_host.model.clock import Clock

log = get_logger()
T = TypeVar("T")
NOTE_MAX_BYTES: Final = 1024
MESSAGE_MAX_BYTES: Final = 32 * 1024
REMEMBERED: Final = 1024
"""The number of written nominations, and of written conditions, that are kept, by the pod's uid. The oldest
are dropped first.
"""


class PodStatusWriter:
    """The writer of conditions, nominations and events. Sends nothing if nothing has changed.

    Results are written in the background (`pending_count`), in order per pod.
    """

    def __init__(self, cluster: ClusterCalls, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._writes = OrderedWrites("pods")
        self._nominated: dict[str, _Nominated] = {}
        self._conditions: dict[str, _Conditions] = {}

    @property
    def pending_count(self) -> int:
        """The number of pods with pending writes."""
        return len(self._writes)

    async def flush(self, timeout_s: float) -> bool:
        """Wait until everything is written, at most `timeout_s` (real time), then cancel the other writes.

        Returns True if everything was written.
        """
        return await self._writes.flush(timeout_s)

    async def settled(self, pod: Pod) -> None:
        """Wait until all writes handed over for `pod` are done."""
        await self._writes.settled(pod.uid)

    def attempt_failed(self, pod: Pod, failure: Failure) -> None:
        """Write the event, the condition PodScheduled=False with up to 32 KiB of the message, and the
        nomination.
        """
        self.event(pod, "Warning", "FailedScheduling", "Scheduling", failure.message)
        now = format_time(self._clock.now_s())
        nominated = failure.nominated
        if (
            pod.uid in self._writes  # a write may be about to change what the result is compared with
            or self._condition(pod, failure, now)
            or (nominated is not None and nominated != self._nomination_of(pod))
        ):
            self.in_order(pod, partial(self._write_failure, pod, failure, now))

    def refused(self, pod: Pod, message: str) -> None:
        """Write the condition PodScheduled=False of a pod that cannot be read, and so is not queued."""
        failure = Failure(status=Status(Code.ERROR), message=message, nominated=None)
        now = format_time(self._clock.now_s())
        if self._condition(pod, failure, now):
            self.in_order(pod, partial(self._write_failure, pod, failure, now))

    async def _write_failure(self, pod: Pod, failure: Failure, now: str) -> None:
        """Patch the differences from the pod's status, after the earlier writes. `now`: when it failed."""
        status = self._condition(pod, failure, now) or {}
        nominated = failure.nominated
        if nominated is not None and nominated != self._nomination_of(pod):
            status = {**status, "nominatedNodeName": nominated or None}
        if status:
            await self._patch(pod, status)

    def _nomination_of(self, pod: Pod) -> str:
        """Return the node that the pod's status nominates, empty for none.

        The watched status counts, unless this writer has written a nomination that the watch has not shown.
        """
        ours = self._nominated.get(pod.uid)
        if ours is None or is_newer(pod.resource_version, ours.version):
            return pod.nominated_node
        return ours.node_name

    def in_order(self, pod: Pod, write: Write) -> asyncio.Future[None]:
        """Write in the background, after the earlier writes for `pod`."""
        return self._writes.add(pod.uid, write)

    def event(
        self,
        pod: Pod,
        type: str,
        reason: str,
        action: str,
        note: str,
        related: ObjectRef | None = None,
        related_kind: str = "Pod",
    ) -> None:
        """Write a Kubernetes Event about `pod` in the background. The note is cut to 1024 bytes. `related`:
        another object that has to do with the event.
        """
        self._cluster.record_event(pod, type, reason, action, cut_note(note), related, related_kind)

    async def nominate(self, pod: Pod, node_name: str) -> None:
        """Write status.nominatedNodeName, before long work at Permit or PreBind; "" clears the field."""
        if node_name != self._nomination_of(pod):
            await self._patch(pod, {"nominatedNodeName": node_name or None})

    def _condition(self, pod: Pod, failure: Failure, now: str) -> dict[str, Any] | None:
        """Return the patch for the condition PodScheduled; None if the condition would not change.

        The watched conditions count, unless this writer has written some that the watch has not shown.
        """
        known = pod.object
        wanted = {
            "type": "PodScheduled",
            "status": "False",
            "reason": failure.reason,
            "message": cut_message(failure.message),
            "observedGeneration": known.get("metadata.generation") if known else None,
        }
        ours = self._conditions.get(pod.uid)
        if ours is not None and not is_newer(pod.resource_version, ours.version):
            conditions = ours.conditions
        else:
            conditions = known.get("status.conditions", []) if known else []
        return condition_patch(conditions, wanted, now)

    async def _patch(self, pod: Pod, status: Mapping[str, Any]) -> None:
        try:
            written = await patch_status(self._cluster, pod.ref, status)
        except ClusterError as err:
            log.warning("pod.status_refused", pod=pod.key, problem=str(err))
            return
        version = written.ref.resource_version
        if "nominatedNodeName" in status:
            node_name = status["nominatedNodeName"] or ""
            _remember(self._nominated, pod.uid, _Nominated(node_name, version))
        if "conditions" in status:
            conditions = written.get("status.conditions") or ()
            _remember(self._conditions, pod.uid, _Conditions(conditions, version))


@dataclass(frozen=True, slots=True)
class _Nominated:
    """A nomination that was written (empty: cleared), and the version of the pod with this nomination."""

    node_name: str
    version: str


@dataclass(frozen=True, slots=True)
class _Conditions:
    """The conditions of a pod after this writer has written one, and the version of the pod with them."""

    conditions: Sequence[Mapping[str, Any]]
    version: str


def _remember(kept: dict[str, T], uid: str, written: T) -> None:
    kept.pop(uid, None)
    kept[uid] = written
    if len(kept) > REMEMBERED:
        del kept[next(iter(kept))]


def is_newer(shown: str, written: str) -> bool:
    """Return True if the watch has shown version `written`, or if a version is not a number."""
    if not (shown.isdecimal() and written.isdecimal()):
        return True
    return int(shown) >= int(written)


def cut_note(note: str) -> str:
    """Return the note in at most 1024 bytes: a longer note is cut to 1020 bytes and ends in ` ...`."""
    if note.isascii() and len(note) <= NOTE_MAX_BYTES:
        return note
    note = writable(note)
    raw = note.encode()
    if len(raw) <= NOTE_MAX_BYTES:
        return note
    return raw[: NOTE_MAX_BYTES - 4].decode(errors="ignore") + " ..."


def cut_message(message: str) -> str:
    """Return the message of a condition. Of one with more than 32 KiB, the first 32 KiB are left, and a
    number says how many bytes follow.

    A pod that requests 28 000 resources would otherwise write 1 MB at each attempt. Differs from
    kube-scheduler, which writes all of it.
    """
    message = writable(message)
    if len(message) <= MESSAGE_MAX_BYTES // 4:
        return message
    raw = message.encode()
    if len(raw) <= MESSAGE_MAX_BYTES:
        return message
    kept = raw[:MESSAGE_MAX_BYTES].decode(errors="ignore")
    return f"{kept} ... ({len(raw) - len(kept.encode())} more bytes)"


def writable(text: str) -> str:
    """Drop lone surrogates, which UTF-8 cannot encode: an in-process plugin may answer any string."""
    return text if text.isascii() else text.encode(errors="replace").decode()
