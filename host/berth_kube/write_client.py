"""`WriteClient`: the way of the frequent requests to the API server: bindings, events and patches.

Used by `client`. The connections speak HTTP/2 where the server offers it (ALPN), and HTTP/1.1 otherwise; both
keep the promises of `WriteConnection`. All other requests take the client's session: leases, so that no jam
of bindings delays their renewal, and watches, because an API server ends a watch that is slow to take its
events, which a watch behind a burst of answers is.

    exchange -> a connection with room, the one used last first
             -> none: wait in line; `_dial_more` opens connections for those in line
    a change of the credentials: the connections take no new requests, and close after their last one
    a server that asks for HTTP/1.1 over HTTP/2: all later connections speak HTTP/1.1
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, urlsplit

from berth_kube import http1, http2
from berth_kube.connect import dial, proxy_authorization
from berth_kube.credentials import Credentials
from berth_kube.http1 import Http1Connection, Http1Heads
from berth_kube.http2 import Http2Connection
from berth_kube.http2_heads import Header
from berth_kube.session import constant_headers
from berth_kube.write_connection import NotActedOnError, WriteConnection

MAX_REPEATS: Final = 3
"""The number of times that a request is sent again if the server did not act on it."""
TICK_S: Final = 0.25
"""Time-outs are looked at this often, which costs less than a timer for each request."""
RESTED_S: Final = 1.0
"""Seconds without a request after which a connection is looked at before it is used again."""
DIAL_AGAIN_S: Final = 1.0
"""Seconds after a failed dial before the next one, as long as other connections are open."""
MAX_CONNECTIONS: Final = {http1.PROTOCOL: 64, http2.PROTOCOL: 8}
"""The most connections. One of HTTP/2 is enough, unless the server allows few requests on each."""
MAX_DIALS: Final = {http1.PROTOCOL: 4, http2.PROTOCOL: 1}
"""The most dials at once. Meanwhile requests end, so that few connections serve many requests."""

Exchanged = tuple[int, bytes, str]
"""Status, body and Retry-After of an answer."""


class WriteClient:
    """Connections to one API server. `user_agent`: a header's value."""

    def __init__(self, credentials: Credentials, user_agent: str) -> None:
        parts = urlsplit(credentials.host)
        self._credentials = credentials
        self._user_agent = user_agent
        self._authority = parts.netloc
        # As `path_of` escapes the rest: a space in it would end the path.
        self._prefix = quote(parts.path, safe="/%:@!$&'()*+,;=~")
        self._is_at_proxy = credentials.proxy is not None and parts.scheme == "http"
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._protocol = http2.PROTOCOL
        """The protocol of the last connection."""
        self._offers_http2 = True
        """False once the server has asked for HTTP/1.1 (HTTP_1_1_REQUIRED)."""
        self._context: ssl.SSLContext | None = None
        self._authorization = ""
        self._heads = Http1Heads("", ())
        self._connections: list[WriteConnection] = []
        self._ready: list[WriteConnection] = []
        """The connections that can take another request; the one used last is at the end."""
        self._line: deque[asyncio.Future[None]] = deque()
        """Requests that wait for a connection with room, the first one first."""
        self._dials: set[asyncio.Task[None]] = set()
        self._no_dial_before_s = 0.0
        self._is_looking = False
        """True while `_look_at_rested` has taken connections out of `_ready`."""
        self._tick: asyncio.TimerHandle | None = None
        self._renew()

    @property
    def connection_count(self) -> int:
        """The number of open connections, also of those that take no more requests."""
        return len(self._connections)

    async def exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        timeout_s: float,
        before_sending: Callable[[], None] | None = None,
    ) -> Exchanged:
        """Send a request; return its answer.

        `timeout_s`: for everything, from the wait for a connection to the whole answer. `before_sending`:
        called again before the request is sent if it had to wait. Raises OSError, ssl.SSLError, TimeoutError.
        """
        now_s = self._loop.time()
        ends_s = now_s + timeout_s
        if self._prefix:
            path = self._prefix + path
        repeats_left = MAX_REPEATS
        while True:
            connection = None if self._line else self._with_room(now_s)
            if connection is None:
                async with asyncio.timeout_at(ends_s):
                    connection = await self._in_line()
                if before_sending is not None:
                    before_sending()
            asked = connection.begin(method, path, body, content_type, ends_s)
            if not connection.has_room:
                self._use_up(connection)
            if self._tick is None:
                self._start_tick()
            try:
                await asked.answer
            except asyncio.CancelledError:
                connection.drop(asked, ConnectionAbortedError("its caller was cancelled"))
                raise
            except NotActedOnError:
                if not repeats_left or self._is_closed:
                    raise
                repeats_left -= 1
                if before_sending is not None:
                    before_sending()
                now_s = self._loop.time()
                continue
            parts = asked.parts
            return asked.status, parts[0] if len(parts) == 1 else b"".join(parts), asked.retry_after

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        if self._tick is not None:
            self._tick.cancel()
        self._fail_line(NotActedOnError("the client was closed"))
        for connection in list(self._connections):
            connection.close()
        for dialling in self._dials:
            dialling.cancel()
        if self._dials:
            await asyncio.wait(self._dials)

    # --- which connection ----------------------------------------------------------------------------

    def _with_room(self, now_s: float) -> WriteConnection | None:
        """Return a connection that takes a request now, or None."""
        credentials = self._credentials
        if credentials.ssl_context is not self._context or credentials.authorization != self._authorization:
            self._renew()
        if not self._ready:
            return None
        connection = self._ready[-1]
        return None if _is_rested(connection, now_s) else connection

    async def _in_line(self) -> WriteConnection:
        """Wait for a connection with room, behind those that wait already. Raises what the dial raises."""
        turn: asyncio.Future[None] | None = None
        while True:
            if self._is_closed:
                raise NotActedOnError("the client was closed")
            if turn is not None or not self._line:
                connection = self._with_room(self._loop.time())
                if connection is not None:
                    return connection
            is_new, turn = turn is None, self._loop.create_future()
            if is_new:
                self._line.append(turn)
            else:
                self._line.appendleft(turn)
            self._dial_more()
            self._start_tick()
            try:
                await turn
            finally:
                self._line.remove(turn)
                self._loop.call_soon(self._call_next)

    def _call_next(self) -> None:
        """Tell the requests in line, the first ones first, that there is room for them."""
        room = sum(connection.room_count for connection in self._ready)
        for turn in self._line:
            if room <= 0:
                break
            room -= 1
            if not turn.done():
                turn.set_result(None)

    def _fail_line(self, error: Exception) -> None:
        for turn in self._line:
            if not turn.done():
                turn.set_exception(error)

    def _look_at_rested(self) -> None:
        """Give the event loop two turns, in which it notices the connections that the server has closed.

        The event loop asks the system for news once in a turn, and tells the connections in the next one. A
        request that is sent to a closed connection is lost, and could not be sent again.
        """
        self._is_looking = True
        now_s = self._loop.time()
        rested = [connection for connection in self._ready if _is_rested(connection, now_s)]
        self._ready = [connection for connection in self._ready if connection not in rested]
        self._loop.call_soon(self._loop.call_soon, self._loop.call_soon, self._looked, rested)

    def _looked(self, rested: list[WriteConnection]) -> None:
        self._is_looking = False
        now_s = self._loop.time()
        for connection in rested:
            connection.looked_s = now_s
            self._changed(connection)
        # Also for the connections that were not rested, as nothing else tells of their room.
        self._call_next()
        self._dial_more()

    def _use_up(self, connection: WriteConnection) -> None:
        if connection in self._ready:
            self._ready.remove(connection)

    # --- connections -------------------------------------------------------------------------------

    def _renew(self) -> None:
        """Use the current credentials; what is under way ends on the connections of the old ones."""
        credentials = self._credentials
        self._context, self._authorization = credentials.ssl_context, credentials.authorization
        for connection in list(self._connections):
            connection.retire()
        constant = [("Host", self._authority), *constant_headers(credentials, self._user_agent)]
        target = ""
        if self._is_at_proxy:
            target = f"http://{self._authority}"
            if authorization := proxy_authorization(credentials.proxy or ""):
                constant.append(("Proxy-Authorization", authorization))
        self._heads = Http1Heads(target, constant)

    def _dial_more(self) -> None:
        """Dial for the requests in line, within the limits."""
        line = sum(not turn.done() for turn in self._line)
        if not line or self._is_looking or self._is_closed:
            return
        if self._ready:
            self._look_at_rested()
            return
        open_count = sum(not connection.is_retired for connection in self._connections)
        now_s = self._loop.time()
        if open_count and now_s < self._no_dial_before_s:
            return
        wanted = min(
            line if self._protocol == http1.PROTOCOL else 1,
            MAX_DIALS[self._protocol],
            MAX_CONNECTIONS[self._protocol] - open_count,
        )
        while len(self._dials) < wanted:
            dialling = self._loop.create_task(self._dial())
            self._dials.add(dialling)
            dialling.add_done_callback(self._dialled)

    async def _dial(self) -> None:
        """Open one more connection. Raises as `dial`, and NotActedOnError."""
        credentials = self._credentials
        context, authorization = credentials.ssl_context, credentials.authorization
        connection = await dial(credentials, self._make, offers_http2=self._offers_http2)
        is_old = credentials.ssl_context is not context or credentials.authorization != authorization
        is_http2 = isinstance(connection, Http2Connection)
        if self._is_closed or is_old or (is_http2 and not self._offers_http2):
            connection.close()
            return
        if not connection.has_room:
            is_left = connection.is_closed or connection.is_retired
            connection.close()
            raise NotActedOnError(
                "the server ended it at once"
                if is_left
                else "the server allows no request (SETTINGS_MAX_CONCURRENT_STREAMS 0)"
            )
        self._protocol = http2.PROTOCOL if is_http2 else http1.PROTOCOL
        self._connections.append(connection)
        self._changed(connection)

    def _make(self, agreed: str) -> WriteConnection:
        if agreed != http2.PROTOCOL:
            return Http1Connection(self._heads, self._changed)
        constant: list[Header] = [(":authority", self._authority)]
        for name, value in constant_headers(self._credentials, self._user_agent):
            constant.append((name.lower(), value))
        return Http2Connection(constant, self._changed)

    def _dialled(self, task: asyncio.Task[None]) -> None:
        """Tell those in line of a failed dial, unless they can wait for another connection."""
        self._dials.discard(task)
        if task.cancelled() or self._is_closed:
            return
        error = task.exception()
        if isinstance(error, Exception):
            self._no_dial_before_s = self._loop.time() + DIAL_AGAIN_S
            if not self._dials and all(connection.is_retired for connection in self._connections):
                self._fail_line(error)
        self._dial_more()

    def _changed(self, connection: WriteConnection) -> None:
        """Note that a connection has room, has none any more, or has ended."""
        if isinstance(connection, Http2Connection) and connection.wants_http1 and self._offers_http2:
            self._offers_http2 = False
            self._protocol = http1.PROTOCOL
            for other in list(self._connections):
                other.retire()
        if connection.is_closed and connection in self._connections:
            self._connections.remove(connection)
        if not connection.has_room:
            self._use_up(connection)
            if self._line:
                self._dial_more()
        elif connection in self._connections:
            if connection not in self._ready:
                self._ready.append(connection)
            if self._line:
                self._call_next()

    def _start_tick(self) -> None:
        if self._tick is None and not self._is_closed:
            self._tick = self._loop.call_later(TICK_S, self._on_tick)

    def _on_tick(self) -> None:
        """Look at time-outs, at idle connections, and at servers that are silent."""
        self._tick = None
        now_s = self._loop.time()
        for connection in list(self._connections):
            connection.check(now_s)
        self._dial_more()
        if self._line or any(connection.needs_checks for connection in self._connections):
            self._start_tick()


def _is_rested(connection: WriteConnection, now_s: float) -> bool:
    return now_s - max(connection.heard_s, connection.looked_s) > RESTED_S and not connection.asked
