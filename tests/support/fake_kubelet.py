"""A kubelet for tests that answers `kubectl port-forward`, and nothing else: SPDY/3.1 behind the API server.

The API server connects to the address and port of a Node's status, upgrades the connection, and passes what
kubectl sends. kubectl opens two streams for each connection: one for errors, one for the data, whose headers
name the port. The kubelet connects to that port on loopback, wherever the pod says that it runs.
Source: SPDY protocol, draft 3.1 (frames, and the dictionary of 2.6.10.1); the headers of Kubernetes' protocol
`portforward.k8s.io`.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from support.certificates import Authority

_WORDS: Final = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language"
    " accept-ranges age allow authorization cache-control connection content-base content-encoding"
    " content-language content-length content-location content-md5 content-range content-type date etag"
    " expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since"
    " last-modified location max-forwards pragma proxy-authenticate proxy-authorization range referer"
    " retry-after server te trailer transfer-encoding upgrade user-agent vary via warning www-authenticate"
    " method get status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin"
)
_TAIL: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
_DICTIONARY: Final = (
    b"".join(struct.pack(">I", len(word)) + word.replace("_", " ").encode() for word in _WORDS.split())
    + _TAIL.encode()
)
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GO_AWAY = 1, 2, 3, 6, 7
_FIN: Final = 1
_ID: Final = 0x7FFFFFFF
_CHUNK: Final = 2**15


@dataclass
class FakeKubelet:
    """A running kubelet. `asked`: the paths of the requests; `ports`: the port of every connection."""

    port: int
    asked: list[str] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    open_count: int = 0

    def node(self, name: str) -> dict[str, Any]:
        """Return the Node by which the API server finds the kubelet."""
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        }
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


@asynccontextmanager
async def fake_kubelet(folder: Path) -> AsyncIterator[FakeKubelet]:
    """Run a kubelet for the block. `folder`: for its certificate, which nobody checks."""
    pair = Authority("kubelet").issue("kubelet")
    certificate, key = folder / "kubelet.crt", folder / "kubelet.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    kubelet = FakeKubelet(port=0)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await _Connection(kubelet, reader, writer).run()
        except (asyncio.IncompleteReadError, OSError):
            pass  # the other side has gone
        finally:
            tasks.discard(task)
            await _close(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    kubelet.port = server.sockets[0].getsockname()[1]
    try:
        yield kubelet
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


@dataclass
class _Pair:
    """The two streams of one forwarded connection."""

    error: int = 0
    data: int = 0
    port: int = 0
    target: asyncio.StreamWriter | None = None


class _Connection:
    """One upgraded connection, with any number of forwarded ones in it."""

    def __init__(
        self, kubelet: FakeKubelet, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._kubelet = kubelet
        self._reader = reader
        self._writer = writer
        self._inflate = zlib.decompressobj(zdict=_DICTIONARY)
        self._deflate = zlib.compressobj()
        self._pairs: dict[str, _Pair] = {}
        self._by_data: dict[int, _Pair] = {}
        self._copies: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Upgrade, and serve the frames until the other side goes."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        self._kubelet.asked.append(head.split(" ")[1])
        assert "upgrade: spdy/3.1" in head.lower(), head
        self._writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            b"X-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n"
        )
        self._kubelet.open_count += 1
        try:
            while True:
                await self._frame()
        finally:
            self._kubelet.open_count -= 1
            for task in self._copies:
                task.cancel()
            await asyncio.gather(*self._copies, return_exceptions=True)
            for pair in self._by_data.values():
                if pair.target is not None:
                    await _close(pair.target)

    async def _frame(self) -> None:
        first, rest = struct.unpack(">II", await self._reader.readexactly(8))
        body = await self._reader.readexactly(rest & 0xFFFFFF)
        flags = rest >> 24
        if not first >> 31:
            await self._data(first & _ID, flags, body)
        elif first & 0xFFFF == _SYN_STREAM:
            await self._opened(struct.unpack(">I", body[:4])[0] & _ID, self._headers(body[10:]))
        elif first & 0xFFFF == _PING:
            self._control(_PING, body)
        elif first & 0xFFFF == _RST_STREAM:
            await self._data(struct.unpack(">I", body[:4])[0] & _ID, _FIN, b"")

    def _headers(self, block: bytes) -> dict[str, str]:
        raw = self._inflate.decompress(block)
        (count,), at, words = struct.unpack(">I", raw[:4]), 4, []
        for _ in range(2 * count):
            (size,) = struct.unpack(">I", raw[at : at + 4])
            words.append(raw[at + 4 : at + 4 + size].decode())
            at += 4 + size
        return {name.lower(): value for name, value in zip(words[::2], words[1::2], strict=True)}

    async def _opened(self, stream: int, headers: dict[str, str]) -> None:
        no_headers = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        self._control(_SYN_REPLY, struct.pack(">I", stream) + no_headers)
        pair = self._pairs.setdefault(headers["requestid"], _Pair())
        if headers["streamtype"] == "error":
            pair.error = stream
        else:
            pair.data, pair.port = stream, int(headers["port"])
            self._kubelet.ports.append(pair.port)
            reader, pair.target = await asyncio.open_connection("127.0.0.1", pair.port)
            self._by_data[stream] = pair
            task = asyncio.create_task(self._copy(pair, reader))
            self._copies.add(task)
            task.add_done_callback(self._copies.discard)

    async def _data(self, stream: int, flags: int, body: bytes) -> None:
        pair = self._by_data.get(stream)
        if pair is None or pair.target is None:
            return  # kubectl says nothing on the stream of errors
        if body:
            pair.target.write(body)
            await pair.target.drain()
        if flags & _FIN and pair.target.can_write_eof():
            pair.target.write_eof()

    async def _copy(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        """Pass on what the target says; its end ends both streams."""
        try:
            while part := await reader.read(_CHUNK):
                self._send(pair.data, 0, part)
                await self._writer.drain()
        except OSError:
            pass  # the target has gone, which is its end, too
        self._send(pair.data, _FIN, b"")
        self._send(pair.error, _FIN, b"")

    def _send(self, stream: int, flags: int, body: bytes) -> None:
        self._writer.write(struct.pack(">II", stream, flags << 24 | len(body)) + body)

    def _control(self, kind: int, body: bytes) -> None:
        self._writer.write(struct.pack(">HHI", 0x8003, kind, len(body)) + body)
