"""`dial`: opens a connection of the lane, directly or through a proxy, and asks by ALPN which HTTP it speaks.

Called by `write_client`. A proxy is asked for a tunnel (CONNECT) to an https server, in which TLS starts as
it does without a proxy; the requests to an http server are sent to the proxy itself. Source: RFC 9110,
section 9.3.6.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable
from typing import Final, cast
from urllib.parse import SplitResult, unquote, urlsplit

import httptools

from berth_kube.credentials import Credentials
from berth_kube.session import CONNECT_TIMEOUT_S, probe
from berth_kube.write_connection import WriteConnection

MAX_PROXY_ANSWER: Final = 2**16
"""The longest answer of a proxy to CONNECT, in bytes."""
_PORTS: Final = {"http": 80, "https": 443}

Make = Callable[[str], WriteConnection]
"""Returns the connection for a protocol of ALPN; the empty text if nothing was agreed on."""


class ProxyError(ConnectionError):
    """The proxy cannot be reached, or opens no tunnel. Nothing was sent to the server."""


class DialTimeoutError(TimeoutError):
    """No connection in time. Nothing was sent to the server."""


async def dial(credentials: Credentials, make: Make, *, offers_http2: bool = True) -> WriteConnection:
    """Return a connection that takes requests. `offers_http2` False: it speaks HTTP/1.1.

    Raises ProxyError, OSError, ssl.SSLError, and DialTimeoutError after CONNECT_TIMEOUT_S.
    """
    opening = _Opening(make)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await _open(credentials, opening, offers_http2)
            connection = opening.connection
            if connection is None:
                raise ConnectionResetError("it ended as soon as it was open")
            await connection.ready
            return connection
    except BaseException as err:
        if opening.connection is not None:
            opening.connection.close()
        if isinstance(err, TimeoutError):
            raise DialTimeoutError(f"no connection within {CONNECT_TIMEOUT_S:g} s") from err
        raise


def proxy_authorization(proxy: str) -> str:
    """Return the value of Proxy-Authorization for a proxy's URL; empty if the URL has no user."""
    user, at, _ = urlsplit(proxy).netloc.rpartition("@")
    if not at:
        return ""
    name, _, password = user.partition(":")
    encoded = b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode("ascii")
    return f"Basic {encoded}"


async def _open(credentials: Credentials, opening: _Opening, offers_http2: bool) -> None:
    server = urlsplit(credentials.host)
    context: ssl.SSLContext | None = None
    if server.scheme == "https":
        context = credentials.http2_context if offers_http2 else credentials.ssl_context
    name = credentials.server_hostname or server.hostname
    if not credentials.proxy:
        await _connect(server, lambda: opening, context, name)
        opening.hand_over()
        return
    proxy = urlsplit(credentials.proxy)
    proxy_context = credentials.ssl_context if proxy.scheme == "https" else None
    if context is None:
        await _to_proxy(proxy, lambda: opening, proxy_context)
        opening.hand_over()
        return
    tunnel = _Tunnel()
    transport = await _to_proxy(proxy, lambda: tunnel, proxy_context)
    try:
        await tunnel.open(server, proxy_authorization(credentials.proxy))
        made = await asyncio.get_running_loop().start_tls(transport, opening, context, server_hostname=name)
    except BaseException:
        transport.abort()
        raise
    if made is None:  # What uvloop and asyncio return if the connection was lost in between.
        raise ConnectionResetError("it ended during the TLS handshake")
    if opening.transport is None:
        opening.connection_made(made)
    opening.hand_over()


async def _to_proxy(
    proxy: SplitResult, factory: Callable[[], asyncio.Protocol], context: ssl.SSLContext | None
) -> asyncio.Transport:
    try:
        return await _connect(proxy, factory, context, proxy.hostname)
    except OSError as err:  # ssl.SSLError is one.
        raise ProxyError(str(err) or type(err).__name__) from err


async def _connect(
    url: SplitResult,
    factory: Callable[[], asyncio.Protocol],
    context: ssl.SSLContext | None,
    name: str | None,
) -> asyncio.Transport:
    """Connect to the first address that can be reached; each has its share of the time."""
    loop = asyncio.get_running_loop()
    port = url.port or _PORTS[url.scheme]
    found = await _addresses(url.hostname or "", port)
    first: OSError | None = None
    for family, address in found:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S / len(found)):
                transport, _ = await loop.create_connection(
                    factory,
                    address,
                    port,
                    family=family,
                    ssl=context,
                    server_hostname=name if context is not None else None,
                )
        except ssl.SSLError:
            raise
        except OSError as err:  # TimeoutError is one.
            first = first or err
        else:
            connected = transport.get_extra_info("socket")
            if connected is None:  # uvloop's answer for a transport that has ended
                raise ConnectionResetError("it ended as soon as it was open")
            probe(connected)
            return transport
    raise first or OSError(f"the name {url.hostname!r} has no address")


async def _addresses(host: str, port: int) -> list[tuple[int, str]]:
    """Return family and address of each that a name has."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, str(address[0])) for family, _, _, _, address in found]


class _Opening(asyncio.Protocol):
    """Takes a transport, and hands it over to the connection that its protocol (ALPN) needs."""

    def __init__(self, make: Make) -> None:
        self.transport: asyncio.Transport | None = None
        self.connection: WriteConnection | None = None
        self._make = make
        self._early: list[bytes] = []
        self._is_lost = False
        self._error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._error = exc

    def hand_over(self) -> None:
        """Make the connection, and give it what has come already."""
        transport = self.transport
        if transport is None:
            raise ConnectionResetError("it ended during the TLS handshake")
        tls = transport.get_extra_info("ssl_object")
        agreed = (tls.selected_alpn_protocol() or "") if tls is not None else ""
        made = self.connection = self._make(agreed)
        transport.set_protocol(made)
        made.connection_made(transport)
        for data in self._early:
            if not made.is_closed:
                made.data_received(data)
        if self._is_lost:
            made.connection_lost(self._error)


class _Tunnel(asyncio.Protocol):
    """Asks a proxy for a tunnel."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._read_bytes = 0
        self._has_body = False

    async def open(self, server: SplitResult, authorization: str) -> None:
        """Send CONNECT, and wait for the answer. Raises ProxyError."""
        host = f"[{server.hostname}]" if ":" in (server.hostname or "") else server.hostname
        target = f"{host}:{server.port or _PORTS['https']}"
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if authorization:
            lines.append(f"Proxy-Authorization: {authorization}")
        assert self._transport is not None
        self._transport.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        status = await self._answer
        if not 200 <= status < 300:
            raise ProxyError(f"it answered {status} to CONNECT {target}")
        if self._has_body:
            raise ProxyError("it sent bytes into the tunnel before the TLS handshake")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._read_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as err:
            self._fail(f"its answer to CONNECT is no HTTP: {err}")
        if self._read_bytes > MAX_PROXY_ANSWER:
            self._fail(f"its answer to CONNECT has more than {MAX_PROXY_ANSWER} bytes")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"it closed the connection instead of an answer to CONNECT{f': {exc}' if exc else ''}")

    def on_headers_complete(self) -> None:
        """Note the status."""
        status = self._parser.get_status_code()
        if status >= 200 and not self._answer.done():
            self._answer.set_result(status)

    def on_body(self, part: bytes) -> None:
        """Note bytes behind the answer's head."""
        self._has_body = True

    def _fail(self, text: str) -> None:
        if not self._answer.done():
            self._answer.set_exception(ProxyError(text))
