"""HandleService over its real socket: which plugins may call, and what each call does to the host."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from berth_host.attach.configure import WayBack
from berth_host.cache.resources import kind_of
from berth_host.errors.state import InvariantError
from berth_host.handle.backend import NoOpenCallError, QuestionUnderWayError, UnknownNodesError
from berth_host.handle.rates import BURST_CALLS
from berth_host.handle.reading import StateReader
from berth_host.handle.server import HandleServer
from berth_host.handle.service import MAX_READS, HandleSeams
from berth_host.rpc import pace, state_chunks
from berth_host.rpc.remote.statuses import MAX_REASON_BYTES
from berth_sdk.errors import HandleError
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.needs import Need
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import handle_pb2, handle_pb2_grpc, identity_pb2, scheduling_pb2
from berth_sdk.pod import Pod
from berth_sdk.results import (
    Cancellation,
    Decision,
    NodeScores,
    NominatedPod,
    Nomination,
    PluginNodeScores,
    PostFilterResult,
    WaitingPod,
)
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.scenarios import Scenario
from berth_sdk.status import SUCCESS, Status
from berth_sdk.tables import NodeTable
from berth_sdk.testing.builders import make_node, make_pod
from berth_sdk.wire import records as wire
from berth_sdk.wire.pushback import pushback_s
from structlog.testing import capture_logs
from support.attached import ClusterState
from support.waiting import PATIENCE_S, until

WAITING = WaitingPod(
    pod=make_pod("held", uid="uid-held", labels={"a": "b"}),
    cycle_id="cycle-7",
    node_name="n1",
    pending_plugins=("Demo",),
    deadline_s=1234.5,
)
DESCRIPTORS = {
    "Demo": Descriptor(
        name="Demo", points=(ExtensionPoint.PERMIT,), needs=(Need.nodes(), Need.objects("configmaps"))
    ),
    "Sorter": Descriptor(name="Sorter", points=(ExtensionPoint.QUEUE_SORT,)),
}


class Backend:
    """A host that writes down what it was asked. `decisions`: what it answers, in order."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.asked: list[tuple[Any, ...]] = []
        self.decisions = list(Decision)
        self.events_left = 1000
        self.nominated: list[NominatedPod] = []

    def waiting_pods(self, plugin: str, only_mine: bool) -> list[WaitingPod]:
        self.asked.append(("waiting_pods", plugin, only_mine))
        return [WAITING]

    def allow(self, plugin: str, uid: str, cycle_id: str) -> Decision:
        self.asked.append(("allow", plugin, uid, cycle_id))
        return self.decisions.pop(0)

    def reject(self, plugin: str, uid: str, cycle_id: str, message: str) -> Decision:
        self.asked.append(("reject", plugin, uid, cycle_id, message))
        return self.decisions.pop(0)

    def cancel_binding(self, plugin: str, uid: str, cycle_id: str, message: str) -> Cancellation:
        self.asked.append(("cancel", plugin, uid, cycle_id, message))
        return Cancellation[uid]

    def objects(self, plugin: str, resource: str) -> ObjectReader:
        raise HandleError(resource)

    def snapshot(self) -> NodeTable:
        return self.state.nodes

    async def evaluate_preemption(
        self, plugin: str, cycle_id: str, percentage: int, absolute: int
    ) -> PostFilterResult:
        if cycle_id != "open":
            raise NoOpenCallError(cycle_id)
        self.asked.append(("preempt", plugin, percentage, absolute))
        victim = ObjectRef(namespace="default", name="low", uid="low-uid")
        return PostFilterResult(SUCCESS, "n1", victims=(victim,))

    async def run_scores(self, plugin: str, cycle_id: str, node_names: Sequence[str]) -> NodeScores:
        errors = {"busy": QuestionUnderWayError, "nowhere": UnknownNodesError, "open": None}
        error = errors.get(cycle_id, NoOpenCallError)
        if error is not None:
            raise error(f"it is {cycle_id}")
        self.asked.append(("scores", plugin, *node_names))
        if not node_names:
            return NodeScores(Status.error("no scores"))
        scores = np.arange(len(node_names), dtype=np.int64)
        return NodeScores(SUCCESS, tuple(node_names), 2 * scores - 1, (PluginNodeScores("Other", 2, scores),))

    def nominated_pods(self, plugin: str, node_names: Iterable[str] | None) -> list[NominatedPod]:
        self.asked.append(("nominated", plugin, None if node_names is None else list(node_names)))
        return self.nominated

    def nominate(self, plugin: str, uid: str, node_name: str | None) -> Nomination:
        self.asked.append(("nominate", plugin, uid, node_name))
        return Nomination[uid]

    def requeue(self, plugin: str, uids: Iterable[str] | None, reason: str, skip_backoff: bool) -> int:
        self.asked.append(("requeue", plugin, None if uids is None else list(uids), reason, skip_backoff))
        return 2

    def invalidate_sort_keys(self, plugin: str, uids: Iterable[str] | None) -> None:
        self.asked.append(("invalidate", plugin, None if uids is None else list(uids)))

    def record_event(
        self, plugin: str, regarding: ObjectRef, type: str, reason: str, action: str, note: str
    ) -> bool:
        self.asked.append(("event", plugin, regarding.name, type, reason, action, note))
        self.events_left -= 1
        return self.events_left >= 0


class Filters:
    """The other plugins: they reject whatever would have more than one pod added."""

    async def run_filters(self, plugin: str, cycle_id: str, scenarios: Sequence[Scenario]) -> list[Status]:
        if cycle_id != "open":
            raise NoOpenCallError(cycle_id)
        return [
            SUCCESS if len(item.added) < 2 else Status.unschedulable(f"{item.node_name} is full")
            for item in scenarios
        ]


class Serving:
    """A server, and a caller of it."""

    def __init__(self, server: HandleServer, granted: WayBack, backend: Backend, state: ClusterState) -> None:
        self.server = server
        self.granted = granted
        self.backend = backend
        self.state = state
        self.target, self.token = granted.target, granted.token
        self.channel = grpc.aio.insecure_channel(self.target)
        self.stub = handle_pb2_grpc.HandleServiceStub(self.channel)

    async def call(self, rpc: str, request: Any, token: str | None = None) -> Any:
        """One unary call with the token."""
        secret = self.token if token is None else token
        metadata = (("authorization", f"Bearer {secret}"),) if secret else ()
        return await getattr(self.stub, rpc)(request, metadata=metadata, timeout=60)

    async def refused(self, rpc: str, request: Any, token: str | None = None) -> tuple[grpc.StatusCode, str]:
        """The code and text of a call that is refused."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.call(rpc, request, token)
        return caught.value.code(), caught.value.details() or ""


@asynccontextmanager
async def serving(
    node_count: int = 3, *, tcp: bool = False, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[Serving]:
    state = ClusterState()
    state.add_nodes(make_node(f"n{i}") for i in range(node_count))
    backend = Backend(state)
    seams = HandleSeams(
        backend=backend, state=state, filters=Filters(), descriptor_of=DESCRIPTORS.get, clock=clock
    )
    server = HandleServer(seams, tcp=tcp)
    await server.start()
    granted = await server.grant("attachment-1", frozenset({"Demo", "Sorter"}))
    made = Serving(server, granted, backend, state)
    try:
        yield made
    finally:
        await made.channel.close()
        await server.stop()


# --- which plugins may call-----------------------------------------------------------------------------

REQUESTS = {
    "ListWaitingPods": handle_pb2.ListWaitingPodsRequest,
    "DecideWaitingPods": handle_pb2.DecideWaitingPodsRequest,
    "CancelBinding": handle_pb2.CancelBindingRequest,
    "RunFilters": handle_pb2.RunFiltersRequest,
    "EvaluatePreemption": handle_pb2.EvaluatePreemptionRequest,
    "RunScores": handle_pb2.RunScoresRequest,
    "Nominate": handle_pb2.NominateRequest,
    "Requeue": handle_pb2.RequeueRequest,
    "InvalidateSortKeys": handle_pb2.InvalidateSortKeysRequest,
    "RecordEvents": handle_pb2.RecordEventsRequest,
}
READS = {
    "ReadState": handle_pb2.ReadStateRequest,
    "ListNominatedPods": handle_pb2.ListNominatedPodsRequest,
}


def test_every_call_is_tried_below() -> None:
    service = handle_pb2.DESCRIPTOR.services_by_name["HandleService"]
    assert {method.name for method in service.methods} == {*REQUESTS, *READS}


@pytest.mark.parametrize("rpc", REQUESTS)
async def test_no_call_without_the_token_of_the_attachment(rpc: str) -> None:
    async with serving() as host:
        request = REQUESTS[rpc](plugin="Demo")
        for token in ("", "0" * 64, host.token[:-1]):
            code, text = await host.refused(rpc, request, token)
            assert code is grpc.StatusCode.UNAUTHENTICATED
            assert host.token not in text
        host.server.revoke("attachment-1")
        assert (await host.refused(rpc, request))[0] is grpc.StatusCode.UNAUTHENTICATED
        assert host.backend.asked == []


@pytest.mark.parametrize("rpc", REQUESTS)
async def test_no_call_in_the_name_of_another_attachments_plugin(rpc: str) -> None:
    async with serving() as host:
        code, text = await host.refused(rpc, REQUESTS[rpc](plugin="Stranger"))
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert "'Stranger'" in text


@pytest.mark.parametrize("rpc", READS)
async def test_nothing_is_read_without_the_token_or_for_another_plugin(rpc: str) -> None:
    async with serving() as host:
        call, metadata = getattr(host.stub, rpc), (("authorization", f"Bearer {host.token}"),)
        for stream, code in [
            (call(READS[rpc](plugin="Demo"), timeout=60), grpc.StatusCode.UNAUTHENTICATED),
            (
                call(READS[rpc](plugin="Stranger"), metadata=metadata, timeout=60),
                grpc.StatusCode.PERMISSION_DENIED,
            ),
        ]:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stream.read()
            assert caught.value.code() is code
        assert host.backend.asked == []


async def test_row_25_a_flood_is_refused_with_the_time_to_wait_and_others_are_not() -> None:
    now_s = 100.0
    async with serving(clock=lambda: now_s) as host:
        request = handle_pb2.ListWaitingPodsRequest(plugin="Demo")
        for _ in range(int(BURST_CALLS)):
            await host.call("ListWaitingPods", request)
        asked = len(host.backend.asked)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await host.call("ListWaitingPods", request)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert caught.value.details() == "Demo asks more than 1000 times a second: wait 1 ms"
        assert pushback_s(caught.value) == 0.001
        # A new attachment is no way around it.
        host.token = (await host.server.grant("attachment-2", frozenset({"Demo", "Sorter"}))).token
        assert (await host.refused("ListWaitingPods", request))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(host.backend.asked) == asked
        await host.call("ListWaitingPods", handle_pb2.ListWaitingPodsRequest(plugin="Sorter"))
        now_s += 0.002
        await host.call("ListWaitingPods", request)


async def test_row_26_a_refused_call_has_an_audit_line_without_the_token() -> None:
    async with serving() as host:
        with capture_logs() as lines:
            await host.refused("Requeue", handle_pb2.RequeueRequest(plugin="Demo"), "f" * 64)
            await host.refused("Requeue", handle_pb2.RequeueRequest(plugin="Stranger"))
        said = [(line["event"], line["plugin"], line["call"], line["reason"]) for line in lines]
        assert said == [
            ("audit.call_refused", "Demo", "Requeue", "no token of an attachment"),
            ("audit.call_refused", "Stranger", "Requeue", "the token is for Demo, Sorter"),
        ]
        assert "f" * 64 not in str(lines)
        assert host.token not in str(lines)


async def test_new_grant_of_an_attachment_ends_the_old_one() -> None:
    async with serving() as host:
        newer = (await host.server.grant("attachment-1", frozenset({"Demo"}))).token
        request = handle_pb2.ListWaitingPodsRequest(plugin="Demo")
        assert (await host.refused("ListWaitingPods", request))[0] is grpc.StatusCode.UNAUTHENTICATED
        await host.call("ListWaitingPods", request, newer)


async def test_grants_show_no_secret() -> None:
    async with serving() as host:
        grant = host.server.grants.find(host.token.encode())
        assert grant is not None
        assert host.token not in repr(grant)
        assert host.token not in repr(host.granted)
        assert len(bytes.fromhex(host.token)) == 32


async def test_socket_lies_in_a_private_folder_that_goes_with_the_server() -> None:
    async with serving() as host:
        folder = Path(host.target.removeprefix("unix://")).parent
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


async def test_plugins_behind_tcp_get_a_loopback_port() -> None:
    async with serving(tcp=True) as host:
        granted = await host.server.grant("attachment-2", frozenset({"Demo"}), loopback_tcp=True)
        assert granted.target.startswith("127.0.0.1:")
        assert granted.server_name == ""
        async with grpc.aio.insecure_channel(granted.target) as channel:
            stub = handle_pb2_grpc.HandleServiceStub(channel)
            reply = await stub.ListWaitingPods(
                handle_pb2.ListWaitingPodsRequest(plugin="Demo"),
                metadata=(("authorization", f"Bearer {granted.token}"),),
                timeout=60,
            )
            assert len(reply.pods) == 1


async def test_nothing_is_granted_before_the_start() -> None:
    seams = HandleSeams(
        backend=Backend(ClusterState()),
        state=ClusterState(),
        filters=Filters(),
        descriptor_of=DESCRIPTORS.get,
    )
    with pytest.raises(InvariantError):
        await HandleServer(seams).grant("a", frozenset())


# --- what each call does ---------------------------------------------------------------------------------


async def test_waiting_pods_are_listed_with_their_objects_on_request() -> None:
    async with serving() as host:
        plain = await host.call(
            "ListWaitingPods", handle_pb2.ListWaitingPodsRequest(plugin="Demo", only_mine=True)
        )
        (item,) = plain.pods
        assert (item.pod.ref.uid, item.cycle_id, item.node_name) == ("uid-held", "cycle-7", "n1")
        assert list(item.pending_plugins) == ["Demo"]
        assert item.deadline.ToMilliseconds() == 1_234_500
        assert not item.HasField("object")
        full = await host.call(
            "ListWaitingPods", handle_pb2.ListWaitingPodsRequest(plugin="Demo", with_objects=True)
        )
        assert b'"held"' in full.pods[0].object.raw
        assert host.backend.asked == [("waiting_pods", "Demo", True), ("waiting_pods", "Demo", False)]


async def test_each_decision_gets_its_own_result_in_order() -> None:
    async with serving() as host:
        allow, reject = handle_pb2.WaitDecision.VERDICT_ALLOW, handle_pb2.WaitDecision.VERDICT_REJECT
        decisions = [
            handle_pb2.WaitDecision(pod_uid=f"u{i}", cycle_id="c", verdict=allow if i % 2 else reject)
            for i in range(6)
        ]
        decisions.append(handle_pb2.WaitDecision(pod_uid="u6", cycle_id="c"))
        reply = await host.call(
            "DecideWaitingPods",
            handle_pb2.DecideWaitingPodsRequest(plugin="Demo", decisions=decisions),
        )
        names = [handle_pb2.DecideWaitingPodsResponse.Result.Name(result) for result in reply.results]
        assert names == [
            "RESULT_APPLIED",
            "RESULT_STORED_EARLY",
            "RESULT_ALREADY_DECIDED",
            "RESULT_NOT_WAITING",
            "RESULT_STALE_CYCLE",
            "RESULT_NOT_PERMITTED",
            "RESULT_NOT_PERMITTED",  # no verdict
        ]
        assert [entry[0] for entry in host.backend.asked] == ["reject", "allow"] * 3


async def test_each_cancellation_gets_its_own_result_in_order() -> None:
    async with serving() as host:
        uids = ["STALE_CYCLE", "CANCELLED", "NOT_IN_PRE_BIND"]
        items = [
            handle_pb2.BindingCancellation(pod_uid=uid, cycle_id="c", message="é" * 4000) for uid in uids
        ]
        request = handle_pb2.CancelBindingRequest(plugin="Demo", items=items)
        reply = await host.call("CancelBinding", request)
        names = [handle_pb2.CancelBindingResponse.Result.Name(result) for result in reply.results]
        assert names == [f"RESULT_{uid}" for uid in uids]
        assert [entry[:4] for entry in host.backend.asked] == [("cancel", "Demo", uid, "c") for uid in uids]
        assert {len(entry[4].encode()) for entry in host.backend.asked} == {MAX_REASON_BYTES}


async def test_each_nomination_gets_its_own_result_in_order() -> None:
    modes = handle_pb2.Nomination
    async with serving() as host:
        items = [
            modes(pod_uid="APPLIED", mode=modes.MODE_OVERRIDE, node_name="n1"),
            modes(pod_uid="UNKNOWN_NODE", mode=modes.MODE_OVERRIDE, node_name="gone"),
            modes(pod_uid="APPLIED", mode=modes.MODE_OVERRIDE),
            modes(pod_uid="NOT_PENDING", mode=modes.MODE_FROM_STATUS, node_name="n1"),
            modes(pod_uid="APPLIED", mode=modes.MODE_REMOVE, node_name="n1"),
            modes(pod_uid="APPLIED", node_name="n1"),
            modes(pod_uid="APPLIED", mode=9, node_name="n1"),  # type: ignore[arg-type]  # of a later minor
        ]
        reply = await host.call("Nominate", handle_pb2.NominateRequest(plugin="Demo", items=items))
        assert [handle_pb2.NominateResponse.Result.Name(result) for result in reply.results] == [
            "RESULT_APPLIED",
            "RESULT_UNKNOWN_NODE",
            "RESULT_UNKNOWN_NODE",  # no name
            "RESULT_NOT_PENDING",
            "RESULT_APPLIED",
            "RESULT_NOT_PERMITTED",
            "RESULT_NOT_PERMITTED",
        ]
        assert host.backend.asked == [
            ("nominate", "Demo", "APPLIED", "n1"),
            ("nominate", "Demo", "UNKNOWN_NODE", "gone"),
            ("nominate", "Demo", "NOT_PENDING", None),
            ("nominate", "Demo", "APPLIED", ""),
        ]


async def test_scores_are_run_for_an_open_call() -> None:
    async with serving() as host:
        request = handle_pb2.RunScoresRequest(plugin="Demo", cycle_id="open", node_names=["n2", "n0"])
        reply = await host.call("RunScores", request)
        assert (reply.status.code, list(reply.totals)) == (pb.Status.CODE_SUCCESS, [-1, 1])
        (item,) = reply.plugins
        assert (item.plugin, item.weight, list(item.scores)) == ("Other", 2, [0, 1])
        failed = await host.call("RunScores", handle_pb2.RunScoresRequest(plugin="Demo", cycle_id="open"))
        assert (failed.status.code, list(failed.status.reasons)) == (pb.Status.CODE_ERROR, ["no scores"])
        assert host.backend.asked == [("scores", "Demo", "n2", "n0"), ("scores", "Demo")]
        for cycle_id, code, text in [
            ("busy", grpc.StatusCode.RESOURCE_EXHAUSTED, "it is busy"),
            ("nowhere", grpc.StatusCode.INVALID_ARGUMENT, "it is nowhere"),
            (
                "over",
                grpc.StatusCode.FAILED_PRECONDITION,
                "no PostFilter, Reserve or Permit of Demo is open in cycle over",
            ),
        ]:
            request.cycle_id = cycle_id
            assert await host.refused("RunScores", request) == (code, text)


async def test_requeue_moves_the_named_pods_and_all_rejected_ones() -> None:
    async with serving() as host:
        request = handle_pb2.RequeueRequest(
            plugin="Demo",
            pod_uids=["a"],
            all_rejected_by_me=True,
            reason="light",
            skip_backoff=True,
        )
        assert (await host.call("Requeue", request)).moved == 4
        assert host.backend.asked == [
            ("requeue", "Demo", ["a"], "light", True),
            ("requeue", "Demo", None, "light", True),
        ]
        assert (await host.call("Requeue", handle_pb2.RequeueRequest(plugin="Demo"))).moved == 0


async def test_sort_keys_are_invalidated_by_the_plugin_that_sorts_alone() -> None:
    async with serving() as host:
        request = handle_pb2.InvalidateSortKeysRequest(plugin="Demo", all=True)
        assert (await host.refused("InvalidateSortKeys", request))[0] is grpc.StatusCode.PERMISSION_DENIED
        for fields in ({"all": True}, {"pod_uids": ["a"]}, {}):
            await host.call(
                "InvalidateSortKeys", handle_pb2.InvalidateSortKeysRequest(plugin="Sorter", **fields)
            )
        assert host.backend.asked == [("invalidate", "Sorter", None), ("invalidate", "Sorter", ["a"])]


async def test_events_are_written_bounded_and_counted() -> None:
    async with serving() as host:
        host.backend.events_left = 30
        record = handle_pb2.EventRecord(
            regarding=pb.ObjectRef(name="web", uid="u"), reason="Blinked", note="é" * 2000
        )
        request = handle_pb2.RecordEventsRequest(plugin="Demo", events=[record] * 120)
        assert (await host.call("RecordEvents", request)).dropped == 90
        assert len(host.backend.asked) == 100
        _, _, name, kind, reason, action, note = host.backend.asked[0]
        assert (name, kind, reason, action) == ("web", "Normal", "Blinked", "")
        assert len(note.encode()) == 1024


async def test_other_plugins_filters_answer_while_the_post_filter_is_open() -> None:
    async with serving() as host:
        index = host.state.index_of("n1")
        added = [
            pb.PodState(pod=pb.PodSummary(ref=pb.ObjectRef(name=f"p{i}", uid=f"p{i}"))) for i in range(2)
        ]
        scenarios = [
            scheduling_pb2.Scenario(nodes=[scheduling_pb2.ScenarioNode(node_index=index or 0, added=added)]),
            scheduling_pb2.Scenario(nodes=[scheduling_pb2.ScenarioNode(node_name="n2", added=added[:1])]),
        ]
        request = handle_pb2.RunFiltersRequest(plugin="Demo", cycle_id="open", scenarios=scenarios)
        reply = await host.call("RunFilters", request)
        assert [(status.code, list(status.reasons)) for status in reply.statuses] == [
            (pb.Status.CODE_UNSCHEDULABLE, ["n1 is full"]),
            (pb.Status.CODE_SUCCESS, []),
        ]
        request.cycle_id = "over"
        code, text = await host.refused("RunFilters", request)
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert text == "no PostFilter of Demo is open in cycle over"


@pytest.mark.parametrize(
    "scenario",
    [
        scheduling_pb2.Scenario(nodes=[scheduling_pb2.ScenarioNode(node_name="nowhere")]),
        scheduling_pb2.Scenario(nodes=[scheduling_pb2.ScenarioNode(node_index=999)]),
        scheduling_pb2.Scenario(
            nodes=[
                scheduling_pb2.ScenarioNode(node_name="n1", removed=[pb.ObjectRef(name="x", uid="not there")])
            ]
        ),
    ],
    ids=["node", "index", "pod"],
)
async def test_scenarios_about_what_is_not_there_are_refused(scenario: scheduling_pb2.Scenario) -> None:
    async with serving() as host:
        request = handle_pb2.RunFiltersRequest(plugin="Demo", cycle_id="open", scenarios=[scenario])
        assert (await host.refused("RunFilters", request))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_preemption_is_evaluated_for_an_open_post_filter() -> None:
    async with serving() as host:
        request = handle_pb2.EvaluatePreemptionRequest(
            plugin="Demo", cycle_id="open", min_candidate_nodes_percentage=20, min_candidate_nodes_absolute=7
        )
        reply = await host.call("EvaluatePreemption", request)
        assert (reply.status.code, reply.nominated_node) == (pb.Status.CODE_SUCCESS, "n1")
        assert [ref.uid for ref in reply.victims] == ["low-uid"]
        assert host.backend.asked == [("preempt", "Demo", 20, 7)]
        request.cycle_id = "over"
        code, text = await host.refused("EvaluatePreemption", request)
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert text == "no PostFilter of Demo is open in cycle over"


# --- reading the snapshot ----------------------------------------------------------------------------------


def open_call(host: Serving, **fields: Any) -> Any:
    """A read under way."""
    return host.stub.ReadState(
        handle_pb2.ReadStateRequest(plugin="Demo", **fields),
        metadata=(("authorization", f"Bearer {host.token}"),),
        timeout=60,
    )


async def open_read(host: Serving, **fields: Any) -> AsyncIterator[handle_pb2.ReadStateResponse]:
    """Its chunks, as they are asked for."""
    async for chunk in open_call(host, **fields):
        yield chunk


async def read(host: Serving, **fields: Any) -> list[handle_pb2.ReadStateResponse]:
    return [chunk async for chunk in open_read(host, **fields)]


async def test_snapshot_is_read_whole_in_chunks_of_one_version() -> None:
    async with serving(2000) as host:
        chunks = await read(host)
        names = [node.name for chunk in chunks for node in chunk.nodes]
        assert len(chunks) > 1
        assert sorted(names) == sorted(host.state.node_names())
        assert {chunk.version.generation for chunk in chunks} == {host.state.version.generation}
        assert all(node.HasField("summary") for chunk in chunks for node in chunk.nodes)


async def test_some_nodes_are_read_by_name_by_bit_and_by_exclusion() -> None:
    async with serving(5) as host:
        by_name = await read(host, nodes=pb.NodeSet(names=["n3", "n1"]))
        assert sorted(node.name for chunk in by_name for node in chunk.nodes) == ["n1", "n3"]
        slot = host.state.index_of("n2") or 0
        by_bit = await read(host, nodes=pb.NodeSet(bitmap=(1 << slot).to_bytes(4, "little")))
        assert [node.name for chunk in by_bit for node in chunk.nodes] == ["n2"]
        others = await read(host, nodes=pb.NodeSet(complement=True, names=["n2"]))
        assert len([node for chunk in others for node in chunk.nodes]) == 4


async def test_a_node_with_many_pods_comes_in_one_piece() -> None:
    async with serving(2) as host:
        for i in range(400):
            host.state.put(make_pod(f"p{i}", uid=f"p{i}", annotations={"x/y": "z" * 300}), "n1")
        needs = [
            identity_pb2.DeclaredNeed(
                kind=identity_pb2.DeclaredNeed.KIND_POD_SUMMARY, annotation_prefixes=["x/"]
            )
        ]
        chunks = await read(host, needs=needs)
        nodes = [node for chunk in chunks for node in chunk.nodes]
        assert sorted(node.name for node in nodes) == ["n0", "n1"]
        assert max(len(node.pods) for node in nodes) == 400


async def test_objects_that_another_plugin_declared_are_not_read() -> None:
    """The host holds what any plugin declares; which of it a plugin sees is what its own handshake says."""
    async with serving() as host:
        for kind, resource in (("Secret", "secrets"), ("ConfigMap", "configmaps")):
            item = {"metadata": {"namespace": "shop", "name": "held"}, "data": {"password": "hush"}}
            host.state.objects.put(kind_of(resource), KubeObject("v1", kind, parsed=item))
            assert len(host.state.objects.of_resource(resource).list()) == 1
        await host.state.refresh()

        def objects(resource: str) -> list[identity_pb2.DeclaredNeed]:
            return [
                identity_pb2.DeclaredNeed(
                    kind=identity_pb2.DeclaredNeed.KIND_OBJECT, resource=resource, drop_fields=["data"]
                )
            ]

        chunks = await read(host, needs=objects("configmaps"))
        assert [item.resource for chunk in chunks for item in chunk.objects] == ["configmaps"]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read(host, needs=[*objects("configmaps"), *objects("secrets")])
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert caught.value.details() == "Demo has not declared secrets among its needs"


ALLOW = handle_pb2.WaitDecision.VERDICT_ALLOW
REMOVE = handle_pb2.Nomination.MODE_REMOVE


@pytest.mark.parametrize(
    ("rpc", "request_of"),
    [
        (
            "DecideWaitingPods",
            lambda count: handle_pb2.DecideWaitingPodsRequest(
                plugin="Demo",
                decisions=[handle_pb2.WaitDecision(verdict=ALLOW, pod_uid="NOT_WAITING")] * count,
            ),
        ),
        (
            "CancelBinding",
            lambda count: handle_pb2.CancelBindingRequest(
                plugin="Demo", items=[handle_pb2.BindingCancellation(pod_uid="NOT_IN_PRE_BIND")] * count
            ),
        ),
        (
            "Nominate",
            lambda count: handle_pb2.NominateRequest(
                plugin="Demo", items=[handle_pb2.Nomination(mode=REMOVE, pod_uid="NOT_PENDING")] * count
            ),
        ),
    ],
)
async def test_a_call_about_many_pods_does_not_hold_the_loop(
    rpc: str, request_of: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few megabytes are hundreds of thousands of decisions, and other plugins have deadlines meanwhile."""
    monkeypatch.setattr(pace, "STEP_S", 0.0)
    turns = 0
    seen: list[int] = []

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with serving() as host:
        host.backend.decisions = [Decision.NOT_WAITING] * 200
        host.backend.asked = Noting(lambda: seen.append(turns))
        turning = asyncio.create_task(turn())
        reply = await host.call(rpc, request_of(200))
        turning.cancel()
    assert len(reply.results) == len(seen) == 200
    assert len(set(seen)) == 200  # the others had a turn between any two


class Noting(list[tuple[Any, ...]]):
    """Tells of each that would be noted."""

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self._tell = tell

    def append(self, item: tuple[Any, ...]) -> None:
        self._tell()


async def test_other_versions_cannot_be_read_and_the_current_one_is_named() -> None:
    async with serving() as host:
        version = host.state.version
        current = pb.StateVersion(epoch=version.epoch, generation=version.generation)
        assert await read(host, at=current)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read(host, at=pb.StateVersion(epoch=version.epoch, generation=version.generation - 1))
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert caught.value.details() == f"{version.epoch}/{version.generation}"


def contents(state: ClusterState) -> dict[str, tuple[int, list[str]]]:
    """By node: its generation, and its pods in order."""
    columns, pods = state.snapshot.columns, state.snapshot.pods
    return {
        name: (int(columns.generation[slot]), [pod.uid for pod in pods.pods_of(slot)])
        for name, slot in columns.index_of.items()
    }


NODES_AND_PODS = [
    identity_pb2.DeclaredNeed(kind=identity_pb2.DeclaredNeed.KIND_NODE_SUMMARY),
    identity_pb2.DeclaredNeed(kind=identity_pb2.DeclaredNeed.KIND_POD_SUMMARY),
]


def read_contents(chunks: Sequence[handle_pb2.ReadStateResponse]) -> dict[str, tuple[int, list[str]]]:
    """The same of what was read."""
    return {
        node.name: (node.generation, [item.pod.ref.uid for item in node.pods])
        for chunk in chunks
        for node in chunk.nodes
    }


@pytest.mark.slow
async def test_reads_while_pods_are_scheduled_are_each_of_one_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_chunks, "CHUNK_BYTES", 2048)  # so that a read takes many turns of the loop
    async with serving(300) as host:
        state = host.state
        by_generation = {state.version.generation: contents(state)}

        async def schedule() -> None:
            placed: deque[Pod] = deque()
            for i in itertools.count():
                placed.append(state.put(make_pod(f"p{i}", uid=f"p{i}"), f"n{299 - i % 50}"))
                if len(placed) > 100:
                    state.cache.remove_pod(placed.popleft())
                if i % 5 == 0 and i < 1000:
                    state.cache.remove_node(f"n{i // 5}")
                    state.add_nodes([make_node(f"late-{i}")])
                by_generation[state.version.generation] = contents(state)
                await asyncio.sleep(0)

        scheduling = asyncio.create_task(schedule())
        for _ in range(10):
            chunks = await read(host, needs=NODES_AND_PODS)
            (generation,) = {chunk.version.generation for chunk in chunks}
            assert len(chunks) > 10
            assert read_contents(chunks) == by_generation[generation]
            assert state.version.generation > generation, "nothing was scheduled meanwhile"
        scheduling.cancel()
        await asyncio.wait([scheduling])
        assert scheduling.cancelled()


async def test_a_version_that_was_current_when_the_read_began_is_read_to_its_end() -> None:
    async with serving(400) as host:
        before, version = contents(host.state), host.state.version
        stream = open_read(host, needs=NODES_AND_PODS, at=wire.encode_version(version))
        first = await anext(stream)
        host.state.put(make_pod("p", uid="p"), "n399")
        chunks = [first, *[chunk async for chunk in stream]]
        assert {wire.decode_version(chunk.version) for chunk in chunks} == {version}
        assert read_contents(chunks) == before != contents(host.state)


@pytest.mark.slow
async def test_reads_of_a_plugin_are_bounded_and_leave_nothing_behind() -> None:
    async with serving(2000) as host:
        # Nobody takes the rest of these: they stay open until they are ended.
        calls = [open_call(host) for _ in range(MAX_READS)]
        for call in calls:
            assert await call.read() is not grpc.aio.EOF
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read(host)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert caught.value.details() == "Demo has 4 reads under way: end one first"
        assert captured() == MAX_READS
        calls.pop().cancel()
        await until(lambda: captured() == MAX_READS - 1)
        assert await read(host)
        for call in calls:
            call.cancel()
        await until(lambda: captured() == 0)


def captured() -> int:
    """Reads whose state is kept alive."""
    gc.collect()
    return sum(isinstance(item, StateReader) for item in gc.get_objects())


async def test_unknown_nodes_are_refused() -> None:
    async with serving() as host:
        for nodes in (pb.NodeSet(names=["nowhere"]), pb.NodeSet(bitmap=b"\x00\x00\xff")):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await read(host, nodes=nodes)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


# --- reading the nominations -------------------------------------------------------------------------------


def open_list(host: Serving, **fields: Any) -> Any:
    """A list under way."""
    return host.stub.ListNominatedPods(
        handle_pb2.ListNominatedPodsRequest(plugin="Demo", **fields),
        metadata=(("authorization", f"Bearer {host.token}"),),
        timeout=60,
    )


async def test_nominated_pods_are_listed_with_their_objects_on_request() -> None:
    async with serving() as host:
        assert [chunk async for chunk in open_list(host)] == []
        host.backend.nominated = [
            NominatedPod(pod=make_pod("web", uid="u1", nominated="n2"), node_name="n1"),
            NominatedPod(pod=make_pod("db", uid="u2"), node_name="n2"),
        ]
        (plain,) = [chunk async for chunk in open_list(host, node_names=["n1", "n2"])]
        assert [(item.pod.ref.uid, item.pod.nominated_node, item.node_name) for item in plain.pods] == [
            ("u1", "n2", "n1"),
            ("u2", "", "n2"),
        ]
        assert not plain.pods[0].HasField("object")
        (full,) = [chunk async for chunk in open_list(host, all_nodes=True, with_objects=True)]
        assert b'"web"' in full.pods[0].object.raw
        assert host.backend.asked == [
            ("nominated", "Demo", []),
            ("nominated", "Demo", ["n1", "n2"]),
            ("nominated", "Demo", None),
        ]


async def test_many_nominated_pods_come_in_chunks_below_the_agreed_size() -> None:
    async with serving() as host:
        pods = [make_pod(f"p{i}", uid=f"u{i}", annotations={"a": "x" * (5000 * (i % 9))}) for i in range(400)]
        host.backend.nominated = [NominatedPod(pod=pod, node_name="n1") for pod in pods]
        chunks = [chunk async for chunk in open_list(host, all_nodes=True, with_objects=True)]
        assert [item.pod.ref.uid for chunk in chunks for item in chunk.pods] == [pod.uid for pod in pods]
        alone = max(chunk.pods[0].ByteSize() for chunk in chunks)
        assert alone > state_chunks.CHUNK_BYTES > 1000
        for chunk in chunks:
            assert chunk.ByteSize() < state_chunks.CHUNK_BYTES + 1000 or len(chunk.pods) == 1


async def test_lists_are_among_the_reads_that_are_bounded() -> None:
    async with serving() as host:
        pods = [make_pod(f"p{i}", uid=f"u{i}", annotations={"a": "x" * 9000}) for i in range(2000)]
        host.backend.nominated = [NominatedPod(pod=pod, node_name="n1") for pod in pods]
        calls = [open_list(host, all_nodes=True, with_objects=True) for _ in range(MAX_READS)]
        for call in calls:
            assert await call.read() is not grpc.aio.EOF
        for refused in (open_list(host, all_nodes=True), open_call(host)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await refused.read()
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for call in calls:
            call.cancel()

        async def listed() -> bool:
            try:
                return bool([chunk async for chunk in open_list(host, all_nodes=True)])
            except grpc.aio.AioRpcError:
                return False

        async with asyncio.timeout(PATIENCE_S):
            while not await listed():
                await asyncio.sleep(0.01)
