"""An HTTP/2 server over TLS (library h2) whose answers and faults a test chooses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from support.certificates import Authority


@dataclass
class Asked:
    """One request. `of`: the connection it came over."""

    of: ServedConnection
    stream: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def path(self) -> str:
        return self.headers[":path"]

    def answer(self, status: int = 200, body: bytes = b"{}", *, retry_after: str = "") -> None:
        """Answer; what the client's windows do not let through follows when they do."""
        fields = [(":status", str(status)), ("content-type", "application/json"), ("audit-id", "f" * 36)]
        if retry_after:
            fields.append(("retry-after", retry_after))
        self.of.h2.send_headers(self.stream, fields)
        self.of.unsent[self.stream] = body
        self.of.send_bodies()


Handler = Callable[[Asked], Awaitable[None]]


@dataclass
class Http2Server:
    """The settings of a server, and the requests that it got. `handler`: answers each; None: nobody does."""

    handler: Handler | None = None
    settings: dict[SettingCodes, int] = field(default_factory=dict)
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    resets: list[tuple[int, int]] = field(default_factory=list)
    connections: list[ServedConnection] = field(default_factory=list)
    acknowledges: bool = True
    """Whether PING is answered."""

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"


class ServedConnection(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, server: Http2Server) -> None:
        self.server = server
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.unsent: dict[int, bytes] = {}
        self.transport: asyncio.Transport | None = None
        self.reads = 0
        self.held: bytearray | None = None
        """Takes what would be sent, unless it is None."""
        self._open: dict[int, Asked] = {}
        self._tasks: set[asyncio.Future[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.connections.append(self)
        self.h2.local_settings = Settings(client=False, initial_values=self.server.settings)
        self.h2.initiate_connection()
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        if not self.server.acknowledges and b"berth\0\0\0" in data:
            return
        try:
            events = self.h2.receive_data(data)
        except ProtocolError:
            self.flush()
            raise
        for event in events:
            if isinstance(event, RequestReceived):
                assert event.headers is not None and event.stream_id is not None
                self._open[event.stream_id] = Asked(
                    self, event.stream_id, {str(k): str(v) for k, v in event.headers}
                )
            elif isinstance(event, DataReceived):
                assert event.data is not None and event.stream_id is not None
                self._open[event.stream_id].body += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
            elif isinstance(event, StreamEnded):
                self._ended(event.stream_id)
            elif isinstance(event, StreamReset):
                self.unsent.pop(event.stream_id, None)
                self.server.resets.append((event.stream_id, int(event.error_code or 0)))
            elif isinstance(event, WindowUpdated):
                self.send_bodies()
        self.flush()

    def _ended(self, stream: int) -> None:
        asked = self._open.pop(stream)
        self.server.asked.append(asked)
        if self.server.handler is not None:
            task = asyncio.ensure_future(self.server.handler(asked))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def send_bodies(self) -> None:
        """Send what the client's windows let through."""
        for stream, body in list(self.unsent.items()):
            sent = 0
            while sent < len(body):
                window = self.h2.local_flow_control_window(stream)
                size = min(len(body) - sent, window, self.h2.max_outbound_frame_size)
                if size <= 0:
                    break
                self.h2.send_data(stream, body[sent : sent + size])
                sent += size
            self.unsent[stream] = body[sent:]
            if sent == len(body):
                del self.unsent[stream]
                self.h2.end_stream(stream)
        self.flush()

    def flush(self) -> None:
        if self.transport is None or not (raw := self.h2.data_to_send()):
            return
        if self.held is not None:
            self.held += raw
        else:
            self.transport.write(raw)

    def write(self, raw: bytes) -> None:
        """Send any bytes."""
        assert self.transport is not None
        self.transport.write(raw)

    def cut(self) -> None:
        """Reset the connection."""
        assert self.transport is not None
        self.transport.abort()


@asynccontextmanager
async def http2_server(authority: Authority, folder: Path, server: Http2Server) -> AsyncIterator[Http2Server]:
    """Serve on loopback, with a certificate for 127.0.0.1."""
    pair = authority.issue("server")
    pem = folder / "http2-server.pem"
    pem.write_bytes(pair.certificate + pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)
    context.set_alpn_protocols(["h2"])
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: ServedConnection(server), "127.0.0.1", 0, ssl=context)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for connection in server.connections:
            connection.cut()
        await listening.wait_closed()
