"""HandleService over its real socket: which plugins may call, how often, and where."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_host.errors.state import InvariantError
from berth_host.handle.calls import HandleSeams
from berth_host.handle.rates import BURST_CALLS
from berth_host.handle.server import HandleServer
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import handle_pb2, handle_pb2_grpc, identity_pb2
from berth_sdk.testing.builders import make_pod
from berth_sdk.wire.call_names import metadata_of
from berth_sdk.wire.message_limit import DEFAULT_BYTES, MIN_BYTES
from berth_sdk.wire.pushback import pushback_s
from structlog.testing import capture_logs
from support.attached import ClusterState
from support.handle_serving import (
    DESCRIPTORS,
    Backend,
    Filters,
    read,
    serving,
)

REQUESTS = {
    "ListWaitingPods": handle_pb2.ListWaitingPodsRequest,
    "DecideWaitingPods": handle_pb2.DecideWaitingPodsRequest,
    "CancelBinding": handle_pb2.CancelBindingRequest,
    "RunFilters": handle_pb2.RunFiltersRequest,
    "EvaluatePreemption": handle_pb2.EvaluatePreemptionRequest,
    "RunScores": handle_pb2.RunScoresRequest,
    "TryPodGroup": handle_pb2.TryPodGroupRequest,
    "EvaluatePodGroupPreemption": handle_pb2.EvaluatePodGroupPreemptionRequest,
    "ReadPodGroup": handle_pb2.ReadPodGroupRequest,
    "Nominate": handle_pb2.NominateRequest,
    "Requeue": handle_pb2.RequeueRequest,
    "InvalidateSortKeys": handle_pb2.InvalidateSortKeysRequest,
    "RecordEvents": handle_pb2.RecordEventsRequest,
}
READS = {
    "ReadState": handle_pb2.ReadStateRequest,
    "ListNominatedPods": handle_pb2.ListNominatedPodsRequest,
}


def test_refusals_cover_every_call_of_the_handle_service() -> None:
    service = handle_pb2.DESCRIPTOR.services_by_name["HandleService"]
    assert {method.name for method in service.methods} == {*REQUESTS, *READS}


@pytest.mark.parametrize("rpc", REQUESTS)
async def test_call_without_the_token_of_the_attachment_is_refused(rpc: str) -> None:
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
async def test_call_for_a_plugin_of_another_attachment_is_refused(rpc: str) -> None:
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
            ("audit.call_refused", "Stranger", "Requeue", "the token is for ByNames, Demo, Sorter"),
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
            chunks = stub.ListWaitingPods(
                handle_pb2.ListWaitingPodsRequest(plugin="Demo"),
                metadata=(("authorization", f"Bearer {granted.token}"),),
                timeout=60,
            )
            assert [len(chunk.pods) async for chunk in chunks] == [1]


async def test_handle_server_grants_no_endpoint_before_its_start() -> None:
    seams = HandleSeams(
        backend=Backend(ClusterState()),
        state=ClusterState(),
        filters=Filters(ClusterState()),
        descriptor_of=DESCRIPTORS.get,
    )
    with pytest.raises(InvariantError):
        await HandleServer(seams).grant("a", frozenset())


@pytest.mark.parametrize(("for_group", "modes"), [(False, (0o700, 0)), (True, (0o2750, 0o660))])
async def test_socket_is_open_to_the_group_only_where_a_plugin_has_another_user(
    for_group: bool, modes: tuple[int, int]
) -> None:
    seams = HandleSeams(
        backend=Backend(ClusterState()),
        state=ClusterState(),
        filters=Filters(ClusterState()),
        descriptor_of=DESCRIPTORS.get,
    )
    server = HandleServer(seams, for_group=for_group)
    await server.start()
    try:
        path = Path((await server.grant("a", frozenset())).target.removeprefix("unix://"))
        assert path.parent.stat().st_mode & 0o7777 == modes[0]
        if for_group:
            assert path.stat().st_mode & 0o777 == modes[1]
    finally:
        await server.stop()


async def test_request_over_the_limit_is_refused_with_size_limit_and_cure() -> None:
    async with serving() as host:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read(host, nodes=pb.NodeSet(names=["x" * DEFAULT_BYTES]))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert re.fullmatch(
            rf"the request has 41943\d\d bytes, and {DEFAULT_BYTES} are the limit: ask in parts",
            caught.value.details() or "",
        )


@pytest.mark.parametrize("told", ["Demo", ""])
async def test_metadata_that_names_another_plugin_than_the_message_is_refused(told: str) -> None:
    async with serving() as host:
        request = handle_pb2.NominateRequest(plugin="Demo")

        async def call(name: str) -> Any:
            metadata = (("authorization", f"Bearer {host.token}"), *metadata_of(plugin=name))
            return await host.stub.Nominate(request, metadata=metadata, timeout=60)

        await call(told)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call("Sorter")
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "berth-plugin names 'Sorter', and plugin of the request names 'Demo'" in str(
            caught.value.details()
        )


async def test_messages_on_the_way_back_have_the_limit_of_the_attachment() -> None:
    async with serving() as host:
        granted = await host.server.grant("attachment-2", frozenset({"Demo"}), max_message_bytes=MIN_BYTES)
        host.token = granted.token
        assert await read(host)
        with pytest.raises(grpc.aio.AioRpcError, match="are the limit: ask in parts") as long:
            nodes = pb.NodeSet(names=["x" * MIN_BYTES])
            await read(host, nodes=nodes)
        host.state.put(make_pod("large", annotations={"filler": "x" * MIN_BYTES}), "n0")
        need = identity_pb2.DeclaredNeed(kind=identity_pb2.DeclaredNeed.KIND_POD_OBJECT)
        with pytest.raises(grpc.aio.AioRpcError, match="a message of the answer has") as much:
            await read(host, needs=[need])
        assert {one.value.code() for one in (long, much)} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
