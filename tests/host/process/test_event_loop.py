"""uvloop is used where it is installed, and closes no descriptor twice."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import sys
from typing import Any

import pytest
import uvloop
from berth_host.process import event_loop

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: close with a reset."""


async def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_the_loop_of_uvloop_is_used_where_there_is_one() -> None:
    assert isinstance(event_loop.run(_loop()), uvloop.Loop)


def test_loop_of_asyncio_is_used_on_request() -> None:
    assert isinstance(event_loop.run(_loop(), on_uvloop=False), asyncio.SelectorEventLoop)


def test_loop_of_asyncio_is_used_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    uninstalled: Any = None
    monkeypatch.setitem(sys.modules, "uvloop", uninstalled)
    assert event_loop.loop_factory() is None
    assert isinstance(event_loop.run(_loop()), asyncio.SelectorEventLoop)


async def _connected(port: int) -> socket.socket:
    connected = socket.socket()
    connected.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connected, ("127.0.0.1", port))
    return connected


async def _descriptors_left(after_handshake_began: bool) -> list[int]:
    """Return the descriptors that sockets have after uvloop took them and their connections were reset."""
    loop = asyncio.get_running_loop()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)

    async def reset_all() -> None:
        while True:
            accepted, _ = await loop.sock_accept(listening)
            if after_handshake_began:
                await loop.sock_recv(accepted, 1)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            accepted.close()

    resetting = loop.create_task(reset_all())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    left = []
    for _ in range(50):
        taken = await _connected(listening.getsockname()[1])
        with pytest.raises(OSError):
            await loop.create_connection(asyncio.Protocol, sock=taken, ssl=context, server_hostname="reset")
        if taken.fileno() != -1:
            left.append(taken.detach())
    resetting.cancel()
    listening.close()
    return left


@pytest.mark.parametrize("after_handshake_began", [False, True], ids=["at once", "in the handshake"])
def test_socket_of_a_reset_connection_keeps_no_descriptor_that_libuv_closed(
    after_handshake_began: bool,
) -> None:
    assert event_loop.run(_descriptors_left(after_handshake_began)) == []


def test_socket_of_a_connection_that_stands_belongs_to_the_loop() -> None:
    async def echoed() -> bytes:
        listening = socket.create_server(("127.0.0.1", 0))

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.read(5))
            writer.close()

        async with await asyncio.start_server(echo, sock=listening):
            taken = await _connected(listening.getsockname()[1])
            reader, writer = await asyncio.open_connection(sock=taken)
            assert taken.fileno() == -1
            writer.write(b"hello")
            answer = await reader.read()
            writer.close()
            return answer

    assert event_loop.run(echoed()) == b"hello"
