"""A TCP proxy between a client and a server, which cuts, holds and changes what passes, as a test says.

With `tls` it ends the client's TLS and starts its own towards the server, so that a place in the stream is a
place in HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Way:
    """One direction of one connection.

    `left`: the bytes that still pass before the connection is cut; None: all. `change`: changes each piece.
    `piece`: the most bytes that pass at once; None: as many as come. `is_open`: nothing passes while it is
    not set.
    """

    left: int | None = None
    change: Callable[[bytes], bytes] | None = None
    piece: int | None = None
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    passed: int = 0

    def __post_init__(self) -> None:
        self.is_open.set()


@dataclass
class Link:
    """One connection. `up`: from the client to the server."""

    up: Way = field(default_factory=Way)
    down: Way = field(default_factory=Way)


@dataclass
class Relay:
    """The connections so far. `made`: called with each new one, before anything passes."""

    made: Callable[[Link], None] | None = None
    port: int = 0
    links: list[Link] = field(default_factory=list)


@asynccontextmanager
async def tcp_relay(
    relay: Relay, target_port: int, *, tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None
) -> AsyncIterator[Relay]:
    """Relay to a port on loopback for the block. `tls`: the context towards the client, and to the server."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link()
        relay.links.append(link)
        if relay.made is not None:
            relay.made(link)
        try:
            there_reader, there_writer = await asyncio.open_connection(
                "127.0.0.1",
                target_port,
                ssl=tls[1] if tls else None,
                server_hostname="127.0.0.1" if tls else None,
            )
        except OSError:
            writer.transport.abort()
            return
        pumps = {
            asyncio.ensure_future(_pump(link.up, reader, there_writer)),
            asyncio.ensure_future(_pump(link.down, there_reader, writer)),
        }
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for one in (writer, there_writer):
                one.transport.abort()
            await asyncio.gather(*pumps, return_exceptions=True)

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls[0] if tls else None)
    relay.port = listening.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        listening.close()
        for _ in range(3):
            await asyncio.sleep(0)  # A connection that was just accepted gets its protocol.
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(way.piece or 2**16):
            await way.is_open.wait()
            if way.change is not None:
                data = way.change(data)
            if way.left is not None:
                data = data[: way.left]
                way.left -= len(data)
            way.passed += len(data)
            writer.write(data)
            await writer.drain()
            if way.left == 0:
                return
