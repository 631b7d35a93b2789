"""One connection of a client, as an HTTP/2 server sees it. Made by `wire_server`."""

from __future__ import annotations

import asyncio
from typing import cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    RequestReceived,
    SettingsAcknowledged,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import Settings
from support.wire_asked import Asked, WireServer, certificate_of


class ServedHttp2(asyncio.Protocol):
    """One connection of a client, which speaks HTTP/2 (library h2)."""

    def __init__(self, server: WireServer) -> None:
        self.server = server
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.unsent: dict[int, bytes] = {}
        self.transport: asyncio.Transport | None = None
        self.reads = 0
        self.acknowledged = 0
        """Acknowledgements of SETTINGS."""
        self.body_bytes = 0
        """Bytes of bodies so far."""
        self.certificate = ""
        """The name in the client's certificate."""
        self.held: bytearray | None = None
        """Takes what would be sent, unless it is None."""
        self._open: dict[int, Asked] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.server.connections.append(self)
        self.certificate = certificate_of(transport)
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
                self.body_bytes += len(event.data)
                self.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
            elif isinstance(event, StreamEnded):
                self._ended(event.stream_id)
            elif isinstance(event, StreamReset):
                self.unsent.pop(event.stream_id, None)
                self.server.resets.append((event.stream_id, int(event.error_code or 0)))
            elif isinstance(event, SettingsAcknowledged):
                self.acknowledged += 1
            elif isinstance(event, WindowUpdated):
                self.send_bodies()
        self.flush()

    def _ended(self, stream: int) -> None:
        self.server.got(self._open.pop(stream))

    def answer(self, stream: int, status: int, body: bytes, retry_after: str) -> None:
        """Answer; what the client's windows do not let through follows when they do."""
        fields = [(":status", str(status)), ("content-type", "application/json"), ("audit-id", "f" * 36)]
        if retry_after:
            fields.append(("retry-after", retry_after))
        self.h2.send_headers(stream, fields)
        self.unsent[stream] = body
        self.send_bodies()

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
