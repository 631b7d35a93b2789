"""`Patience`: closes idle connections, because each holds a file descriptor and a client may open many.

Used by `server`. Source of the times: `net/http` as `k8s.io/apiserver/pkg/server/secure_serving.go` sets it
(ReadHeaderTimeout, IdleTimeout), v1.36.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp.web_protocol import RequestHandler

HANDSHAKE_WITHIN_S: Final = 20.0
"""The longest TLS handshake, in seconds; shorter than FIRST_WITHIN_S, which can only end a connection."""
FIRST_WITHIN_S: Final = 32.0
"""The longest time, in seconds, from the start of a connection, with its handshake, to the end of the first
request's headers.
"""
NEXT_WITHIN_S: Final = 90.0
"""The longest time, in seconds, from one answer to the end of the next request's headers; the client must
also read the answer in this time.
"""


class Patience:
    """The timers of open connections, on the running event loop."""

    def __init__(self) -> None:
        self._ends: dict[RequestHandler, asyncio.TimerHandle] = {}

    def opened(self, connection: RequestHandler) -> None:
        """Start the timer of a new connection."""
        self._end_in(FIRST_WITHIN_S, connection)

    def asked(self, connection: RequestHandler) -> None:
        """Stop the timer when a request has arrived; its answer may take any time."""
        timer = self._ends.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def answered(self, connection: RequestHandler) -> None:
        """Start the timer again when the answer is ready to send."""
        if connection.transport is not None:
            self._end_in(NEXT_WITHIN_S, connection)

    def stop(self) -> None:
        """Cancel all timers."""
        for timer in self._ends.values():
            timer.cancel()
        self._ends.clear()

    def _end_in(self, seconds: float, connection: RequestHandler) -> None:
        self._ends[connection] = asyncio.get_running_loop().call_later(seconds, self._end, connection)

    def _end(self, connection: RequestHandler) -> None:
        del self._ends[connection]
        if connection.transport is not None:
            # Without a TLS shutdown, which a silent client may not answer.
            connection.transport.abort()
