"""Bytes that are no request: refused in words, without a line in anybody's log."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_host.rpc.served.registration import register
from grpc_health.v1 import health_pb2

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
NO_MESSAGE = b"\x0a\xff"


class Servicer:
    """Answers both calls of the health service."""

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        return health_pb2.HealthCheckResponse(status=1 if request.service == "a" else 2)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        for status in (1, 2):
            yield health_pb2.HealthCheckResponse(status=status)


@pytest.fixture
async def channel(tmp_path: Path) -> AsyncIterator[Any]:
    server = grpc.aio.server()
    servicer = Servicer()
    register(server, HEALTH, {"Check": servicer.Check, "Watch": servicer.Watch})
    target = f"unix://{tmp_path}/s.sock"
    server.add_insecure_port(target)
    await server.start()
    async with grpc.aio.insecure_channel(target) as opened:
        yield opened
    await server.stop(0)


def path(rpc: str) -> str:
    return f"/{HEALTH.full_name}/{rpc}"


async def test_unreadable_requests_are_refused(channel: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for call in (
            channel.unary_unary(path("Check"))(NO_MESSAGE),
            channel.unary_stream(path("Watch"))(NO_MESSAGE).read(),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert caught.value.details() == "the request is no message of this call"
    assert [record for record in caplog.records if record.name.startswith("grpc")] == []


async def test_registered_calls_are_answered_as_unary_calls_and_streams(channel: Any) -> None:
    request = health_pb2.HealthCheckRequest(service="a").SerializeToString()
    raw = await channel.unary_unary(path("Check"))(request)
    assert health_pb2.HealthCheckResponse.FromString(raw).status == 1
    seen = [raw async for raw in channel.unary_stream(path("Watch"))(request)]
    assert [health_pb2.HealthCheckResponse.FromString(raw).status for raw in seen] == [1, 2]
