"""The handle of a served plugin: calls to a real HandleService, and reads of the copy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest
from berth_sdk import (
    Cancellation,
    CycleState,
    Decision,
    Handle,
    HandleError,
    Need,
    NodeMode,
    NodeScores,
    NominatedPod,
    Nomination,
    Plugin,
    Pod,
    PostFilterResult,
    Status,
    UndeclaredError,
    WaitingPod,
)
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import handle_pb2, identity_pb2
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.plugin.v1.handle_pb2_grpc import HandleServiceServicer, add_HandleServiceServicer_to_server
from berth_sdk.serve.handle_client import CALL_DEADLINE_S
from berth_sdk.wire import records as wire
from berth_sdk.wire.pushback import PUSHBACK
from google.protobuf.timestamp_pb2 import Timestamp
from support.sdk_server import RawHost, full_state, node_state

from .conftest import Serve

POD = Pod(name="web", uid="u1")
CLAIMS = "persistentvolumeclaims"


class Host(HandleServiceServicer):
    """The host's side: knows one token, notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.waits_ms: list[int] = []
        """How long the next callers are told to wait."""
        self.results = [handle_pb2.DecideWaitingPodsResponse.RESULT_STORED_EARLY]
        self.cancellations = [handle_pb2.CancelBindingResponse.RESULT_CANCELLED]
        self.nominations = [handle_pb2.NominateResponse.RESULT_APPLIED]
        self.scores = handle_pb2.RunScoresResponse()
        self.on_requeue: Callable[[], None] = lambda: None

    def _note(self, request: Any, context: Any) -> None:
        metadata = dict(context.invocation_metadata())
        if metadata.get("authorization") != "Bearer secret":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is unknown")
        if self.waits_ms:
            context.set_trailing_metadata(((PUSHBACK, str(self.waits_ms.pop(0))),))
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "asked too often")
        self.asked.append(request)

    def ListWaitingPods(  # noqa: N802
        self, request: Any, context: Any
    ) -> Iterator[handle_pb2.ListWaitingPodsResponse]:
        self._note(request, context)
        waiting = handle_pb2.WaitingPod(
            pod=wire.encode_pod(POD),
            cycle_id="c1",
            node_name="n0",
            pending_plugins=["Asker"],
            deadline=Timestamp(seconds=9),
        )
        yield handle_pb2.ListWaitingPodsResponse(pods=[waiting])

    def DecideWaitingPods(self, request: Any, context: Any) -> handle_pb2.DecideWaitingPodsResponse:  # noqa: N802
        self._note(request, context)
        return handle_pb2.DecideWaitingPodsResponse(results=self.results)

    def CancelBinding(self, request: Any, context: Any) -> handle_pb2.CancelBindingResponse:  # noqa: N802
        self._note(request, context)
        return handle_pb2.CancelBindingResponse(results=self.cancellations)

    def RunScores(self, request: Any, context: Any) -> handle_pb2.RunScoresResponse:  # noqa: N802
        self._note(request, context)
        return self.scores

    def ListNominatedPods(  # noqa: N802
        self, request: Any, context: Any
    ) -> Iterator[handle_pb2.ListNominatedPodsResponse]:
        self._note(request, context)
        for name in ("n0", "n1"):
            nominated = handle_pb2.NominatedPod(pod=wire.encode_pod(POD), node_name=name)
            yield handle_pb2.ListNominatedPodsResponse(pods=[nominated])

    def Nominate(self, request: Any, context: Any) -> handle_pb2.NominateResponse:  # noqa: N802
        self._note(request, context)
        return handle_pb2.NominateResponse(results=self.nominations)

    def Requeue(self, request: Any, context: Any) -> handle_pb2.RequeueResponse:  # noqa: N802
        self._note(request, context)
        self.on_requeue()
        return handle_pb2.RequeueResponse(moved=3)

    def InvalidateSortKeys(self, request: Any, context: Any) -> handle_pb2.InvalidateSortKeysResponse:  # noqa: N802
        self._note(request, context)
        return handle_pb2.InvalidateSortKeysResponse()

    def RecordEvents(self, request: Any, context: Any) -> handle_pb2.RecordEventsResponse:  # noqa: N802
        self._note(request, context)
        return handle_pb2.RecordEventsResponse()


@pytest.fixture
def way_back(tmp_path: Path) -> Iterator[tuple[Host, identity_pb2.HandleEndpoint]]:
    service = Host()
    server = grpc.server(ThreadPoolExecutor(4))
    add_HandleServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call, unused-ignore]
    target = f"unix:{tmp_path / 'handle.sock'}"
    server.add_insecure_port(target)
    server.start()
    yield service, identity_pb2.HandleEndpoint(target=target, token="secret")
    server.stop(None).wait()


class Asker(Plugin):
    """Keeps its handle where the test finds it."""

    needs: tuple[Need, ...] = (Need.nodes(), Need.objects(CLAIMS))
    handles: ClassVar[list[Handle]] = []

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self.handles.append(handle)

    def filter(self, state: CycleState, pod: Pod, node: Any) -> None:
        return None

    def post_filter(self, state: CycleState, pod: Pod, rejections: Any) -> PostFilterResult:
        moved = self.handle.requeue(reason="from PostFilter")
        return PostFilterResult(Status.unschedulable(f"{moved} moved"))


class AsyncAsker(Asker):
    """Asks from a coroutine."""

    async def post_filter(self, state: CycleState, pod: Pod, rejections: Any) -> PostFilterResult:  # type: ignore[override]
        import asyncio

        moved = await asyncio.to_thread(self.handle.requeue, reason="from PostFilter")
        return PostFilterResult(Status.unschedulable(f"{moved} moved"))


Way = tuple[Host, identity_pb2.HandleEndpoint]


@pytest.fixture
def attached(serve: Serve, way_back: Way) -> tuple[Host, Handle, RawHost]:
    Asker.handles.clear()
    service, endpoint = way_back
    host = serve(Asker).host
    host.attach(handle=endpoint)
    return service, Asker.handles[-1], host


Attached = tuple[Host, Handle, RawHost]


def test_waiting_pods_come_as_records(attached: Attached) -> None:
    service, handle, _ = attached
    (waiting,) = handle.waiting_pods(only_mine=True)
    assert waiting == WaitingPod(
        pod=POD.as_summary(),
        cycle_id="c1",
        node_name="n0",
        pending_plugins=("Asker",),
        deadline_s=9.0,
    )
    assert service.asked == [handle_pb2.ListWaitingPodsRequest(plugin="Asker", only_mine=True)]


def test_allow_and_reject_name_pod_and_cycle(attached: Attached) -> None:
    service, handle, _ = attached
    (waiting,) = handle.waiting_pods()
    assert handle.allow(waiting) is Decision.STORED_EARLY
    assert handle.reject(waiting, "no room") is Decision.STORED_EARLY
    assert handle.allow(waiting, "Holder") is Decision.STORED_EARLY
    verdict = handle_pb2.WaitDecision
    assert [tuple(request.decisions) for request in service.asked[1:]] == [
        (verdict(pod_uid="u1", cycle_id="c1", verdict=verdict.VERDICT_ALLOW),),
        (verdict(pod_uid="u1", cycle_id="c1", verdict=verdict.VERDICT_REJECT, message="no room"),),
        (verdict(pod_uid="u1", cycle_id="c1", verdict=verdict.VERDICT_ALLOW, plugin="Holder"),),
    ]


def test_a_result_from_a_newer_host_changes_nothing(attached: Attached) -> None:
    service, handle, _ = attached
    service.results = [99]  # type: ignore[list-item]  # a value of a later minor
    assert handle.allow(handle.waiting_pods()[0]) is Decision.NOT_PERMITTED


def test_a_cancellation_names_the_pod_and_the_cycle(attached: Attached) -> None:
    service, handle, _ = attached
    assert handle.cancel_binding(POD) is Cancellation.CANCELLED
    service.cancellations = [handle_pb2.CancelBindingResponse.RESULT_STALE_CYCLE]
    assert handle.cancel_binding(POD, "no room", cycle_id="c1") is Cancellation.STALE_CYCLE
    service.cancellations = [99]  # type: ignore[list-item]  # a value of a later minor
    assert handle.cancel_binding(POD) is Cancellation.NOT_IN_PRE_BIND
    service.cancellations = []
    with pytest.raises(HandleError, match="0 results to one cancellation"):
        handle.cancel_binding(POD)
    item = handle_pb2.BindingCancellation
    assert [tuple(request.items) for request in service.asked[:2]] == [
        (item(pod_uid="u1"),),
        (item(pod_uid="u1", cycle_id="c1", message="no room"),),
    ]


def test_nominated_pods_come_as_records_from_every_chunk(attached: Attached) -> None:
    service, handle, _ = attached
    assert handle.list_nominated_pods() == [
        NominatedPod(pod=POD.as_summary(), node_name="n0"),
        NominatedPod(pod=POD.as_summary(), node_name="n1"),
    ]
    assert len(handle.list_nominated_pods(iter(["n1", "n0"]))) == 2
    assert handle.list_nominated_pods([]) == []
    assert service.asked == [
        handle_pb2.ListNominatedPodsRequest(plugin="Asker", all_nodes=True),
        handle_pb2.ListNominatedPodsRequest(plugin="Asker", node_names=["n1", "n0"]),
    ]


def test_a_nomination_names_its_mode(attached: Attached) -> None:
    service, handle, _ = attached
    for node_name in ("n0", None, ""):
        assert handle.nominate(POD, node_name) is Nomination.APPLIED
    item = handle_pb2.Nomination
    assert [tuple(request.items) for request in service.asked] == [
        (item(pod_uid="u1", mode=item.MODE_OVERRIDE, node_name="n0"),),
        (item(pod_uid="u1", mode=item.MODE_FROM_STATUS),),
        (item(pod_uid="u1", mode=item.MODE_REMOVE),),
    ]
    service.nominations = [99]  # type: ignore[list-item]  # a value of a later minor
    assert handle.nominate(POD, "n0") is Nomination.NOT_PERMITTED
    service.nominations = []
    with pytest.raises(HandleError, match="0 results to one nomination"):
        handle.nominate(POD, "n0")


def test_scores_are_aligned_with_the_nodes(attached: Attached) -> None:
    service, handle, _ = attached
    other = handle_pb2.PluginNodeScores(plugin="Other", weight=2, scores=[0, 50])
    success = pb.PluginStatus(code=pb.PluginStatus.CODE_SUCCESS)
    service.scores = handle_pb2.RunScoresResponse(status=success, totals=[-1, 2**40], plugins=[other])
    found = handle.run_scores(CycleState("c1"), iter(["n1", "n0"]))
    assert isinstance(found, NodeScores)
    assert (found.status, found.node_names, found.totals.tolist()) == (
        Status.success(),
        ("n1", "n0"),
        [-1, 2**40],
    )
    assert [(item.plugin, item.weight, item.scores.tolist()) for item in found.plugins] == [
        ("Other", 2, [0, 50])
    ]
    assert service.asked == [
        handle_pb2.RunScoresRequest(plugin="Asker", cycle_id="c1", node_names=["n1", "n0"])
    ]


def test_scores_that_failed_or_are_too_few_are_not_taken_for_scores(attached: Attached) -> None:
    service, handle, _ = attached
    service.scores = handle_pb2.RunScoresResponse(
        status=pb.PluginStatus(code=pb.PluginStatus.CODE_ERROR, reasons=["no"])
    )
    failed = handle.run_scores(CycleState("c1"), ["n0"])
    assert isinstance(failed, NodeScores)
    assert (failed.status.message, failed.node_names, len(failed.totals)) == ("no", (), 0)
    success = pb.PluginStatus(code=pb.PluginStatus.CODE_SUCCESS)
    short = handle_pb2.PluginNodeScores(plugin="Other", weight=2)
    for reply in (
        handle_pb2.RunScoresResponse(status=success),
        handle_pb2.RunScoresResponse(status=success, totals=[1], plugins=[short]),
    ):
        service.scores = reply
        with pytest.raises(HandleError, match="one score for each of the 1 nodes"):
            handle.run_scores(CycleState("c1"), ["n0"])


def test_requeue_names_pods_or_means_all(attached: Attached) -> None:
    service, handle, _ = attached
    assert handle.requeue([POD], reason="quota", skip_backoff=True) == 3
    handle.requeue()
    assert service.asked == [
        handle_pb2.RequeueRequest(plugin="Asker", pod_uids=["u1"], reason="quota", skip_backoff=True),
        handle_pb2.RequeueRequest(plugin="Asker", all_rejected_by_me=True),
    ]


def test_stale_keys_and_events_reach_the_host(attached: Attached) -> None:
    service, handle, _ = attached
    handle.invalidate_sort_keys([POD])
    handle.invalidate_sort_keys()
    handle.record_event(POD.ref, "Waiting", "no licence", type="Warning")
    event = handle_pb2.EventRecord(
        regarding=pb.ObjectRef(namespace="default", name="web", uid="u1"),
        type="Warning",
        reason="Waiting",
        note="no licence",
    )
    assert service.asked == [
        handle_pb2.InvalidateSortKeysRequest(plugin="Asker", pod_uids=["u1"]),
        handle_pb2.InvalidateSortKeysRequest(plugin="Asker", all=True),
        handle_pb2.RecordEventsRequest(plugin="Asker", events=[event]),
    ]


def test_a_refused_call_says_why(serve: Serve, way_back: Way) -> None:
    _, endpoint = way_back
    host = serve(Asker).host
    host.attach(handle=identity_pb2.HandleEndpoint(target=endpoint.target, token="guess"))
    with pytest.raises(HandleError, match="Requeue failed with UNAUTHENTICATED: the token is unknown"):
        Asker.handles[-1].requeue()


def test_a_host_that_is_asked_too_often_is_asked_again_when_it_says(attached: Attached) -> None:
    service, handle, _ = attached
    service.waits_ms = [1, 30]
    began_s = time.monotonic()
    assert [item.cycle_id for item in handle.waiting_pods()] == ["c1"]
    assert time.monotonic() - began_s >= 0.031
    assert (len(service.asked), service.waits_ms) == (1, [])
    service.waits_ms = [int(CALL_DEADLINE_S * 1000)]
    with pytest.raises(HandleError, match="RESOURCE_EXHAUSTED: asked too often"):
        handle.waiting_pods()


def test_without_a_grant_the_cure_is_named(serve: Serve) -> None:
    serve(Asker).host.attach()
    with pytest.raises(HandleError, match="has granted no way back"):
        Asker.handles[-1].waiting_pods()


def test_a_host_that_is_gone_is_an_error(serve: Serve, tmp_path: Path) -> None:
    host = serve(Asker).host
    host.attach(handle=identity_pb2.HandleEndpoint(target=f"unix:{tmp_path / 'nobody'}", token="secret"))
    with pytest.raises(HandleError, match="Requeue failed with UNAVAILABLE"):
        Asker.handles[-1].requeue()


def test_a_new_attachment_brings_a_new_token_to_the_same_handle(serve: Serve, way_back: Way) -> None:
    service, endpoint = way_back
    host = serve(Asker).host
    host.attach(handle=identity_pb2.HandleEndpoint(target=endpoint.target, token="old"))
    handle = Asker.handles[-1]
    host.attach(handle=endpoint)
    assert handle.requeue() == 3
    assert len(service.asked) == 1


# --- the copy --------------------------------------------------------------------------------------


def test_the_snapshot_and_declared_objects_are_read_from_the_copy(attached: Attached) -> None:
    _, handle, host = attached
    item = KubeObject("v1", "PersistentVolumeClaim", parsed={"metadata": {"name": "data"}})
    ref = wire.encode_ref(ObjectRef(name="data", namespace="shop"))
    state = full_state([node_state(0, Node(name="n0"))])
    state.objects.add(resource=CLAIMS, generation=5, ref=ref, object=wire.encode_object(item))
    state.object_count = 1
    state.generation_sum += 5
    reader = handle.objects(CLAIMS)
    assert reader.list() == []
    assert not host.sync(state).need_full
    assert handle.snapshot().names == ["n0"]
    found = reader.get("data", "shop")
    assert found is not None
    assert found.get("metadata.name") == "data"
    assert [other.raw for other in reader.list("shop")] == [found.raw]


def test_undeclared_objects_and_a_missing_snapshot_are_errors_with_the_cure(attached: Attached) -> None:
    _, handle, _ = attached
    with pytest.raises(UndeclaredError, match=r"add Need\.objects"):
        handle.objects("secrets")
    with pytest.raises(HandleError, match="not sent the snapshot yet"):
        handle.snapshot()


def test_names_mode_has_no_snapshot(serve: Serve) -> None:
    class Named(Asker):
        node_mode = NodeMode.NAMES
        needs = ()

    serve(Named).host.attach()
    with pytest.raises(UndeclaredError, match=r"add Need\.nodes"):
        Asker.handles[-1].snapshot()


# --- waiting for the host --------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [Asker, AsyncAsker])
def test_while_post_filter_waits_for_the_host_a_what_if_is_let_in(
    serve: Serve, way_back: Way, cls: type
) -> None:
    service, endpoint = way_back
    host = serve(cls).host
    host.attach(handle=endpoint)
    host.give_nodes(Node(name="n0"))
    simulated = threading.Event()

    def simulate() -> None:
        request = spb.SimulateFilterRequest(
            ctx=host.ctx(cls.__name__, POD), scenarios=[spb.Scenario(node=spb.ScenarioNode(node_index=0))]
        )
        assert len(host.scheduling.SimulateFilter(request, timeout=60).statuses) == 1
        simulated.set()

    service.on_requeue = simulate
    reply = host.scheduling.PostFilter(spb.PostFilterRequest(ctx=host.ctx(cls.__name__, POD)), timeout=60)
    assert (list(reply.ctx.status.reasons), simulated.is_set()) == (["3 moved"], True)
