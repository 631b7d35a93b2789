"""`Connections`: accepts the connections of the extender's port, and bounds their number.

When there is no room, the connection that has been silent for longest is closed, so that a scheduler gets in.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiohttp.http_exceptions import HttpProcessingError

from berth_sdk.clocks import monotonic_s
from berth_sdk.serve.quiet_lines import QuietLines

LOG: Final = logging.getLogger("berth_sdk.serve.extender")
MOST_OPEN: Final = 128
HANDSHAKE_WITHIN_S: Final = 10.0
FIRST_WITHIN_S: Final = 32.0
"""The longest time, in seconds, from the start of a connection to the end of the first request's headers."""
_AGAIN_S: Final = 0.2
_SHOWN: Final = 200


@dataclass(eq=False, slots=True)
class _Connection:
    handler: asyncio.Protocol
    spoke_s: float
    task: asyncio.Task[None] | None = None
    transport: asyncio.BaseTransport | None = None
    is_busy: bool = False
    has_asked: bool = False

    def close(self) -> None:
        if isinstance(self.transport, asyncio.WriteTransport):
            self.transport.abort()
        elif self.task is not None:
            self.task.cancel()


class Quiet(QuietLines):
    """The quiet lines of the extender's port.

    `logger`: for aiohttp, which writes a traceback for each request that is no HTTP.
    """

    def __init__(self, clock: Callable[[], float] = monotonic_s) -> None:
        """`clock`: monotonic seconds."""
        super().__init__(LOG, clock)
        self.logger = logging.Logger("berth_sdk.serve.extender.http")
        self.logger.addHandler(_Passed(self))


class _Passed(logging.Handler):
    """Passes aiohttp's lines on, without the traceback of a request that is no HTTP."""

    def __init__(self, quiet: Quiet) -> None:
        super().__init__()
        self._quiet = quiet

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if error is not None and not isinstance(error, HttpProcessingError):
            LOG.error("%s", record.getMessage(), exc_info=error)
            return
        problem = "" if error is None else (str(error).splitlines() or [""])[0][:_SHOWN]
        self._quiet.tell("%s: %s", record.getMessage(), problem)


class Connections:
    """made -start-> accepting -stop-> stopped. `make_handler`: makes the protocol of a connection."""

    def __init__(self, make_handler: Callable[[], asyncio.Protocol], context: ssl.SSLContext | None) -> None:
        self._make_handler = make_handler
        self._context = context
        self._open: dict[asyncio.Protocol, _Connection] = {}
        self._accepting: asyncio.Task[None] | None = None
        self._listening: socket.socket | None = None
        self._lines = Quiet()
        self.closed_for_room = 0
        """Connections that were closed because others needed their place."""

    def __len__(self) -> int:
        return len(self._open)

    def start(self, listening: socket.socket) -> None:
        """Accept connections of a bound socket, which is closed by `stop`."""
        listening.setblocking(False)
        self._listening = listening
        self._accepting = asyncio.create_task(self._accept(listening))

    async def stop(self) -> None:
        """Accept no more connections; open ones stay. Has no effect without `start`."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait({self._accepting})
            self._accepting = None
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def close_all(self) -> None:
        """Close all connections at once."""
        for connection in list(self._open.values()):
            connection.close()

    @contextmanager
    def asked(self, handler: Any) -> Iterator[None]:
        """Keep the connection of a request open for the block."""
        connection = self._open.get(handler)
        if connection is not None:
            connection.is_busy = connection.has_asked = True
        try:
            yield
        finally:
            if connection is not None:
                connection.is_busy = False
                connection.spoke_s = asyncio.get_running_loop().time()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listening)
            except ConnectionError:
                continue
            except OSError as err:
                self._lines.tell(f"no connection can be accepted: {err.strerror}")
                self._make_room()
                await asyncio.sleep(_AGAIN_S)
                continue
            if not self._has_room():
                self._lines.tell(f"{MOST_OPEN} connections wait for answers, and no other one is accepted")
                sock.close()
                continue
            handler = self._make_handler()
            connection = self._open[handler] = _Connection(handler, loop.time())
            connection.task = loop.create_task(self._serve(connection, sock))

    async def _serve(self, connection: _Connection, sock: socket.socket) -> None:
        """Make the handshake, and wait until the connection has asked for something or is closed."""
        loop = asyncio.get_running_loop()
        limits = {} if self._context is None else {"ssl_handshake_timeout": HANDSHAKE_WITHIN_S}
        try:
            connection.transport, _ = await loop.connect_accepted_socket(
                lambda: connection.handler, sock, ssl=self._context, **limits
            )
        except (OSError, TimeoutError, asyncio.CancelledError):
            self._open.pop(connection.handler, None)
            return
        loop.call_later(FIRST_WITHIN_S, self._end_silent, connection)

    def _end_silent(self, connection: _Connection) -> None:
        if not connection.has_asked:
            connection.close()

    def _has_room(self) -> bool:
        for handler, connection in list(self._open.items()):
            if connection.transport is not None and connection.transport.is_closing():
                del self._open[handler]
        return len(self._open) < MOST_OPEN or self._make_room()

    def _make_room(self) -> bool:
        silent = (one for one in self._open.values() if not one.is_busy)
        found = min(silent, key=lambda one: (one.has_asked, one.spoke_s), default=None)
        if found is None:
            return False
        found.close()
        del self._open[found.handler]
        self.closed_for_room += 1
        self._lines.tell(f"{MOST_OPEN} connections are open: the one that was silent for longest is closed")
        return True
