"""Health and reflection of the host, asked by gRPC's own clients at its real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from berth_host.handle import health as health_module
from berth_host.handle.health import MAX_WATCHES, SERVICE
from berth_host.handle.server import HandleServer
from berth_host.handle.service import HandleSeams
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from support.attached import ClusterState
from support.waiting import PATIENCE_S, until

Reply = health_pb2.HealthCheckResponse


@asynccontextmanager
async def channel_to(ready: Callable[[], bool]) -> AsyncIterator[grpc.aio.Channel]:
    nobody: Any = None
    seams = HandleSeams(backend=nobody, state=ClusterState(), filters=nobody, descriptor_of=lambda name: None)
    server = HandleServer(seams, ready=ready)
    await server.start()
    granted = await server.grant("a", frozenset({"Demo"}))
    try:
        async with grpc.aio.insecure_channel(granted.target) as channel:
            yield channel
    finally:
        await server.stop()


async def check(channel: grpc.aio.Channel, service: str = "") -> Any:
    stub = health_pb2_grpc.HealthStub(channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE_S)).status


async def test_health_follows_readiness() -> None:
    ready = True
    async with channel_to(lambda: ready) as channel:
        assert [await check(channel, name) for name in ("", SERVICE)] == [Reply.SERVING] * 2
        ready = False
        assert [await check(channel, name) for name in ("", SERVICE)] == [Reply.NOT_SERVING] * 2
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await check(channel, "berth.plugin.v1.Nothing")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_each_watch_hears_every_change_and_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "LOOK_S", 0.01)
    ready = True
    async with channel_to(lambda: ready) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest()
        watches = [stub.Watch(request) for _ in range(MAX_WATCHES)]
        assert {(await watch.read()).status for watch in watches} == {Reply.SERVING}
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Watch(request).read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        watches.pop().cancel()
        ready = False
        assert {(await watch.read()).status for watch in watches} == {Reply.NOT_SERVING}
        unknown = stub.Watch(health_pb2.HealthCheckRequest(service="x"))
        assert (await unknown.read()).status == Reply.SERVICE_UNKNOWN  # and there is room again
        for watch in (*watches, unknown):
            watch.cancel()
        await until(lambda: not _watching())


def _watching() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if "Watch" in repr(task.get_coro())]


async def test_reflection_names_the_services() -> None:
    async with channel_to(lambda: True) as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        names = {item.name for item in (await call.read()).list_services_response.service}
        call.cancel()
    assert names == {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
