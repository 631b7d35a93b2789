"""`Relay`: a TCP port in front of a gRPC server, for the limits on connections that gRPC does not have.

    client -TCP-> Listener (limits, turns) -> Relay -Unix socket-> gRPC, which makes the TLS handshake

The bytes pass unread. gRPC alone takes as many connections as there are descriptors.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Final, cast

from berth_host.listening.connections import Connection, Connections, Phase, limits_within
from berth_host.listening.descriptors import descriptor_limit
from berth_host.listening.listener import BACKLOG, Listener
from berth_host.metrics.connection_metrics import ConnectionMetrics

_HELD_BYTES: Final = 256 * 1024
"""The most bytes of one direction that wait for the other side, before reading stops."""
_DESCRIPTORS: Final = 2
"""A relayed connection has two ends here, and one in gRPC's server."""


class Relay:
    """made -start-> relaying -stop-> stopped"""

    def __init__(self, port: str, metrics: ConnectionMetrics | None = None) -> None:
        """`port`: its name in metrics and log lines. `metrics` None: they are not shown."""
        limits = limits_within(descriptor_limit() // (1 + _DESCRIPTORS))
        self.connections = Connections(port, metrics or ConnectionMetrics(), limits)
        self._folder = Path(tempfile.mkdtemp(prefix="berth-relay-"))  # 0700
        self._socket: socket.socket | None = None
        self._listener: Listener | None = None

    @property
    def target(self) -> str:
        """The address at which the gRPC server listens."""
        return f"unix://{self._path}"

    @property
    def _path(self) -> Path:
        return self._folder / "grpc.sock"

    def bind(self, address: str, port: int) -> int:
        """Bind the port, and return its number; `port` 0: a free one. Raises OSError."""
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        both = family == socket.AF_INET6 and address == "::" and socket.has_dualstack_ipv6()
        self._socket = socket.create_server(
            (address, port), family=family, dualstack_ipv6=both, backlog=BACKLOG
        )
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Accept connections, after `bind` and after the gRPC server has started."""
        assert self._socket is not None
        self._listener = Listener(self._socket, self.connections, self._serve)
        self._listener.start()

    def pause(self) -> None:
        """Accept no more connections, while those that are open go on."""
        if self._listener is not None:
            self._listener.stop()

    def close_all(self) -> None:
        """Close all connections; new ones are accepted."""
        for connection in self.connections.all():
            connection.close()

    async def stop(self) -> None:
        """Close the port and its connections."""
        if self._listener is not None:
            self._listener.stop()
            await self._listener.close_all()
            self._listener = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _serve(self, connection: Connection, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        inner, outer = _End(self.connections, connection), _End(self.connections, connection)
        try:
            await loop.create_unix_connection(lambda: inner, str(self._path))
        except OSError as err:
            # The server stops, or its backlog is full.
            self.connections.note("refused", connection.peer, f"the server takes no connection: {err}")
            sock.close()
            self.connections.remove(connection)
            return
        except asyncio.CancelledError:
            sock.close()
            self.connections.remove(connection)
            raise
        outer.other, inner.other = inner, outer
        connection.close = outer.abort
        await loop.connect_accepted_socket(lambda: outer, sock)


class _End(asyncio.Protocol):
    """One side of a relayed connection. `other`: the other side."""

    def __init__(self, connections: Connections, connection: Connection) -> None:
        self.other: _End | None = None
        self.transport: asyncio.Transport | None = None
        self.has_ended = False
        """No more bytes come from this side."""
        self.early: list[bytes] = []
        """Bytes that came before the other side was there: uvloop reads on although reading is paused."""
        self._connections = connections
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = self.transport = cast("asyncio.Transport", transport)
        made.set_write_buffer_limits(_HELD_BYTES)
        if self._connection not in self._connections:
            made.abort()  # closed meanwhile
        elif self.other is None:
            # gRPC speaks first, and the client's side is not there yet.
            made.pause_reading()
        elif self.other.transport is not None:
            made.writelines(self.other.early)
            self.other.early.clear()
            self.other.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._connections.spoke(self._connection, Phase.IDLE)
        if self.other is None or self.other.transport is None:
            self.early.append(data)
        else:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        self.has_ended = True
        other = None if self.other is None else self.other.transport
        if self.other is not None and self.other.has_ended:
            if other is not None:
                other.close()  # after the bytes that wait
            return False
        if other is not None and other.can_write_eof() and not other.is_closing():
            other.write_eof()
        return True  # the other direction goes on

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.transport = None
        other = None if self.other is None else self.other.transport
        if other is None:
            self._connections.remove(self._connection)
        else:
            # Its bytes may wait for a client that does not read: until then it counts.
            other.close()

    def abort(self) -> None:
        """Close both sides at once."""
        for end in (self, self.other):
            if end is not None and end.transport is not None:
                end.transport.abort()
