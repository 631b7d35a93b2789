"""Health and reflection of the host, asked by gRPC's own clients at its real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from berth_host.handle.calls import HandleSeams
from berth_host.handle.health import MAX_WATCHES, SERVICE
from berth_host.handle.server import HandleServer
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from support.attached import ClusterState
from support.waiting import PATIENCE_S, until

Reply = health_pb2.HealthCheckResponse


@asynccontextmanager
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    nobody: Any = None
    seams = HandleSeams(backend=nobody, state=ClusterState(), filters=nobody, descriptor_of=lambda name: None)
    server = HandleServer(seams)
    await server.start()
    granted = await server.grant("a", frozenset({"Demo"}))
    try:
        async with grpc.aio.insecure_channel(granted.target) as opened:
            yield opened
    finally:
        await server.stop()


async def check(opened: grpc.aio.Channel, service: str = "") -> Any:
    stub = health_pb2_grpc.HealthStub(opened)
    return (await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE_S)).status


async def test_health_is_serving_until_the_server_stops() -> None:
    async with channel() as opened:
        assert [await check(opened, name) for name in ("", SERVICE)] == [Reply.SERVING] * 2
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await check(opened, "berth.plugin.v1.Nothing")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_watches_stay_open_and_are_bounded() -> None:
    async with channel() as opened:
        stub = health_pb2_grpc.HealthStub(opened)
        request = health_pb2.HealthCheckRequest()
        watches = [stub.Watch(request) for _ in range(MAX_WATCHES)]
        assert {(await watch.read()).status for watch in watches} == {Reply.SERVING}
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Watch(request).read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        watches.pop().cancel()
        await until(lambda: len(_watching()) < MAX_WATCHES)
        unknown = stub.Watch(health_pb2.HealthCheckRequest(service="x"))
        assert (await unknown.read()).status == Reply.SERVICE_UNKNOWN  # and there is room again
        assert not any(watch.done() for watch in (*watches, unknown))
        for watch in (*watches, unknown):
            watch.cancel()
        await until(lambda: not _watching())


def _watching() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if "Watch" in repr(task.get_coro())]


async def test_reflection_names_the_services() -> None:
    async with channel() as opened:
        call = reflection_pb2_grpc.ServerReflectionStub(opened).ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        names = {item.name for item in (await call.read()).list_services_response.service}
        call.cancel()
    assert names == {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
