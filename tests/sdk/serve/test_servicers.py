"""SyncState and the queue's calls over a real socket."""

from __future__ import annotations

from typing import Any, ClassVar

import grpc
import pytest
from berth_sdk import (
    CycleState,
    DependsOn,
    EventInterest,
    Handle,
    Hint,
    Need,
    Plugin,
    Pod,
    QueuedPod,
    Status,
    sort_keys,
)
from berth_sdk.events import ClusterEvent
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import queue_pb2, state_pb2
from berth_sdk.wire import records as wire
from google.protobuf.timestamp_pb2 import Timestamp
from support.sdk_server import EPOCH, PROFILE, RawHost, full_state, node_state, plugin_args, refused

from .conftest import Serve

CLAIMS = "persistentvolumeclaims"


class Gate(Plugin):
    """Lets a pod in when its claim is there; sorts by priority; asks about claims."""

    needs = (Need.nodes(), Need.objects(CLAIMS))
    events = (EventInterest("PersistentVolumeClaim", ("add",), Hint.ASK_PLUGIN),)
    hints: ClassVar[list[Any]] = []

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self.word = args.get("word", "no claim")

    def pre_enqueue(self, pod: QueuedPod) -> Status | None:
        if "broken" in pod.pod.claims:
            raise LookupError("no price list")
        claims = self.handle.objects(CLAIMS)
        missing = [claim for claim in pod.pod.claims if claims.get(claim, pod.pod.namespace) is None]
        return Status.unresolvable(self.word) if missing else None

    async def sort_key(self, pod: QueuedPod) -> bytes:
        return sort_keys.join(
            sort_keys.descending(sort_keys.integer(pod.pod.priority)), sort_keys.time(pod.added_at_s)
        )

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        self.hints.append((event.action, event.old, event.new))
        if pod.name == "broken":
            raise LookupError("no price list")
        return pod.name == "helped"

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Any) -> Status:
        return Status.unschedulable(",".join(nodes.names))


@pytest.fixture
def host(serve: Serve) -> RawHost:
    Gate.hints.clear()
    host = serve(Gate).host
    host.attach()
    return host


def queued(
    name: str, *claims: str, priority: int = 0, added_s: int = 5, **fields: Any
) -> queue_pb2.QueuedPod:
    pod = Pod(name=name, uid=name, claims=claims, priority=priority, **fields)
    return queue_pb2.QueuedPod(summary=wire.encode_pod(pod), added_at=Timestamp(seconds=added_s))


def claim_state(name: str, generation: int) -> pb.ObjectState:
    item = KubeObject("v1", "PersistentVolumeClaim", parsed={"metadata": {"name": name}})
    ref = wire.encode_ref(ObjectRef(name=name, namespace="default"))
    return pb.ObjectState(resource=CLAIMS, generation=generation, ref=ref, object=wire.encode_object(item))


def names_seen(host: RawHost) -> str:
    (group,) = host.filter("Gate", Pod(name="p", uid="p")).verdicts.rejected
    return group.status.reasons[0]


# --- state -----------------------------------------------------------------------------------------


def test_chunks_are_visible_at_the_last_one(host: RawHost) -> None:
    target = pb.StateVersion(epoch=EPOCH, generation=1)
    first = pb.StateDelta(target=target, upserts=[node_state(0, Node(name="a"))])
    last = pb.StateDelta(
        target=target, upserts=[node_state(1, Node(name="b"))], node_count=2, generation_sum=3
    )
    reply = host.sync(first, last)
    assert (reply.have.generation, reply.need_full) == (1, False)
    assert names_seen(host) == "a,b"


def test_a_stream_without_its_last_chunk_changes_nothing(host: RawHost) -> None:
    host.give_nodes(Node(name="a"))
    chunk = full_state([node_state(0, Node(name="b"))], generation=2)
    reply = host.state.SyncState(iter([state_pb2.SyncStateRequest(chunk=chunk)]))
    assert reply.have.generation == 1
    assert names_seen(host) == "a"


def test_a_delta_on_another_base_asks_for_everything(host: RawHost) -> None:
    host.give_nodes(Node(name="a"))
    delta = full_state([node_state(1, Node(name="b"))], generation=9)
    delta.base.CopyFrom(pb.StateVersion(epoch=EPOCH, generation=8))
    reply = host.sync(delta)
    assert (reply.need_full, reply.have.generation) == (True, 1)


def test_a_digest_that_differs_asks_for_everything(host: RawHost) -> None:
    delta = full_state([node_state(0, Node(name="a"))])
    delta.generation_sum += 1
    assert host.sync(delta).need_full


def test_a_gap_in_the_chunks_is_the_hosts_fault(host: RawHost) -> None:
    chunk = full_state([])
    error = refused(
        lambda: host.state.SyncState(iter([state_pb2.SyncStateRequest(chunk=chunk, sequence=1, last=True)]))
    )
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_new_epoch_forgets_what_was_remembered_by_generation(serve: Serve) -> None:
    asked: list[str] = []

    class Pure(Plugin):
        depends_on = DependsOn.ROW

        def filter(self, state: CycleState, pod: Pod, node: Any) -> None:
            asked.append(node.name)

    host = serve(Pure).host
    host.attach()
    for epoch in (1, 2):
        host.sync(full_state([node_state(0, Node(name="a"))], epoch=epoch))
        for cycle in range(2):
            host.filter("Pure", Pod(name="p", uid="p"), f"{epoch}-{cycle}")
    assert asked == ["a", "a"]


# --- the queue -------------------------------------------------------------------------------------


def test_pre_enqueue_answers_against_the_version_that_the_request_brings(host: RawHost) -> None:
    host.give_nodes(Node(name="a"))
    pods = [queued("free"), queued("waiting", "data")]
    before = host.queue.PreEnqueue(queue_pb2.PreEnqueueRequest(plugin="Gate", pods=pods))
    delta = pb.StateDelta(
        base=host.version,
        target=pb.StateVersion(epoch=EPOCH, generation=2),
        objects=[claim_state("data", 5)],
        node_count=1,
        object_count=1,
        generation_sum=6,
    )
    after = host.queue.PreEnqueue(
        queue_pb2.PreEnqueueRequest(plugin="Gate", pods=pods, version=delta.target, delta=delta)
    )
    unresolvable = pb.PluginStatus.CODE_UNSCHEDULABLE_AND_UNRESOLVABLE
    assert [status.code for status in before.statuses] == [pb.PluginStatus.CODE_SUCCESS, unresolvable]
    assert [status.code for status in after.statuses] == [pb.PluginStatus.CODE_SUCCESS] * 2


def test_a_queue_call_for_another_version_fails_its_precondition(host: RawHost) -> None:
    host.give_nodes(Node(name="a"))
    for call, request_type in (
        (host.queue.PreEnqueue, queue_pb2.PreEnqueueRequest),
        (host.queue.QueueingHints, queue_pb2.QueueingHintsRequest),
    ):
        request: Any = request_type(plugin="Gate", version=pb.StateVersion(epoch=EPOCH, generation=4))
        error = refused(lambda call=call, request=request: call(request))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "the copy is at 7/1" in (error.details() or "")


def test_a_queue_call_is_answered_by_a_newer_copy_of_the_same_epoch(host: RawHost) -> None:
    host.give_nodes(Node(name="a"))
    pods = [queued("free")]
    older = pb.StateVersion(epoch=EPOCH, generation=0)
    delta = pb.StateDelta(base=older, target=older)
    for request in (
        queue_pb2.PreEnqueueRequest(plugin="Gate", pods=pods, version=older),
        queue_pb2.PreEnqueueRequest(plugin="Gate", pods=pods, version=older, delta=delta),
    ):
        assert len(host.queue.PreEnqueue(request).statuses) == 1
    other = queue_pb2.PreEnqueueRequest(plugin="Gate", version=pb.StateVersion(epoch=EPOCH + 1))
    error = refused(lambda: host.queue.PreEnqueue(other))
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_the_pods_profile_chooses_the_arguments(host: RawHost) -> None:
    host.handshake("b")
    host.configure(
        [
            plugin_args("Gate", [1], args={"word": "first"}),
            plugin_args("Gate", [1], profile="strict", args={"word": "second"}),
        ],
        "b",
    )
    pods = [queued("a", "x"), queued("b", "x", scheduler_name="strict"), queued("c", "x", scheduler_name="?")]
    reply = host.queue.PreEnqueue(queue_pb2.PreEnqueueRequest(plugin="Gate", pods=pods))
    assert [status.reasons[0] for status in reply.statuses] == ["first", "second", "first"]
    assert PROFILE == "default-scheduler"


def test_sort_keys_order_the_pods(host: RawHost) -> None:
    pods = [queued("late", added_s=9), queued("early", added_s=3), queued("first", priority=7, added_s=9)]
    keys = host.queue.SortKeys(queue_pb2.SortKeysRequest(plugin="Gate", pods=pods)).keys
    ordered = sorted(zip(keys, ("late", "early", "first"), strict=True))
    assert [name for _, name in ordered] == ["first", "early", "late"]


def test_hints_are_asked_per_pod_and_a_fault_counts_as_yes(host: RawHost) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n9"}}
    event = queue_pb2.ClusterEvent(
        resource="Node", action="add", new_object=wire.encode_object(KubeObject.of(node))
    )
    pods = [queued("helped"), queued("other"), queued("broken")]
    reply = host.queue.QueueingHints(queue_pb2.QueueingHintsRequest(plugin="Gate", event=event, pods=pods))
    assert list(reply.queue) == [True, False, True]
    action, old, new = Gate.hints[0]
    assert (action, old, type(new), new.name) == ("add", None, Node, "n9")


@pytest.mark.parametrize("rpc", ["PreEnqueue", "SortKeys", "QueueingHints"])
def test_a_queue_call_about_a_plugin_that_is_not_configured_is_refused(host: RawHost, rpc: str) -> None:
    request = getattr(queue_pb2, f"{rpc}Request")(plugin="Door", pods=[queued("helped")])
    error = refused(lambda: getattr(host.queue, rpc)(request))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "plugin 'Door' is not configured here"


def test_an_event_that_cannot_be_read_is_the_hosts_fault(host: RawHost) -> None:
    event = queue_pb2.ClusterEvent(
        resource="Pod", action="add", new_object=pb.KubeObject(api_version="v1", kind="Pod", raw=b"{")
    )
    error = refused(
        lambda: host.queue.QueueingHints(queue_pb2.QueueingHintsRequest(plugin="Gate", event=event))
    )
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_queue_method_that_raises_is_an_internal_error(host: RawHost) -> None:
    request = queue_pb2.PreEnqueueRequest(plugin="Gate", pods=[queued("p", "broken")])
    error = refused(lambda: host.queue.PreEnqueue(request))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert (error.details() or "").startswith("Gate.pre_enqueue raised LookupError: no price list at ")
