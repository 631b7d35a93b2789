"""`Patience`: closes idle connections, because each holds a file descriptor and a client may open many.

Used by `front_door`. Source of the times: `net/http` as `k8s.io/apiserver/pkg/server/secure_serving.go` sets
it (ReadHeaderTimeout, IdleTimeout), v1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from berth_host.listening.connections import Connection

FIRST_WITHIN_S: Final = 32.0
"""The longest time, in seconds, from the start of a connection, with its handshake, to the end of the first
request's headers.
"""
HANDSHAKE_WITHIN_S: Final = 20.0
"""The longest TLS handshake, in seconds; shorter than FIRST_WITHIN_S, which can only end a connection."""
NEXT_WITHIN_S: Final = 90.0
"""The longest time, in seconds, from one answer to the end of the next request's headers; the client must
also read the answer in this time.
"""


class Patience:
    """The timers of open connections, on the running event loop. `ended`: called with each connection that
    is closed.
    """

    def __init__(self, ended: Callable[[Connection], None]) -> None:
        self._ended = ended
        self._ends: dict[Connection, asyncio.TimerHandle] = {}

    def opened(self, connection: Connection, since_s: float) -> None:
        """Start the timer of a new connection, which was accepted `since_s` seconds ago."""
        self._end_in(max(FIRST_WITHIN_S - since_s, 0.0), connection)

    def asked(self, connection: Connection) -> None:
        """Stop the timer when a request has arrived, or when the connection is closed. An answer may take any
        time.
        """
        timer = self._ends.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def answered(self, connection: Connection) -> None:
        """Start the timer again when the answer is ready to send."""
        self._end_in(NEXT_WITHIN_S, connection)

    def stop(self) -> None:
        """Cancel all timers."""
        for timer in self._ends.values():
            timer.cancel()
        self._ends.clear()

    def _end_in(self, seconds: float, connection: Connection) -> None:
        self.asked(connection)
        self._ends[connection] = asyncio.get_running_loop().call_later(seconds, self._end, connection)

    def _end(self, connection: Connection) -> None:
        del self._ends[connection]
        # Without a TLS shutdown, which a silent client may not answer.
        connection.close()
        self._ended(connection)
