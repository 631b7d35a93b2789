"""HTTP servers for tests of clients: they answer in bytes, so that an answer may break every rule of HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


def answer(body: bytes | str = b"{}", status: int = 200, **headers: str) -> bytes:
    """Return a well-formed answer. `headers`: names with underscores for hyphens."""
    raw = body if isinstance(body, bytes) else body.encode()
    lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(raw)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


@dataclass(slots=True)
class Request:
    """One request as it arrived. `connection`: the number of its connection, from 1."""

    head: str
    body: bytes
    connection: int

    @property
    def line(self) -> str:
        """The method and the path."""
        return self.head.partition(" HTTP/")[0]

    @property
    def headers(self) -> dict[str, str]:
        """The headers as they were sent."""
        pairs = (line.partition(": ") for line in self.head.split("\r\n")[1:] if line)
        return {name: value for name, _, value in pairs}

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


Answering = Callable[[Request], bytes | Awaitable[bytes | None] | None]


@dataclass(slots=True)
class RawServer:
    """A server on a loopback port. `answering`: returns the bytes for a request; None: no answer, the
    connection is closed. After an answer the connection stays open only if `keeps` is True.
    """

    answering: Answering
    keeps: bool = True
    scheme: str = "http"
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    open_now: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def address(self) -> str:
        """The host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The URL without a path."""
        return f"{self.scheme}://{self.address}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        self.connections += 1
        number = self.connections
        self.open_now.add(writer)
        try:
            while await self._answer_one(reader, writer, number) and self.keeps:
                pass
        finally:
            self.open_now.discard(writer)

    async def _answer_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request = Request(head, b"", number)
        length = int(request.headers.get("Content-Length", "0"))
        request.body = await reader.readexactly(length)
        self.requests.append(request)
        given = self.answering(request)
        if not isinstance(given, bytes) and given is not None:
            given = await given
        if given is None:
            return False
        writer.write(given)
        await writer.drain()
        return True


Serving = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def stream_server(serve: Serving, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve each connection with `serve` for the block, and close it when that returns; yield the port."""
    tasks: set[asyncio.Task[None]] = set()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await serve(reader, writer)
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(served(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


@asynccontextmanager
async def raw_server(
    answering: Answering | bytes | None, *, keeps: bool = True, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    """Serve for the block. `answering`: as of `RawServer`, or the bytes of every answer."""
    fixed = answering
    how: Answering = fixed if callable(fixed) else lambda _: fixed
    server = RawServer(how, keeps, "https" if tls else "http")
    async with stream_server(server.handle, tls=tls) as server.port:
        yield server
