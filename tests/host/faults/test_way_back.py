"""Rows 24 to 26 of the failure table on the way back, with real processes: a plugin in quarantine, too many
calls, and a token that leaked.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import grpc
import pytest
from berth_host.attach.state import State
from berth_host.handle import rates
from berth_sdk.plugin.v1 import handle_pb2, handle_pb2_grpc, identity_pb2, scheduling_pb2
from berth_sdk.wire.message_limit import DEFAULT_BYTES
from structlog.testing import capture_logs
from support.faults import (
    FailingProcess,
    RawPlugin,
    as_time_passes,
    attached,
    configuration,
    in_time,
    running,
)
from support.hosts import World, node, pod
from support.scripted_plugin import descriptor
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


async def waiting_pods(handle: identity_pb2.HandleEndpoint, plugin: str, filler: str = "") -> grpc.StatusCode:
    """Ask as whoever has the token; OK, or the code of the refusal. `filler`: in a field without meaning."""
    request = handle_pb2.ListWaitingPodsRequest(plugin=plugin)
    request.MergeFromString(handle_pb2.EventRecord(note=filler).SerializeToString())
    async with grpc.aio.insecure_channel(handle.target) as channel:
        try:
            async for _ in handle_pb2_grpc.HandleServiceStub(channel).ListWaitingPods(
                request, metadata=(("authorization", f"Bearer {handle.token}"),), timeout=PATIENCE_S
            ):
                pass
        except grpc.aio.AioRpcError as err:
            return err.code()
    return grpc.StatusCode.OK


@pytest.mark.long
async def test_row_25_a_flood_of_calls_is_held_back_and_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With rates that a busy machine is sure to be above."""
    monkeypatch.setattr(rates, "CALLS_PER_S", 100.0)
    monkeypatch.setattr(rates, "BURST_CALLS", 50.0)
    flooding = FailingProcess(tmp_path / "flooding")
    other = RawPlugin(tmp_path / "other", descriptor("Raw", "PERMIT", handle_client=True))
    text = configuration(flooding, other, Failing="permit", Raw="permit")
    async with running(flooding, other), World([node("n0")], configuration=text) as world:
        await in_time(lambda: attached(world) and attached(world, "Raw"))
        handle = other.requests("Configure")[-1].handle
        began_s = time.monotonic()
        flood = asyncio.create_task(flooding.order("flood", 200, 8))
        served = 0
        while not flood.done():
            assert await waiting_pods(handle, "Raw") is grpc.StatusCode.OK
            served += 1
            await asyncio.sleep(0.05)
        assert flood.result() == {"answered": 200}
        # What was over the burst came at the rate that is allowed: the SDK's handle waited as it was told.
        assert time.monotonic() - began_s >= 1.5
        assert served > 5
        world.server.create(pod("web"))
        await in_time(lambda: world.node_of("web"))
        # A client that does not wait is refused.
        codes = await asyncio.gather(*(waiting_pods(handle, "Raw") for _ in range(150)))
        assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}


async def test_row_25_a_call_that_is_too_large_is_refused(tmp_path: Path) -> None:
    plugin = RawPlugin(tmp_path, descriptor("Raw", "PERMIT", handle_client=True))
    text = configuration(plugin, Raw="permit")
    async with running(plugin), World([node("n0")], configuration=text) as world:
        await in_time(lambda: attached(world, "Raw"))
        handle = plugin.requests("Configure")[-1].handle
        for size, code in (
            (DEFAULT_BYTES // 2, grpc.StatusCode.OK),
            (DEFAULT_BYTES + 1, grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            assert await waiting_pods(handle, "Raw", filler="x" * size) is code
        world.server.create(pod("web"))
        await in_time(lambda: world.node_of("web"))


async def test_row_26_a_token_of_an_earlier_attachment_or_for_another_plugin_is_refused_and_logged(
    tmp_path: Path,
) -> None:
    plugin = RawPlugin(tmp_path, descriptor("Raw", "PERMIT", handle_client=True))
    text = configuration(plugin, Raw="permit")
    async with running(plugin), World([node("n0")], configuration=text) as world:
        await in_time(lambda: attached(world, "Raw"))
        leaked = plugin.requests("Configure")[-1].handle
        assert await waiting_pods(leaked, "Raw") is grpc.StatusCode.OK
        with capture_logs() as lines:
            assert await waiting_pods(leaked, "Another") is not grpc.StatusCode.OK
            await plugin.kill()
            await in_time(lambda: not attached(world, "Raw"))
            await plugin.start()
            await in_time(lambda: attached(world, "Raw"))
            assert await waiting_pods(leaked, "Raw") is grpc.StatusCode.UNAUTHENTICATED
        refused = [line["reason"] for line in lines if line["event"] == "audit.call_refused"]
        assert refused == ["the token is for Raw", "no token of an attachment"]
        assert leaked.token not in str(lines)
        fresh = plugin.requests("Configure")[-1].handle
        assert await waiting_pods(fresh, "Raw") is grpc.StatusCode.OK


@pytest.mark.long
async def test_row_24_a_plugin_in_quarantine_cannot_ask_its_host_either(tmp_path: Path) -> None:
    """What breaks the contract decides about no pod: not by answers, and not by calls of its own."""
    invalid = RawPlugin(tmp_path / "invalid", descriptor("Raw", "RESERVE", "PERMIT", handle_client=True))
    invalid.on("Reserve", scheduling_pb2.ReserveResponse())
    text = configuration(invalid, Raw="reserve permit")
    async with running(invalid), World([node("n0")], configuration=text) as world:
        await in_time(lambda: attached(world, "Raw"))
        (place,) = world.host.attachments.attached_places.places
        handle = invalid.requests("Configure")[-1].handle
        assert await waiting_pods(handle, "Raw") is grpc.StatusCode.OK
        for number in range(3):
            world.server.create(pod(f"p{number}"))
        await as_time_passes(world, lambda: place.state is State.QUARANTINED)
        with capture_logs() as lines:
            assert await waiting_pods(handle, "Raw") is grpc.StatusCode.PERMISSION_DENIED
        (reason,) = [line["reason"] for line in lines if line["event"] == "audit.call_refused"]
        assert reason == "the token is for no plugin any more: they are in quarantine"
        invalid.on("Reserve", None)
        await invalid.restart()
        await in_time(lambda: attached(world, "Raw"))
        fresh = invalid.requests("Configure")[-1].handle
        assert await waiting_pods(fresh, "Raw") is grpc.StatusCode.OK
