"""Cases of the level core about the queue: PreEnqueue, SortKeys and QueueingHints."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from berth_sdk.conformance import checks
from berth_sdk.conformance.answers import Answers, must_agree
from berth_sdk.conformance.case import BrokenError, Subject, case, declares
from berth_sdk.conformance.host import Host
from berth_sdk.conformance.timing import answers_in_time
from berth_sdk.conformance.way import lacking
from berth_sdk.conformance.world import GI, incoming, node_object, pod_object
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import queue_pb2

MOST: Final = 256
"""The most pods of one call."""


def asks_hints(subject: Subject) -> bool:
    """Return True if an event of the plugin says ASK_PLUGIN."""
    return any(event.hint == identity.EventInterest.HINT_ASK_PLUGIN for event in subject.plugin.events)


def asked_about(subject: Subject) -> str:
    """Return the resource of the first event of a plugin that says ASK_PLUGIN."""
    asking = identity.EventInterest.HINT_ASK_PLUGIN
    return next(event.resource for event in subject.plugin.events if event.hint == asking)


@case(
    "preEnqueue.answer",
    "core",
    "There is one status for each pod, for 1, 7 and 256 pods.",
    declares("PRE_ENQUEUE"),
)
def _pre_enqueue_answer(host: Host) -> None:
    for count in (1, 7, MOST):
        answer = host.call("PreEnqueue", queue_request(host, queue_pb2.PreEnqueueRequest, count))
        if len(answer.statuses) != count:
            raise BrokenError(f"PreEnqueue answers {len(answer.statuses)} statuses for {count} pods")
        for status in answer.statuses:
            checks.status("PreEnqueue", status)


@case(
    "preEnqueue.order",
    "core",
    "The statuses are in the order of the pods: each pod gets in a batch, in any order, what it gets alone.",
    declares("PRE_ENQUEUE"),
)
def _pre_enqueue_order(host: Host) -> None:
    def statuses(pods: Sequence[queue_pb2.QueuedPod]) -> list[str]:
        request = queue_request(host, queue_pb2.PreEnqueueRequest, 0)
        request.pods.extend(pods)
        return [checks.reasons(status) for status in host.call("PreEnqueue", request).statuses]

    _same_in_any_order(host, "PreEnqueue", statuses)


@case(
    "preEnqueue.changed-pod",
    "core",
    "A pod that was rejected and then changed, with the same uid, is let in where a new pod like it is.",
    declares("PRE_ENQUEUE"),
)
def _pre_enqueue_changed(host: Host) -> None:
    def status(pod: queue_pb2.QueuedPod) -> str:
        request = queue_request(host, queue_pb2.PreEnqueueRequest, 0)
        request.pods.append(pod)
        return checks.reasons(host.call("PreEnqueue", request).statuses[0])

    # A plugin may remember that it has let a pod in.
    _follows_the_pod(host, "PreEnqueue", status, lambda said: said == "CODE_SUCCESS")


@case(
    "preEnqueue.in-time",
    "core",
    "PreEnqueue answers for 256 pods within its deadline: the best of five, after some to warm up.",
    declares("PRE_ENQUEUE"),
)
def _pre_enqueue_in_time(host: Host) -> None:
    _answers_in_time(host, "PreEnqueue", queue_request(host, queue_pb2.PreEnqueueRequest, MOST))


@case(
    "queueSort.answer",
    "core",
    "There is one key of at most 256 bytes for each pod, and the same request gets the same keys.",
    declares("QUEUE_SORT"),
)
def _sort_keys_answer(host: Host) -> None:
    for count in (1, 7, MOST):
        request = queue_request(host, queue_pb2.SortKeysRequest, count)
        answer = host.call("SortKeys", request)
        if len(answer.keys) != count:
            raise BrokenError(f"SortKeys answers {len(answer.keys)} keys for {count} pods")
        longest = max(len(key) for key in answer.keys)
        if longest > 256:
            raise BrokenError(f"SortKeys answers a key of {longest} bytes; 256 is the limit")
        if host.call("SortKeys", request).keys != answer.keys:
            raise BrokenError("SortKeys answers other keys to the same request")


@case(
    "queueSort.order",
    "core",
    "The keys are in the order of the pods: each pod gets in a batch, in any order, what it gets alone.",
    declares("QUEUE_SORT"),
)
def _sort_keys_order(host: Host) -> None:
    def keys(pods: Sequence[queue_pb2.QueuedPod]) -> list[str]:
        request = queue_request(host, queue_pb2.SortKeysRequest, 0)
        request.pods.extend(pods)
        return [key.hex() for key in host.call("SortKeys", request).keys]

    _same_in_any_order(host, "SortKeys", keys)


@case(
    "queueSort.changed-pod",
    "core",
    "A pod that was changed, with the same uid, gets the key of a new pod like it.",
    declares("QUEUE_SORT"),
)
def _sort_keys_changed(host: Host) -> None:
    def key(pod: queue_pb2.QueuedPod) -> str:
        request = queue_request(host, queue_pb2.SortKeysRequest, 0)
        request.pods.append(pod)
        keys: Sequence[bytes] = host.call("SortKeys", request).keys
        return keys[0].hex()

    _follows_the_pod(host, "SortKeys", key, lambda _said: True)


@case(
    "queueSort.in-time",
    "core",
    "SortKeys answers for 256 pods within its deadline: the best of five, after some to warm up.",
    declares("QUEUE_SORT"),
)
def _sort_keys_in_time(host: Host) -> None:
    _answers_in_time(host, "SortKeys", queue_request(host, queue_pb2.SortKeysRequest, MOST))


@case(
    "queueingHints.answer",
    "core",
    "There is one hint for each pod, for an added, a changed and a deleted object, and for an "
    "unknown action.",
    asks_hints,
)
def _queueing_hints_answer(host: Host) -> None:
    resource = asked_about(host.subject)
    node = node_object(host.world.candidates[0]) if resource == "Node" else None
    for action, old, new in (
        ("add", None, node),
        ("update", node, node),
        ("delete", node, None),
        ("x-new", None, node),
    ):
        request = queue_request(host, queue_pb2.QueueingHintsRequest, 5)
        found = queue_pb2.ClusterEvent(resource=resource, action=action, old_object=old, new_object=new)
        request.event.CopyFrom(found)
        answer = host.call("QueueingHints", request)
        if len(answer.queue) != 5:
            raise BrokenError(f"QueueingHints answers {len(answer.queue)} hints for 5 pods")


def _same_in_any_order(
    host: Host, rpc: str, ask: Callable[[Sequence[queue_pb2.QueuedPod]], list[str]]
) -> None:
    """Check that each pod gets in a batch what it gets alone, also in other orders.

    `ask` makes the call, and returns what each pod got. Raises BrokenError, and SkippedError if the plugin
    answers the same about all pods, so that no order shows.
    """
    pods = _different(host)
    orders = (pods, pods[::-1], pods[1::2] + pods[::2])

    def asked() -> tuple[Answers, Answers]:
        alone = {_named(rpc, pod): ask([pod])[0] for pod in pods}
        if len(set(alone.values())) == 1:
            raise lacking(host, f"{rpc} answers the same about all of the kit's pods")
        together: Answers = {}
        for number, order in enumerate(orders):
            found = ask(order)
            if len(found) != len(order):
                raise BrokenError(f"{rpc} answers {len(found)} times about {len(order)} pods")
            together |= {
                f"{_named(rpc, pod)}, order {number}": said for pod, said in zip(order, found, strict=True)
            }
        every = {
            f"{name}, order {number}": said for name, said in alone.items() for number in range(len(orders))
        }
        return every, together

    must_agree(asked, "a pod gets in a batch another answer than alone")


def _follows_the_pod(
    host: Host,
    rpc: str,
    ask: Callable[[queue_pb2.QueuedPod], str],
    counts: Callable[[str], bool],
) -> None:
    """Check that a pod which was changed gets what a new pod with the same fields gets.

    `ask` makes the call about one pod. `counts`: whether the answer about the new pod says what the other one
    must be. Raises BrokenError, and SkippedError if no answer does, or if answers depend on the pod's name.
    """

    def asked() -> tuple[Answers, Answers]:
        new: Answers = {}
        changed: Answers = {}
        for number, change in enumerate(_CHANGES):
            twins = [ask(_plain(host)) for _ in range(2)]
            pod = _plain(host)
            before = _plain(host)
            before.summary.CopyFrom(pod.summary)
            change(before.summary)
            _complete(host, before)
            ask(before)
            if twins[0] == twins[1] and counts(twins[0]):
                new[f"{rpc}, pod {number}"] = twins[0]
                changed[f"{rpc}, pod {number}"] = ask(pod)
        if not new:
            raise lacking(host, f"{rpc} lets the kit's pod in nowhere, or answers by its name")
        return new, changed

    must_agree(asked, "a new pod, and one with the same fields that had others before, get different answers")


_plain_pods = itertools.count()


def _plain(host: Host) -> queue_pb2.QueuedPod:
    """Return a queued pod that no call had, like every other one but for its name and uid."""
    made: queue_pb2.QueuedPod = queue_request(host, queue_pb2.PreEnqueueRequest, 1).pods[0]
    made.summary.CopyFrom(incoming(f"kit-plain-{next(_plain_pods)}", host.target.pod))
    _complete(host, made)
    return made


def _named(rpc: str, pod: queue_pb2.QueuedPod) -> str:
    return f"{rpc} of {pod.summary.ref.name}"


def _different(host: Host) -> list[queue_pb2.QueuedPod]:
    """Return pods that differ in what a queue may look at."""
    pods = list(queue_request(host, queue_pb2.PreEnqueueRequest, 2 * len(_CHANGES)).pods)
    for number, queued in enumerate(pods):
        _CHANGES[number % len(_CHANGES)](queued.summary)
        queued.summary.created_at.seconds += 60 * (7 * number % len(pods))
        queued.added_at.seconds += 60 * (5 * number % len(pods))
        _complete(host, queued)
    return pods


def _complete(host: Host, queued: queue_pb2.QueuedPod) -> None:
    """Bring the object of a queued pod, if it has one, to its summary."""
    if queued.HasField("object"):
        queued.object.CopyFrom(_whole(queued.summary, host.target.pod_manifest))


def _whole(pod: pb.PodSummary, manifest: str) -> pb.KubeObject:
    """Return the core/v1 Pod of a summary, with what `_CHANGES` changes."""
    made = pod_object(pod, "incoming", manifest, sized=True)
    raw = json.loads(made.raw)
    raw["metadata"] |= {"labels": dict(pod.labels), "annotations": dict(pod.annotations)}
    raw["spec"]["schedulingGates"] = [{"name": name} for name in pod.scheduling_gates]
    raw["spec"]["priority"] = pod.priority
    made.raw = json.dumps(raw).encode()
    return made


def _gate(pod: pb.PodSummary) -> None:
    pod.scheduling_gates.append("kit.example.com/gate")


def _prioritize(pod: pb.PodSummary) -> None:
    pod.priority += 1000


def _defer(pod: pb.PodSummary) -> None:
    pod.priority = -7


def _enlarge(pod: pb.PodSummary) -> None:
    for amounts in (pod.requests, pod.non_zero_requests):
        amounts["cpu"], amounts["memory"] = 64_000, 512 * GI
    pod.score_requests.clear()


def _strip(pod: pb.PodSummary) -> None:
    pod.labels.clear()
    pod.annotations.clear()


_CHANGES: Final[tuple[Callable[[pb.PodSummary], None], ...]] = (
    _gate,
    lambda _pod: None,
    _prioritize,
    _strip,
    _enlarge,
    _defer,
)
"""The changes by which the pods of a batch differ."""


def _answers_in_time(host: Host, rpc: str, request: Any) -> None:
    """Check the time of one call of the queue."""

    def ask(patience_s: float) -> None:
        host.call(rpc, request, patience_s)

    answers_in_time(host, rpc, ask)


def queue_request(host: Host, kind: Any, count: int) -> Any:
    """Return a request of the queue about `count` pods. `kind`: its message."""
    request = kind(plugin=host.subject.plugin.name, attachment_id=host.attachment_id)
    for number in range(count):
        pod = incoming(f"kit-queued-{number}", host.target.pod)
        queued = request.pods.add(summary=pod, attempts=number)
        queued.added_at.FromSeconds(1_763_638_000 + number)
        if identity.DeclaredNeed.KIND_WHOLE_POD in host.subject.kinds:
            queued.object.CopyFrom(pod_object(pod, "incoming", host.target.pod_manifest))
    return request
