"""`SessionSockets`: the sockets of an aiohttp session, none of which outlasts the session on asyncio's loop.

aiohttp forgets the connection of a request that was cancelled, while that connection waits for the end of TLS
from the server. Nothing waits for such a connection when the session is closed, so it would stay open.
On uvloop a connected socket belongs to the loop (`process.event_loop`) and is not seen here: there such a
connection stays open until the loop gives up on the end of TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

_TURNS: Final = 10
"""The most turns of the event loop that a connection takes to close once its socket was shut down."""


def _unchanged(_: socket.socket) -> None: ...


class SessionSockets:
    """Makes the sockets of one session. `prepare`: is called with each new socket."""

    def __init__(self, prepare: Callable[[socket.socket], None] = _unchanged) -> None:
        self._prepare = prepare
        self._made: WeakSet[socket.socket] = WeakSet()

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """Return a new socket for an address (as of getaddrinfo): the `socket_factory` of the connector."""
        family, kind, protocol, *_ = address
        made = socket.socket(family=family, type=kind, proto=protocol)
        self._prepare(made)
        self._made.add(made)
        return made

    def open_count(self) -> int:
        """Return the number of sockets that are open."""
        return sum(made.fileno() != -1 for made in self._made)

    async def end(self) -> None:
        """Shut down the sockets that are open after the session was closed; wait until they are closed."""
        for _ in range(_TURNS):
            still_open = [made for made in self._made if made.fileno() != -1]
            if not still_open:
                return
            for made in still_open:
                with contextlib.suppress(OSError):  # The server was faster.
                    made.shutdown(socket.SHUT_RDWR)
            await asyncio.sleep(0)
