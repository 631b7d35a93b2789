"""Connections to an extender are bounded, and what strangers can make its log say."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from typing import Any

import pytest
from berth_sdk.serve.extender import connections
from berth_sdk.serve.extender.connections import MOST_OPEN
from berth_sdk.serve.extender.tls import ExtenderTls
from support.certificates import Authority, PairFiles, pair_files
from support.waiting import PATIENCE_S, until

from sdk.serve.extender.serving import Asking, Pools, extender


def connections_of(asking: Asking) -> connections.Connections:
    found: connections.Connections = vars(asking.server)["_connections"]
    return found


async def idle_sockets(asking: Asking, count: int) -> list[socket.socket]:
    loop = asyncio.get_running_loop()
    made = []
    for _ in range(count):
        sock = socket.socket()
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", int(asking.url.rpartition(":")[2])))
        made.append(sock)
    return made


@pytest.mark.parametrize("has_tls", [False, True])
async def test_idle_connections_leave_room_for_a_scheduler(
    has_tls: bool, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority()
    files: PairFiles = pair_files(tmp_path, "extender", authority.issue("extender"), authority)
    tls = ExtenderTls(cert_file=str(files.certificate), key_file=str(files.key)) if has_tls else None
    async with extender(Pools, tls_files=tls) as asking:
        idle = await idle_sockets(asking, 2 * MOST_OPEN + 10)
        await until(lambda: connections_of(asking).closed_for_room >= MOST_OPEN)
        assert await asking.get("/healthz") == (200, "ok\n")
        assert len(connections_of(asking)) <= MOST_OPEN
        for sock in idle:
            sock.close()
    assert 1 <= caplog.text.count("connections are open") <= 5


async def test_connection_that_asks_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "FIRST_WITHIN_S", 0.2)
    async with extender(Pools) as asking:
        (sock,) = await idle_sockets(asking, 1)
        sock.send(b"POST /filter HTTP/1.1\r\nHost: ")
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.get_running_loop().sock_recv(sock, 1) == b""
        sock.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\r\n\r\n",
        b"POST /filter HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_malformed_requests_write_few_lines_and_no_traceback(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with extender(Pools) as asking:
        for _ in range(30):
            (sock,) = await idle_sockets(asking, 1)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(sock, sent)
            with suppress(ConnectionError):
                async with asyncio.timeout(PATIENCE_S):
                    await loop.sock_recv(sock, 4096)
            sock.close()
    assert "Traceback" not in caplog.text
    assert len(caplog.records) <= 5
