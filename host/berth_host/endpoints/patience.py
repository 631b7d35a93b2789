"""Ends connections on which no request comes: each holds a file, and a client may open many.

Used by `server`. Source of the times: `net/http` as `k8s.io/apiserver/pkg/server/secure_serving.go` sets it
(ReadHeaderTimeout, IdleTimeout), v1.36.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp.web_protocol import RequestHandler

HANDSHAKE_WITHIN_S: Final = 20.0
"""Shorter than the next, which is to find a connection that it can end."""
FIRST_WITHIN_S: Final = 32.0
"""From a connection's begin, with its handshake, to the end of the first request's headers."""
NEXT_WITHIN_S: Final = 90.0
"""From one request's answer, which is to be taken by then as well, to the end of the next one's headers."""


class Patience:
    """Tell it of each connection; on the loop that runs."""

    def __init__(self) -> None:
        self._ends: dict[RequestHandler, asyncio.TimerHandle] = {}

    def opened(self, connection: RequestHandler) -> None:
        """It has been accepted."""
        self._end_in(FIRST_WITHIN_S, connection)

    def asked(self, connection: RequestHandler) -> None:
        """A request has come; its answer may take any time."""
        timer = self._ends.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def answered(self, connection: RequestHandler) -> None:
        """The answer is known, and will be sent."""
        if connection.transport is not None:
            self._end_in(NEXT_WITHIN_S, connection)

    def stop(self) -> None:
        """Forget all of them."""
        for timer in self._ends.values():
            timer.cancel()
        self._ends.clear()

    def _end_in(self, seconds: float, connection: RequestHandler) -> None:
        self._ends[connection] = asyncio.get_running_loop().call_later(seconds, self._end, connection)

    def _end(self, connection: RequestHandler) -> None:
        del self._ends[connection]
        if connection.transport is not None:
            # No farewell in TLS: a client that sends nothing may not answer it either.
            connection.transport.abort()
