"""A server over real sockets, of HTTP/2 or HTTP/1.1, whose answers and faults a test chooses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from berth_sdk.wire.verification import verify_as_go
from support.certificates import Authority
from support.wire_asked import WireServer, agreed_protocol
from support.wire_http1 import ServedHttp1
from support.wire_http2 import ServedHttp2


def server_context(authority: Authority, folder: Path, protocol: str) -> ssl.SSLContext:
    """Return the context of a server on loopback. `protocol`: what it offers (ALPN); empty: nothing."""
    pair = authority.issue("server")
    pem = folder / "wire-server.pem"
    pem.write_bytes(pair.certificate + pair.key)
    context = verify_as_go(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
    context.load_cert_chain(pem)
    if protocol:
        context.set_alpn_protocols([protocol])
    return context


class _AsAgreed(asyncio.Protocol):
    """A connection of a server that offers HTTP/2, with clients that speak HTTP/2 or do not."""

    def __init__(self, server: WireServer) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        served = ServedHttp2 if agreed_protocol(transport) == "h2" else ServedHttp1
        made = served(self._server)
        cast("asyncio.Transport", transport).set_protocol(made)
        made.connection_made(transport)


@asynccontextmanager
async def wire_server(authority: Authority, folder: Path, server: WireServer) -> AsyncIterator[WireServer]:
    """Serve on loopback, with a certificate for 127.0.0.1."""
    context = server_context(authority, folder, server.protocol) if server.is_tls else None
    if context is not None and server.asks_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=authority.pem.decode())
    served = _AsAgreed if server.protocol == "h2" else ServedHttp1
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: served(server), "127.0.0.1", server.port, ssl=context)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for _ in range(3):
            await asyncio.sleep(0)  # A connection that was just accepted gets its protocol.
        for connection in server.connections:
            connection.cut()
        await listening.wait_closed()
