"""`FrontDoor`: the connections of an HTTP port, from their acceptance to their end.

    Listener (limits, turns) -> TLS handshake -> aiohttp's RequestHandler -> requests
    ended by: the client | a silence (idle_connections.py) | the want of room | the end of its certificate

`server` and `loopback` answer the requests.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_request import BaseRequest
from berth_sdk.clocks import monotonic_s, wall_s

from berth_host.endpoints import idle_connections
from berth_host.endpoints.access import Certificate
from berth_host.endpoints.certificates import ClientAuthorities
from berth_host.endpoints.idle_connections import HANDSHAKE_WITHIN_S, Patience
from berth_host.listening.connections import Connection, Connections, Phase
from berth_host.listening.listener import TURNS_PER_S, Listener
from berth_host.listening.turn_queue import TurnQueue
from berth_host.log import get_logger
from berth_host.metrics.connection_metrics import ConnectionMetrics
from berth_host.model.sparing_lines import SparingLines

log = get_logger()
STRANGERS_PER_S: Final = 100.0
BURST_STRANGERS: Final = 200.0
"""Answers to callers without a right, in all: 3 % of the loop's time."""
LOOK_AGAIN_S: Final = 3600.0
"""The longest wait for the end of a certificate: the machine's clock may be set meanwhile."""
_LINGER_S: Final = 2.0
_SHOWN: Final = 200


class FrontDoor:
    """made -start-> open -stop-> closed"""

    def __init__(
        self,
        answer: Callable[[BaseRequest], Awaitable[web.StreamResponse]],
        connections: Connections,
        metrics: ConnectionMetrics,
    ) -> None:
        """`answer`: answers one request."""
        self.connections = connections
        self._answer = answer
        self._metrics = metrics
        self._strangers = TurnQueue(STRANGERS_PER_S, BURST_STRANGERS)
        self._patience = Patience(self._was_silent)
        self._of: dict[RequestHandler, Connection] = {}
        self._certificates: dict[Connection, tuple[bytes, Certificate]] = {}
        self._authorities = ClientAuthorities()
        self._context: ssl.SSLContext | None = None
        self._listener: Listener | None = None
        self._web: _Web | None = None
        self._malformed = SparingLines()
        metrics.show_lines(connections.port, self._malformed)

    # --- life ------------------------------------------------------------------------------------

    def start(
        self,
        listening: socket.socket,
        context: ssl.SSLContext | None,
        authorities: ClientAuthorities | None = None,
        *,
        turns_per_s: float = TURNS_PER_S,
    ) -> None:
        """Accept connections. `context` None: without TLS. `turns_per_s`: of handshakes."""
        self._context = context
        self._authorities = authorities or self._authorities
        self._web = _Web(self)
        self._listener = Listener(
            listening,
            self.connections,
            self._open,
            turns_per_s=turns_per_s,
            turn_within_s=idle_connections.FIRST_WITHIN_S,
        )
        self._listener.start()

    async def stop(self, wait_s: float) -> None:
        """Accept no more connections, and close the open ones, after `wait_s` for running requests."""
        if self._listener is None or self._web is None:
            return
        self._listener.stop()
        await self._web.shutdown(wait_s)
        await self._listener.close_all()
        self._patience.stop()
        self._listener = self._web = None

    def use(self, context: ssl.SSLContext, authorities: ClientAuthorities) -> None:
        """Use a context and CAs from now on. Connections whose client certificate no CA has issued end."""
        self._context, self._authorities = context, authorities
        for connection, (der, _) in list(self._certificates.items()):
            found = authorities.certificate(der, strictly=True)
            if found is None:
                self._end_certificate(connection, "its CA was replaced")
            else:
                self._certificates[connection] = der, found

    # --- requests --------------------------------------------------------------------------------

    async def handle(self, raw: BaseRequest) -> web.StreamResponse:
        """Answer one request, for aiohttp."""
        connection = self._of.get(raw.protocol)
        if connection is None:
            raise ConnectionResetError  # closed meanwhile
        self._patience.asked(connection)
        self.connections.spoke(connection, Phase.IDLE)
        # Requests behind this one wait in the kernel: a stranger must not fill the memory with them.
        _pause(raw)
        try:
            return await self._answer(raw)
        finally:
            _resume(raw)
            if connection in self.connections:
                self.connections.spoke(connection, Phase.IDLE)
                self._patience.answered(connection)

    def certificate_of(self, raw: BaseRequest) -> Certificate | None:
        """Return the client's certificate; None without one."""
        connection = self._of.get(raw.protocol)
        found = None if connection is None else self._certificates.get(connection)
        return None if found is None else found[1]

    def peer_of(self, raw: BaseRequest) -> str:
        """Return the peer of a request; see `listening.connections`."""
        connection = self._of.get(raw.protocol)
        return "" if connection is None else connection.peer

    def know(self, raw: BaseRequest) -> None:
        """Note that the caller has a right to the answer."""
        connection = self._of.get(raw.protocol)
        if connection is not None:
            self.connections.know(connection)
        _resume(raw)

    async def stranger_turn(self, raw: BaseRequest) -> None:
        """Wait for the turn of an answer to somebody without a right; those who had the fewest answers on
        their connection go first.
        """
        connection = self._of.get(raw.protocol)
        if connection is not None:
            await self._strangers.take(connection.peer, connection.answer_count)
            connection.answer_count += 1

    def refused(self, reason: str) -> None:
        """Count a refused request, by the names of the metric `berth_requests_refused_total`."""
        self._metrics.refused.add((self.connections.port, reason))

    # --- connections -----------------------------------------------------------------------------

    async def _open(self, connection: Connection, sock: socket.socket) -> None:
        """Hand a connection to aiohttp, after its TLS handshake."""
        web_server = self._web
        if web_server is None:
            sock.close()
            self.connections.remove(connection)
            return
        handler = web_server()
        self._of[handler] = connection
        self._patience.opened(connection, monotonic_s() - connection.opened_s)
        limits = {} if self._context is None else {"ssl_handshake_timeout": HANDSHAKE_WITHIN_S}
        is_open = False
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: handler, sock, ssl=self._context, **limits
            )
            is_open = True
        except (OSError, TimeoutError):
            self.connections.count("handshake_failed")
        finally:
            if not is_open and handler.transport is None:
                self.forget(handler)

    def opened(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Note that the handshake has ended; called by aiohttp's server."""
        connection = self._of.get(handler)
        if connection is None or connection not in self.connections:
            transport.abort()
            return
        connection.close = transport.abort
        self.connections.spoke(connection, Phase.IDLE)
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is None:
            return
        self.connections.count("handshaken")
        der = ssl_object.getpeercert(True)
        if not der:
            return
        is_current = ssl_object.context is self._context
        found = self._authorities.certificate(der, strictly=not is_current)
        if found is None:
            # The CAs were replaced during the handshake.
            self._end_certificate(connection, "its CA was replaced")
            return
        self._certificates[connection] = der, found
        self._watch_certificate(connection, found)

    def forget(self, handler: RequestHandler) -> None:
        """Note that a connection is closed; called by aiohttp's server."""
        connection = self._of.pop(handler, None)
        if connection is not None:
            self._patience.asked(connection)
            self._certificates.pop(connection, None)
            self.connections.remove(connection)

    def _watch_certificate(self, connection: Connection, certificate: Certificate) -> None:
        if connection not in self._certificates:
            return
        left_s = certificate.ends_s - wall_s()
        if left_s <= 0:
            self._end_certificate(connection, "it has expired")
            return
        asyncio.get_running_loop().call_later(
            min(left_s, LOOK_AGAIN_S), self._watch_certificate, connection, certificate
        )

    def _end_certificate(self, connection: Connection, why: str) -> None:
        self.connections.note("closed_certificate", connection.peer, f"the client's certificate: {why}")
        connection.close()

    def _was_silent(self, connection: Connection) -> None:
        self.connections.count("closed_silent")

    def note_malformed(self, error: BaseException | None, peer: object) -> None:
        """Count a request that is no HTTP, or write an error of the server to the log."""
        if error is None or isinstance(error, HttpProcessingError):
            self.refused("malformed")
        left_out = self._malformed.take()
        if left_out is None:
            return
        if error is not None and not isinstance(error, HttpProcessingError):
            log.error("endpoints.failed", path="", exc_info=error, left_out=left_out)
            return
        problem = "" if error is None else (str(error).splitlines() or [type(error).__name__])[0]
        log.warning("endpoints.malformed", peer=str(peer), problem=problem[:_SHOWN], left_out=left_out)


class _Web(web.Server):
    """aiohttp's server, which tells the door about connections."""

    def __init__(self, door: FrontDoor) -> None:
        self._door = door
        logger = logging.Logger("berth.endpoints")
        logger.addHandler(_ToDoor(door))
        super().__init__(door.handle, access_log=None, logger=logger, lingering_time=_LINGER_S)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._door.opened(handler, transport)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._door.forget(handler)


class _ToDoor(logging.Handler):
    """Passes aiohttp's lines to the door: aiohttp writes a traceback for each request that is no HTTP."""

    def __init__(self, door: FrontDoor) -> None:
        super().__init__()
        self._door = door

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        arguments: Any = record.args
        peer = arguments[0] if isinstance(arguments, tuple) and arguments else ""
        self._door.note_malformed(error, peer)


def _pause(raw: BaseRequest) -> None:
    if raw.transport is not None:
        raw.transport.pause_reading()


def _resume(raw: BaseRequest) -> None:
    if raw.transport is not None and not raw.transport.is_closing():
        raw.transport.resume_reading()
