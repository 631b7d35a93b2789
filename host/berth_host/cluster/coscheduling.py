"""Writes the status of coscheduling's PodGroups (`scheduling.x-k8s.io/v1alpha1`), as their controller does.

Users of that API, such as Kubeflow Trainer and KubeRay, read phase and counts there. Written only while this
host leads, one group after the other; a group whose status is right already costs no request. Where the
controller of scheduler-plugins runs as well, both write the same. It counts the pods of other namespaces that
have the group's label; this class counts those of the group's namespace alone.
Source: scheduler-plugins `pkg/controllers/podgroup_controller.go`, v0.31; its KEP-42.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import COSCHEDULING_LABEL
from berth_sdk.rfc3339 import parse_time

from berth_host.cluster.port import ClusterPort, EventRecord, WatchEvent
from berth_host.errors.cluster import ClusterError, NotFoundError
from berth_host.log import get_logger
from berth_host.model.clock import Clock, sleep
from berth_host.model.resources import COSCHEDULING_GROUPS

log = get_logger()
PENDING: Final = "Pending"
SCHEDULING: Final = "Scheduling"
RUNNING: Final = "Running"
FAILED: Final = "Failed"
FINISHED: Final = "Finished"
_FINAL: Final = frozenset({FAILED, FINISHED})
_ENDED_POD: Final = frozenset({"Succeeded", "Failed"})
_GIVEN_UP_S: Final = 48 * 3600.0
_FIRST_PAUSE_S: Final = 1.0
_MAX_PAUSE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Member:
    """One pod of a group. `phase`: the pod's. `owners`: `namespace/name` of its owners."""

    phase: str
    owners: tuple[str, ...] = ()


def next_status(status: Mapping[str, Any], min_member: int, members: Iterable[Member]) -> dict[str, Any]:
    """Return the status that follows from `status` and the members.

    "" -> Pending -> Scheduling <-> Running -> Failed | Finished; back to Pending when members are missing.
    """
    after = dict(status)
    found = list(members)
    phase = status.get("phase") or ""
    if phase in _FINAL:
        return after
    if not phase:
        after["phase"] = PENDING
    elif phase == PENDING:
        if len(found) >= min_member and found:
            after["phase"] = SCHEDULING
            owners = next((member.owners for member in found if member.owners), ())
            if owners:
                after["occupiedBy"] = ",".join(sorted(owners))
    else:
        _count(after, min_member, found)
    return after


def _count(after: dict[str, Any], min_member: int, members: list[Member]) -> None:
    counted = {"running": "Running", "succeeded": "Succeeded", "failed": "Failed"}
    running, succeeded, failed = (
        sum(member.phase == phase for member in members) for phase in counted.values()
    )
    for name, count in zip(counted, (running, succeeded, failed), strict=True):
        after[name] = count
        if not count:
            del after[name]
    if len(members) < min_member:
        after["phase"] = PENDING
    elif succeeded >= min_member:
        after["phase"] = FINISHED
    elif failed and failed + running + succeeded >= min_member:
        after["phase"] = FAILED
    elif succeeded + running >= min_member:
        after["phase"] = RUNNING
    else:
        after["phase"] = SCHEDULING


@dataclass(slots=True, eq=False)
class _Group:
    """One group, as far as it is known. `ended`: its pods that have ended, which the watch of pods leaves
    out; None until they were listed.
    """

    content: KubeObject | None = None
    live: dict[str, Member] = field(default_factory=dict)
    ended: dict[str, Member] | None = None
    is_given_up: bool = False


class PodGroupStatuses:
    """The statuses of all groups: made -begin-> written -stop-> over. `handle` gets every change."""

    def __init__(self, cluster: ClusterPort, clock: Clock, reporter: str) -> None:
        """Follow no group yet. `reporter`: the schedulerName in Events about groups."""
        self._cluster = cluster
        self._clock = clock
        self._reporter = reporter
        self._groups: dict[str, _Group] = {}
        self._group_of: dict[str, str] = {}
        self._due: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._rests = False

    # --- what happens in the cluster ---------------------------------------------------------------

    def handle(self, event: WatchEvent) -> None:
        """Take one change of a pod or of a PodGroup; every other kind is ignored."""
        if event.kind == "Pod":
            self._handle_pod(event)
        elif event.kind == COSCHEDULING_GROUPS:
            self._handle_group(event)

    def _handle_group(self, event: WatchEvent) -> None:
        seen = event.new or event.old
        if seen is None:
            return
        key = seen.ref.key
        if event.new is None:
            found = self._groups.get(key)
            if found is not None:
                found.content, found.ended, found.is_given_up = None, None, False
                self._drop_if_empty(key, found)
            return
        group = self._group(key)
        if group.content is not None and group.content.ref.uid != event.new.ref.uid:
            group.ended, group.is_given_up = None, False
        group.content = event.new
        self._plan(key)

    def _handle_pod(self, event: WatchEvent) -> None:
        seen = event.new or event.old
        if seen is None:
            return
        uid = seen.ref.uid
        now, member = (None, None) if event.new is None else _member(event.new)
        before = self._group_of.get(uid)
        if now is None and before is None:
            return
        if before is not None and (now != before or member is None or member.phase in _ENDED_POD):
            # It ended, or is gone; which of the two, only a list tells.
            group = self._groups[before]
            group.live.pop(uid, None)
            group.ended = None
            del self._group_of[uid]
            self._plan(before)
            self._drop_if_empty(before, group)
        if now is not None and member is not None and member.phase not in _ENDED_POD:
            self._group_of[uid] = now
            group = self._group(now)
            if group.live.get(uid) != member:
                group.live[uid] = member
                self._plan(now)

    def _group(self, key: str) -> _Group:
        return self._groups.setdefault(key, _Group())

    def _drop_if_empty(self, key: str, group: _Group) -> None:
        if group.content is None and not group.live:
            self._groups.pop(key, None)

    def _plan(self, key: str) -> None:
        self._due[key] = None
        self._woken.set()

    # --- what is written -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to write: this host leads."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="statuses of pod groups")

    async def stop(self) -> None:
        """Write nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    @property
    def is_idle(self) -> bool:
        """True if every group's status is written, or nothing writes."""
        return self._task is None or (self._rests and not self._due)

    async def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            self._woken.clear()
            for key in list(self._due):
                try:
                    await self._write(key)
                except ClusterError as err:
                    # The group stays due, behind the others.
                    self._due.pop(key, None)
                    self._due[key] = None
                    log.warning("pod_group.not_written", group=key, error=str(err), again_after_s=pause_s)
                    await sleep(self._clock, pause_s)
                    pause_s = min(2 * pause_s, _MAX_PAUSE_S)
                else:
                    pause_s = _FIRST_PAUSE_S
            if not self._due:
                self._rests = True
                await self._woken.wait()
                self._rests = False

    async def _write(self, key: str) -> None:
        """Bring one group's status up to date. Raises ClusterError."""
        group = self._groups.get(key)
        content = None if group is None else group.content
        if group is None or content is None:
            self._due.pop(key, None)
            return
        status = content.get("status") or {}
        phase = status.get("phase") or ""
        if phase in _FINAL or self._is_given_up(group, content, status):
            self._due.pop(key, None)
            return
        if phase not in ("", PENDING) and group.ended is None:
            await self._list_ended(group, content.ref)
        # Changes from here on make the group due again.
        self._due.pop(key, None)
        members = [*group.live.values(), *(group.ended or {}).values()]
        after = next_status(status, _min_member(content), members)
        patch = {name: after.get(name) for name in {*status, *after} if after.get(name) != status.get(name)}
        if not patch:
            return
        ref = content.ref
        try:
            written = await self._cluster.patch(
                COSCHEDULING_GROUPS, ref, {"status": patch}, subresource="status"
            )
        except NotFoundError:
            return
        except ClusterError:
            self._due[key] = None
            raise
        if group.content is content:
            # The watch shows it too, maybe after the next change of a member.
            group.content = written
            self._plan(key)

    async def _list_ended(self, group: _Group, ref: ObjectRef) -> None:
        listed = await self._cluster.list("pods", ref.namespace, {COSCHEDULING_LABEL: ref.name})
        group.ended = {
            item.ref.uid: member
            for item in listed
            if (member := _member(item)[1]) is not None and member.phase in _ENDED_POD
        }

    def _is_given_up(self, group: _Group, content: KubeObject, status: Mapping[str, Any]) -> bool:
        """Return True for a group whose pods may have been collected meanwhile: it took two days to begin."""
        if status.get("phase") not in (PENDING, SCHEDULING) or status.get("running"):
            return False
        began_s = _seconds(status.get("scheduleStartTime"))
        made_s = _seconds((content.get("metadata") or {}).get("creationTimestamp"))
        if began_s is None or made_s is None or began_s - made_s <= _GIVEN_UP_S:
            return False
        if not group.is_given_up:
            group.is_given_up = True
            self._cluster.create_event(
                EventRecord(
                    regarding=content.ref,
                    regarding_kind="PodGroup",
                    type="Warning",
                    reason="Timeout",
                    action="Scheduling",
                    note="schedule time longer than 48 hours",
                    reporter=self._reporter,
                )
            )
        return True


def _member(pod: KubeObject) -> tuple[str | None, Member | None]:
    """Return the key of the pod's group, and the pod as a member; two None for any other pod."""
    metadata = pod.get("metadata") or {}
    name = (metadata.get("labels") or {}).get(COSCHEDULING_LABEL)
    if not name:
        return None, None
    namespace = metadata.get("namespace") or "default"
    owners = tuple(f"{namespace}/{owner.get('name')}" for owner in metadata.get("ownerReferences") or ())
    return f"{namespace}/{name}", Member((pod.get("status") or {}).get("phase") or "", owners)


def _min_member(group: KubeObject) -> int:
    value = (group.get("spec") or {}).get("minMember")
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _seconds(text: object) -> float | None:
    """Return Unix seconds of an RFC 3339 time; None for anything else."""
    try:
        return parse_time(text)
    except ValueError:
        return None
