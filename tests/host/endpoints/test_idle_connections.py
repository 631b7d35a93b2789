"""Connections without a request are closed; those that wait for an answer are not."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

import pytest
from berth_host.config.loading import default_configuration
from berth_host.endpoints import idle_connections
from support.serving import FakeProcess, KnownUsers, Served, served
from support.waiting import PATIENCE_S


async def opened(port: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return await asyncio.open_connection("127.0.0.1", port.endpoints.server.port, ssl=context)


async def is_ended(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await reader.read() == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: "])
async def test_a_connection_without_a_request_is_ended(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_connections, "FIRST_WITHIN_S", 0.8)  # with a handshake
    async with served(FakeProcess(default_configuration()), KnownUsers()) as port:
        reader, writer = await opened(port)
        writer.write(sent)
        assert await is_ended(reader)
        writer.close()


async def test_a_connection_is_ended_that_begins_a_second_request_and_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(idle_connections, "NEXT_WITHIN_S", 0.3)
    async with served(FakeProcess(default_configuration()), KnownUsers()) as port:
        reader, writer = await opened(port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: ")
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):
                assert b"HTTP/1.1" not in await reader.read()
        writer.close()


@pytest.mark.slow
async def test_connection_with_a_slow_answer_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_connections, "FIRST_WITHIN_S", 2.0)  # with a handshake
    async with served(FakeProcess(default_configuration()), KnownUsers()) as port:
        assert (await port.ask("GET", "/debug/pprof/profile?seconds=2.5", token="clusterAdmin")).status == 200


@pytest.mark.slow
async def test_put_without_the_right_is_refused_without_a_wait() -> None:
    async with served(FakeProcess(default_configuration()), KnownUsers()) as port:
        reader, writer = await opened(port)
        writer.write(b"PUT /debug/flags/v HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.readline() == b"HTTP/1.1 403 Forbidden\r\n"
        writer.close()
