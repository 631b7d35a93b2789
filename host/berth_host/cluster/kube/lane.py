"""`Lane`: the way of the frequent requests to the API server, over HTTP/2 where the server offers it.

Used by `client` for bindings, events and patches. All other requests take the client's session: leases, so
that no jam of bindings delays their renewal, and watches, because an API server ends a watch that is slow to
take its events, which a watch behind a burst of answers is. The session also carries everything where there
is no HTTP/2: a server that does not offer it, plain http, a proxy.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from berth_host.cluster.kube.credentials import Credentials
from berth_host.cluster.kube.http2 import (
    ConnectionLostError,
    Http2Connection,
    NoHttp2Error,
    NotActedOnError,
)
from berth_host.cluster.kube.http2_heads import Header
from berth_host.cluster.kube.session import CONNECT_TIMEOUT_S, constant_headers, probe
from berth_host.log import get_logger

log = get_logger()

MAX_REPEATS: Final = 3
"""How often a request is sent again on another connection that the server did not act on."""
OFFER_AGAIN_S: Final = 300.0
"""Seconds after which a server that offered no HTTP/2 is asked again."""


class Lane:
    """Connections to one API server. `user_agent`: a header's value."""

    def __init__(self, credentials: Credentials, user_agent: str) -> None:
        parts = urlsplit(credentials.host)
        self._credentials = credentials
        self._user_agent = user_agent
        self._authority = parts.netloc
        self._address = (parts.hostname or "", parts.port or 443)
        self._prefix = parts.path
        self._is_possible = parts.scheme == "https" and not credentials.proxy
        self._not_before_s = 0.0
        self._connections: list[Http2Connection] = []
        self._opened_with: tuple[ssl.SSLContext, str] | None = None
        self._dialling: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """False where no HTTP/2 is possible, or where the server did not offer it lately."""
        return self._is_possible and time.monotonic() >= self._not_before_s

    @property
    def connection_count(self) -> int:
        """The number of open connections, also of those that take no more requests."""
        return len(self._connections)

    async def exchange(
        self, method: str, path: str, body: bytes | None, content_type: str, timeout_s: float
    ) -> tuple[int, bytes, str]:
        """Send a request; return status, body and Retry-After.

        Raises NoHttp2Error (nothing was sent), OSError, ssl.SSLError, TimeoutError.
        """
        repeats_left = MAX_REPEATS
        while True:
            connection = self._usable() or await self._connected()
            try:
                return await connection.exchange(method, self._prefix + path, body, content_type, timeout_s)
            except NotActedOnError:
                if not repeats_left:
                    raise
                repeats_left -= 1

    async def close(self) -> None:
        """Close all connections."""
        self._is_possible = False
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait([self._dialling])
        for connection in list(self._connections):
            connection.close()

    # --- connections -------------------------------------------------------------------------------

    def _usable(self) -> Http2Connection | None:
        credentials = self._credentials
        used = self._opened_with
        if used is None or used[0] is not credentials.ssl_context or used[1] != credentials.authorization:
            # What is under way ends on the connections of the old credentials.
            for connection in list(self._connections):
                connection.retire()
            return None
        for connection in self._connections:
            if connection.has_room:
                return connection
        return None

    async def _connected(self) -> Http2Connection:
        """Return a connection with room for a request; one task dials for all that wait."""
        while True:
            found = self._usable()
            if found is not None:
                return found
            if not self.is_open:
                raise NoHttp2Error
            if self._dialling is None:
                self._dialling = asyncio.get_running_loop().create_task(self._dial())
                self._dialling.add_done_callback(self._dialled)
            dialling = self._dialling
            # A caller that is cancelled must not end the dial of the others.
            await asyncio.wait([dialling])
            if dialling.cancelled():
                raise NotActedOnError("it was closed here")
            dialling.result()

    def _dialled(self, task: asyncio.Task[None]) -> None:
        self._dialling = None
        if not task.cancelled():
            task.exception()  # Seen, even if everybody who waited was cancelled.

    async def _dial(self) -> None:
        """Open one more connection. Raises OSError, ssl.SSLError and TimeoutError."""
        credentials = self._credentials
        opened_with = (credentials.ssl_context, credentials.authorization)
        host, port = self._address
        loop = asyncio.get_running_loop()
        connection = Http2Connection(self._constant(), self._changed)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                for place, (family, _, _, _, address) in enumerate(found):
                    try:
                        transport, _ = await loop.create_connection(
                            lambda: connection,
                            str(address[0]),
                            port,
                            family=family,
                            ssl=credentials.http2_context,
                            server_hostname=credentials.server_hostname or host,
                        )
                        break
                    except ConnectionRefusedError:
                        if place + 1 == len(found):
                            raise
                await connection.ready
        except NoHttp2Error:
            self._not_before_s = time.monotonic() + OFFER_AGAIN_S
            log.info("client.no_http2", host=credentials.host)
            return
        except ConnectionLostError as err:
            # Nothing was asked over it yet, so whoever waits for it may ask again.
            raise NotActedOnError(str(err)) from err
        except BaseException:
            connection.close()
            raise
        if not connection.has_room:
            is_left = connection.is_closed or connection.is_retired
            connection.close()
            raise NotActedOnError(
                "the server ended it at once"
                if is_left
                else "the server allows no request (SETTINGS_MAX_CONCURRENT_STREAMS 0)"
            )
        probe(transport.get_extra_info("socket"))
        self._connections.append(connection)
        self._opened_with = opened_with

    def _changed(self) -> None:
        """Forget the connections that have ended."""
        self._connections = [one for one in self._connections if not one.is_closed]

    def _constant(self) -> Sequence[Header]:
        others = constant_headers(self._credentials, self._user_agent)
        return [(":authority", self._authority), *((name.lower(), value) for name, value in others)]
