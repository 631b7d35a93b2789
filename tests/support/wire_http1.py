"""One connection of a client, as an HTTP/1.1 server sees it. Made by `wire_server`."""

from __future__ import annotations

import asyncio
from typing import cast

from support.wire_asked import Asked, WireServer, certificate_of


class ServedHttp1(asyncio.Protocol):
    """One connection. Reads requests with a length alone, which is what the client sends."""

    def __init__(self, server: WireServer) -> None:
        self.server = server
        self.transport: asyncio.Transport | None = None
        self.reads = 0
        self.certificate = ""
        """The name in the client's certificate."""
        self.is_lost = False
        self._read = bytearray()
        self._count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.server.connections.append(self)
        self.certificate = certificate_of(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            line, *lines = self._read[:end].decode("latin-1").split("\r\n")
            method, path, version = line.split(" ")
            assert version == "HTTP/1.1"
            headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in lines)}
            size = end + 4 + int(headers.get("content-length", "0"))
            if len(self._read) < size:
                return
            body = bytes(self._read[end + 4 : size])
            del self._read[:size]
            self._count += 1
            self.server.got(Asked(self, self._count, {":method": method, ":path": path, **headers}, body))

    def answer(self, stream: int, status: int, body: bytes, retry_after: str) -> None:
        """Answer the request; `stream` is its number on this connection, the last one."""
        assert stream == self._count
        more = f"Retry-After: {retry_after}\r\n" if retry_after else ""
        head = (
            f"HTTP/1.1 {status} Status\r\nAudit-Id: {'f' * 36}\r\n{more}Content-Length: {len(body)}\r\n\r\n"
        )
        self.write(head.encode() + body)

    def write(self, raw: bytes) -> None:
        """Send any bytes."""
        assert self.transport is not None
        self.transport.write(raw)

    def cut(self) -> None:
        """Reset the connection."""
        assert self.transport is not None
        self.transport.abort()
