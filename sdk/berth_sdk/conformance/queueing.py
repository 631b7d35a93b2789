"""Cases of the level core about the queue: PreEnqueue, SortKeys and QueueingHints."""

from __future__ import annotations

from typing import Any, Final

from berth_sdk.conformance import checks
from berth_sdk.conformance.case import BrokenError, Subject, case, declares
from berth_sdk.conformance.host import Host
from berth_sdk.conformance.timing import answers_in_time
from berth_sdk.conformance.world import incoming, node_object, pod_object
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import queue_pb2

MOST: Final = 256
"""The most pods of one call."""


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
    for count in (1, 7, MOST):
        answer = host.call("PreEnqueue", _queue(host, queue_pb2.PreEnqueueRequest, count))
        if len(answer.statuses) != count:
            raise BrokenError(f"PreEnqueue answers {len(answer.statuses)} statuses for {count} pods")
        for status in answer.statuses:
            checks.status("PreEnqueue", status)


@case(
    "preEnqueue.in-time",
    "core",
    "PreEnqueue answers for 256 pods within its deadline: the best of five, after some to warm up.",
    declares("PRE_ENQUEUE"),
)
def _pre_enqueue_in_time(host: Host) -> None:
    _answers_in_time(host, "PreEnqueue", _queue(host, queue_pb2.PreEnqueueRequest, MOST))


@case(
    "queueSort.answer",
    "core",
    "There is one key of at most 256 bytes for each pod, and the same request gets the same keys.",
    declares("QUEUE_SORT"),
)
def _sort_keys_answer(host: Host) -> None:
    for count in (1, 7, MOST):
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
    "queueSort.in-time",
    "core",
    "SortKeys answers for 256 pods within its deadline: the best of five, after some to warm up.",
    declares("QUEUE_SORT"),
)
def _sort_keys_in_time(host: Host) -> None:
    _answers_in_time(host, "SortKeys", _queue(host, queue_pb2.SortKeysRequest, MOST))


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


def _answers_in_time(host: Host, rpc: str, request: Any) -> None:
    """Check the time of one call of the queue."""

    def ask(patience_s: float) -> None:
        host.call(rpc, request, patience_s)

    answers_in_time(host, rpc, ask)


def _queue(host: Host, kind: Any, count: int) -> Any:
    request = kind(plugin=host.subject.plugin.name, attachment_id=host.attachment_id)
    for number in range(count):
        pod = incoming(f"kit-queued-{number}", host.target.pod)
        queued = request.pods.add(summary=pod, attempts=number)
        queued.added_at.FromSeconds(1_763_638_000 + number)
        if identity.DeclaredNeed.KIND_WHOLE_POD in host.subject.kinds:
            queued.object.CopyFrom(pod_object(pod, "incoming", host.target.pod_manifest))
    return request
