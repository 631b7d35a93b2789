"""A relayed connection ends here when it has ended at both sides, and bytes that wait still arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from berth_host.listening.relay import Relay
from berth_host.process.event_loop import run
from support.waiting import PATIENCE_S


@asynccontextmanager
async def relaying(answer: bytes) -> AsyncIterator[tuple[Relay, int]]:
    """Yield a relay and its port, before a server that answers when the client has sent everything."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    relay = Relay("test")
    async with await asyncio.start_unix_server(serve, relay.target.removeprefix("unix://")):
        port = relay.bind("127.0.0.1", 0)
        relay.start()
        try:
            yield relay, port
        finally:
            await relay.stop()


async def nobody_left(relay: Relay) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(relay.connections):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("on_uvloop", [False, True])
@pytest.mark.parametrize("closes_first", [False, True])
def test_connection_that_ended_at_both_sides_is_forgotten(on_uvloop: bool, closes_first: bool) -> None:
    async def ask() -> None:
        async with relaying(b"" if closes_first else b"bye") as (relay, port):
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"hello")
                if not closes_first:
                    writer.write_eof()
                    assert await reader.read() == b"bye"
                writer.close()
                await writer.wait_closed()
            await nobody_left(relay)

    run(ask(), on_uvloop=on_uvloop)


@pytest.mark.parametrize("on_uvloop", [False, True])
def test_what_a_server_says_first_reaches_the_client(on_uvloop: bool) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"welcome")
        await reader.read()
        writer.close()
        await writer.wait_closed()

    async def ask() -> None:
        relay = Relay("test")
        async with await asyncio.start_unix_server(greet, relay.target.removeprefix("unix://")):
            port = relay.bind("127.0.0.1", 0)
            relay.start()
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"hello")
                async with asyncio.timeout(PATIENCE_S):
                    assert await reader.readexactly(7) == b"welcome"
                writer.close()
                await writer.wait_closed()
                await nobody_left(relay)
            finally:
                await relay.stop()

    run(ask(), on_uvloop=on_uvloop)


async def test_all_of_an_answer_arrives_though_the_server_has_closed() -> None:
    async with relaying(b"x" * 1_000_000) as (relay, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello")
        writer.write_eof()
        await asyncio.sleep(0.1)
        assert len(await reader.read()) == 1_000_000
        writer.close()
        await writer.wait_closed()
        await nobody_left(relay)
