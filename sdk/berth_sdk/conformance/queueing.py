"""Cases of the level core about the queue: PreEnqueue, SortKeys and QueueingHints."""

from __future__ import annotations

from typing import Any

from berth_sdk.conformance import checks
from berth_sdk.conformance.case import BrokenError, Subject, case, declares
from berth_sdk.conformance.host import Host
from berth_sdk.conformance.world import incoming, node_object, pod_object
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import queue_pb2


def asks_hints(subject: Subject) -> bool:
    """Return True if an event of the plugin says ASK_PLUGIN."""
    return any(event.hint == identity.EventInterest.HINT_ASK_PLUGIN for event in subject.plugin.events)


@case(
    "preEnqueue.answer",
    "core",
    "There is one status for each pod, for 1, 7 and 256 pods.",
    declares("PRE_ENQUEUE"),
)
def _pre_enqueue_answer(host: Host) -> None:
    for count in (1, 7, 256):
        answer = host.call("PreEnqueue", _queue(host, queue_pb2.PreEnqueueRequest, count))
        if len(answer.statuses) != count:
            raise BrokenError(f"PreEnqueue answers {len(answer.statuses)} statuses for {count} pods")
        for status in answer.statuses:
            checks.status("PreEnqueue", status)


@case(
    "queueSort.answer",
    "core",
    "There is one key of at most 256 bytes for each pod, and the same request gets the same keys.",
    declares("QUEUE_SORT"),
)
def _sort_keys_answer(host: Host) -> None:
    for count in (1, 7, 256):
        request = _queue(host, queue_pb2.SortKeysRequest, count)
        answer = host.call("SortKeys", request)
        if len(answer.keys) != count:
            raise BrokenError(f"SortKeys answers {len(answer.keys)} keys for {count} pods")
        longest = max(len(key) for key in answer.keys)
        if longest > 256:
            raise BrokenError(f"SortKeys answers a key of {longest} bytes; 256 is the limit")
        if host.call("SortKeys", request).keys != answer.keys:
            raise BrokenError("SortKeys answers other keys to the same request")


@case(
    "queueingHints.answer",
    "core",
    "There is one hint for each pod, for an added, a changed and a deleted object, and for an "
    "unknown action.",
    asks_hints,
)
def _queueing_hints_answer(host: Host) -> None:
    event = next(
        item for item in host.subject.plugin.events if item.hint == identity.EventInterest.HINT_ASK_PLUGIN
    )
    node = node_object(host.world.candidates[0]) if event.resource == "Node" else None
    for action, old, new in (
        ("add", None, node),
        ("update", node, node),
        ("delete", node, None),
        ("x-new", None, node),
    ):
        request = _queue(host, queue_pb2.QueueingHintsRequest, 5)
        found = queue_pb2.ClusterEvent(resource=event.resource, action=action, old_object=old, new_object=new)
        request.event.CopyFrom(found)
        answer = host.call("QueueingHints", request)
        if len(answer.queue) != 5:
            raise BrokenError(f"QueueingHints answers {len(answer.queue)} hints for 5 pods")


def _queue(host: Host, kind: Any, count: int) -> Any:
    request = kind(plugin=host.subject.plugin.name, attachment_id=host.attachment_id)
    for number in range(count):
        pod = incoming(f"kit-queued-{number}", host.target.pod)
        queued = request.pods.add(summary=pod, attempts=number)
        queued.added_at.FromSeconds(1_763_638_000 + number)
        if identity.DeclaredNeed.KIND_WHOLE_POD in host.subject.kinds:
            queued.object.CopyFrom(pod_object(pod, "incoming", host.target.pod_manifest))
    return request
