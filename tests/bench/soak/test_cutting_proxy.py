"""The proxy between a host and its API server, as the soak uses it."""

from __future__ import annotations

import asyncio

import pytest
from berth_bench.soak.cutting_proxy import cutting_proxy
from support.waiting import PATIENCE_S
from yarl import URL


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
    writer.close()


async def test_proxy_that_is_down_cuts_and_refuses_connections_until_it_is_up() -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, asyncio.timeout(PATIENCE_S), cutting_proxy(f"http://127.0.0.1:{port}", 0) as proxy:
        proxy.is_calm = True
        place = ("127.0.0.1", URL(proxy.url).port)
        reader, writer = await asyncio.open_connection(*place)
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"

        proxy.go_down()
        with pytest.raises(OSError):
            assert not await reader.read()
            raise ConnectionResetError
        late, late_writer = await asyncio.open_connection(*place)
        with pytest.raises(OSError):
            assert not await late.read()
            raise ConnectionResetError

        proxy.come_up()
        again, again_writer = await asyncio.open_connection(*place)
        again_writer.write(b"two")
        assert await again.readexactly(3) == b"two"
        for one in (writer, late_writer, again_writer):
            one.close()


async def test_one_way_passes_requests_on_and_loses_the_answers_for_good() -> None:
    arrived: list[bytes] = []
    came = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            arrived.append(data)
            writer.write(data.upper())
            came.set()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, asyncio.timeout(PATIENCE_S), cutting_proxy(f"http://127.0.0.1:{port}", 0) as proxy:
        proxy.is_calm = True
        place = ("127.0.0.1", URL(proxy.url).port)
        reader, writer = await asyncio.open_connection(*place)
        proxy.go_one_way()
        writer.write(b"one")
        await came.wait()
        while proxy.lost_bytes < 3:
            await asyncio.sleep(0)
        assert arrived == [b"one"]

        proxy.come_up()
        with pytest.raises(OSError):
            assert not await reader.read()
            raise ConnectionResetError
        again, again_writer = await asyncio.open_connection(*place)
        again_writer.write(b"two")
        assert await again.readexactly(3) == b"TWO"
        for one in (writer, again_writer):
            one.close()
