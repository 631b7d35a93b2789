"""The API of a recorded script of pod groups: objects, the writes of a host, and the watch events of both.

Used by `parity/replay_podgroups.py`. Writes are recorded as `parity/golden_podgroups/README.md` describes.
Their watch events wait until `take_events`. Nothing is answered while the scheduling cycle runs: the
recorder starts binding cycles and preemption at the end of the scheduling cycle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from berth_host.cluster.port import EventRecord, WatchEvent, WatchHandler
from berth_host.errors.cluster import ClusterError, NotFoundError, RepeatableError, UnavailableError
from berth_host.model.clock import Clock
from berth_host.model.merge_patch import merged
from berth_host.model.patch_type import PatchType
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.rfc3339 import format_time
from berth_sim.cluster.strategic_merge import merged as merged_strategically

Json = dict[str, Any]
Key = tuple[str, str, str]
"""Kind, namespace ("" for a cluster-scoped kind), name."""
KINDS: Final = {
    "pods": "Pod",
    "nodes": "Node",
    "scheduling.k8s.io/podgroups": "PodGroup",
    "scheduling.k8s.io/compositepodgroups": "CompositePodGroup",
    "resource.k8s.io/resourceclaims": "ResourceClaim",
}
_TIMES: Final = ("lastTransitionTime", "lastProbeTime")


class ScriptedApi:
    """The objects of one script, as a `ClusterPort`.

    `calls` and `events`: what the host wrote since they were cleared. `failing_binds`: `name` or
    `namespace/name` of pods whose next Binding is answered with an internal error, after which a client sends
    it again.
    """

    answers_at_once = False
    kept_event_count = 0
    undelivered_count = 0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._version = 0
        self._objects: dict[Key, Json] = {}
        self._events: list[tuple[str, str, int, WatchEvent]] = []
        self._open = asyncio.Event()
        self._open.set()
        self.failing_binds: set[str] = set()
        self.calls: dict[str, list[Json]] = {}
        self.events: list[Json] = []

    # --- the script's side ---------------------------------------------------------------------

    def hold(self) -> None:
        """Answer nothing until `resume`."""
        self._open.clear()

    def resume(self) -> None:
        """Answer the calls that wait, and all later ones."""
        self._open.set()

    def find(self, kind: str, namespace: str, name: str) -> Json | None:
        """Return an object, or None."""
        return self._objects.get((kind, namespace, name))

    def of_kind(self, kind: str) -> list[Json]:
        """Return the objects of a kind, by namespace and name."""
        return [item for key, item in sorted(self._objects.items()) if key[0] == kind]

    def put(self, kind: str, item: Json) -> WatchEvent:
        """Store an object as it is, with a new resource version, and return its watch event."""
        metadata = item["metadata"]
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        self._version += 1
        new = {**item, "metadata": {**metadata, "resourceVersion": str(self._version)}}
        old = self._objects.get(key)
        self._objects[key] = new
        return WatchEvent(kind, None if old is None else _shown(kind, old), _shown(kind, new))

    def remove(self, kind: str, namespace: str, name: str) -> WatchEvent | None:
        """Remove an object, and return its watch event; None if there is none."""
        old = self._objects.pop((kind, namespace, name), None)
        return None if old is None else WatchEvent(kind, _shown(kind, old), None)

    def take_events(self) -> list[WatchEvent]:
        """Return the watch events of the host's writes: Pod before PodGroup, by name, then in their order."""
        waiting, self._events = sorted(self._events, key=lambda item: item[:3]), []
        return [event for _, _, _, event in waiting]

    # --- the host's side: writes -----------------------------------------------------------------

    async def bind(self, pod: ObjectRef, node_name: str) -> None:
        """Bind a pod, unless its Binding is to fail."""
        await self._open.wait()
        call: Json = {"verb": "bind", "node": node_name}
        self._record("Pod", pod, call)
        named = self.failing_binds & {pod.name, pod.key}
        if named:
            self.failing_binds -= named
            call["error"] = "InternalError"
            text = "Internal error occurred: scripted"
            raise RepeatableError("pods", pod.key, text, server_message=text)
        current = self._current("Pod", pod, call)
        status = {
            key: value for key, value in current.get("status", {}).items() if key != "nominatedNodeName"
        }
        now = format_time(self._clock.now_s())
        others = [one for one in status.get("conditions", ()) if one["type"] != "PodScheduled"]
        status["conditions"] = [
            *others,
            {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now},
        ]
        status["startTime"] = now
        spec = {**current["spec"], "nodeName": node_name}
        self._written("Pod", {**current, "spec": spec, "status": status})

    async def patch(
        self,
        resource: str,
        ref: ObjectRef,
        patch: Mapping[str, Any],
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        expected_resource_version: str = "",
    ) -> KubeObject:
        """Apply a patch, and record the status that it leaves."""
        await self._open.wait()
        kind = KINDS[resource]
        call: Json = {"verb": "patch", "subresource": subresource}
        self._record(kind, ref, call)
        current = self._current(kind, ref, call)
        if patch_type is PatchType.STRATEGIC:
            wanted = merged_strategically(kind, current, patch)
        else:
            wanted = dict(merged(current, patch))
        call["after"] = _status_of(wanted)
        return self._written(kind, wanted)

    async def update(self, resource: str, content: Mapping[str, Any], *, subresource: str = "") -> KubeObject:
        """Refuse: a scheduler of these scripts replaces no object."""
        raise ClusterError(resource, "", "a script has no PUT")

    async def create(self, resource: str, ref: ObjectRef, content: Mapping[str, Any]) -> KubeObject:
        """Refuse: a scheduler of these scripts creates no object."""
        raise ClusterError(resource, ref.key, "a script has no POST")

    async def delete(
        self, resource: str, ref: ObjectRef, *, grace_period_s: int | None = None, same_uid: bool = False
    ) -> None:
        """Delete an object. A bound pod only gets a deletion time."""
        await self._open.wait()
        kind = KINDS[resource]
        call: Json = {"verb": "delete"}
        self._record(kind, ref, call)
        current = self._current(kind, ref, call)
        if kind == "Pod" and current["spec"].get("nodeName"):
            self._written(kind, terminating(current, self._clock))
        else:
            self._later(kind, self.remove(kind, ref.namespace, ref.name))

    async def get(self, resource: str, ref: ObjectRef) -> KubeObject | None:
        """Read an object."""
        kind = KINDS[resource]
        found = self.find(kind, ref.namespace, ref.name)
        if found is None or (ref.uid and found["metadata"].get("uid") != ref.uid):
            return None
        return _shown(kind, found)

    async def list(
        self,
        resource: str,
        namespace: str,
        labels: Mapping[str, str],
        fields: Mapping[str, str] | None = None,
    ) -> list[KubeObject]:
        """Read the objects of a namespace that have all these labels."""
        return [
            _shown(KINDS[resource], item)
            for item in self.of_kind(KINDS[resource])
            if item["metadata"].get("namespace") == namespace
            and labels.items() <= item["metadata"].get("labels", {}).items()
        ]

    # --- the host's side: events -------------------------------------------------------------------

    def record_event(
        self,
        pod: Pod,
        type: str,
        reason: str,
        action: str,
        note: str,
        related: ObjectRef | None = None,
        related_kind: str = "Pod",
    ) -> None:
        """Record an Event about a pod."""
        self.create_event(
            EventRecord(
                regarding=pod.ref,
                type=type,
                reason=reason,
                action=action,
                note=note,
                reporter=pod.scheduler_name,
                related=related,
                related_kind=related_kind,
            )
        )

    def create_event(self, event: EventRecord) -> None:
        """Record any Event."""
        shown: Json = {
            "type": event.type,
            "reason": event.reason,
            "action": event.action,
            "regarding": f"{event.regarding_kind} {event.regarding.key}",
            "note": event.note,
        }
        if event.related is not None:
            shown["related"] = f"{event.related_kind} {event.related.key}"
        self.events.append(shown)

    # --- the host's side: watches ------------------------------------------------------------------

    async def start(self, handler: WatchHandler, resources: Collection[str]) -> None:
        """Hand over nothing: the script gives the events to the handlers itself."""

    async def watch(self, resources: Collection[str]) -> None:
        """Hand over nothing."""

    async def catch_up(self, timeout_s: float) -> Sequence[str]:
        """Return that nothing is behind."""
        return []

    async def stop(self) -> None:
        """Have no effect."""

    def cut(self) -> None:
        """Have no effect."""

    # --- steps -------------------------------------------------------------------------------------

    def _record(self, kind: str, ref: ObjectRef, call: Json) -> None:
        self.calls.setdefault(f"{kind} {ref.key}", []).append(call)

    def _current(self, kind: str, ref: ObjectRef, call: Json) -> Json:
        found = self.find(kind, ref.namespace, ref.name)
        if found is None or (ref.uid and found["metadata"].get("uid") != ref.uid):
            call["error"] = "NotFound"
            raise NotFoundError(kind, ref.key, server_message=f'{kind.lower()}s "{ref.name}" not found')
        return found

    def _written(self, kind: str, item: Json) -> KubeObject:
        event = self.put(kind, item)
        self._later(kind, event)
        if event.new is None:
            raise UnavailableError(kind, "", "the object is gone")
        return event.new

    def _later(self, kind: str, event: WatchEvent | None) -> None:
        if event is not None and (seen := event.new or event.old) is not None:
            self._events.append((kind, seen.ref.name, len(self._events), event))


def terminating(item: Json, clock: Clock) -> Json:
    """Return an object with a deletion time."""
    if item["metadata"].get("deletionTimestamp"):
        return item
    return {**item, "metadata": {**item["metadata"], "deletionTimestamp": format_time(clock.now_s())}}


def conditions_of(item: Json) -> list[Json]:
    """Return the conditions of an object, without their times and empty fields but the message."""
    return [
        {key: value for key, value in one.items() if key not in _TIMES and (value or key == "message")}
        for one in item.get("status", {}).get("conditions", ())
    ]


def _status_of(item: Json) -> Json:
    after: Json = {"conditions": conditions_of(item)}
    if node := item.get("status", {}).get("nominatedNodeName"):
        after["nominatedNodeName"] = node
    return {key: value for key, value in after.items() if value}


def _shown(kind: str, item: Json) -> KubeObject:
    return KubeObject(item.get("apiVersion", ""), kind, parsed=item)
