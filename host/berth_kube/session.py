"""`Session`: the way of ordinary requests to the API server, over HTTP/1.1 (aiohttp), also through proxies.

Used by `client`, beside `write_client`, which takes the frequent requests.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

import aiohttp
from berth_host.model.session_sockets import SessionSockets
from multidict import CIMultiDict
from yarl import URL

from berth_kube.credentials import Credentials
from berth_kube.http1 import KEEP_ALIVE_S

CONNECT_TIMEOUT_S: Final = 10.0
_KEEP_ALIVE_PROBES: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class AnswerTooLargeError(Exception):
    """The answer exceeds the bytes that the caller takes. The rest of it was not read."""


class Session:
    """A pool of connections to one API server. `user_agent`: a header's value."""

    def __init__(self, credentials: Credentials, user_agent: str) -> None:
        self._credentials = credentials
        self._user_agent = user_agent
        self._headers: dict[tuple[str, str], CIMultiDict[str]] = {}
        self._headers_are_for = ""
        self.sockets = SessionSockets(probe)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # The client bounds requests; the owners of watches and events bound those.
                keepalive_timeout=KEEP_ALIVE_S,
                socket_factory=self.sockets.make,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Only `exchange` asks for compression.
            skip_auto_headers=("Accept-Encoding", "Content-Type"),
            read_bufsize=2**18,
            proxy=credentials.proxy,
        )

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._session.closed

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
        await self.sockets.end()

    async def exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        timeout_s: float,
        most_bytes: int = 0,
    ) -> tuple[int, bytes, str]:
        """Send a request; return status, body and Retry-After. Raises aiohttp.ClientError and OSError.

        `most_bytes`: raise AnswerTooLargeError for a larger body; 0: no limit.

        The answer of a GET may come compressed. API servers compress answers above 128 KiB, which lists are.
        A compressed list costs a third of the CPU time to receive, because TLS and HTTP carry a tenth of the
        bytes.
        """
        response = await self._ask(
            method,
            path,
            body,
            content_type,
            aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S),
            "gzip" if method == "GET" and self._credentials.takes_compressed else "",
        )
        if not most_bytes:
            return response.status, await response.read(), response.headers.get("Retry-After", "")
        parts, size = [], 0
        try:
            async for part in response.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > most_bytes:
                    raise AnswerTooLargeError(f"more than {most_bytes} bytes")
        except BaseException:
            response.close()  # the connection has the rest of the answer in it
            raise
        answer = b"".join(parts)
        return response.status, answer, response.headers.get("Retry-After", "")

    async def stream(self, path: str, idle_s: float) -> StreamedAnswer:
        """Send a GET whose answer is streamed; return it when its headers came. Raises as `exchange`.

        `idle_s`: the silence, in seconds, after which the connection counts as lost.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=idle_s)
        return StreamedAnswer(await self._ask("GET", path, None, "", limits, ""))

    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        limits: aiohttp.ClientTimeout,
        encoding: str,
    ) -> aiohttp.ClientResponse:
        credentials = self._credentials
        return await self._session.request(
            method,
            URL(credentials.host + path, encoded=True),
            data=body,
            headers=self._headers_of(content_type if body is not None else "", encoding),
            timeout=limits,
            allow_redirects=False,
            ssl=credentials.ssl_context,
            server_hostname=credentials.server_hostname,
        )

    def _headers_of(self, content_type: str, encoding: str) -> CIMultiDict[str]:
        """Return the headers of a content type, and of the accepted encoding, "" for none.

        They are cached until the token changes.
        """
        if self._headers_are_for != self._credentials.authorization:
            self._headers.clear()
            self._headers_are_for = self._credentials.authorization
        found = self._headers.get((content_type, encoding))
        if found is None:
            found = CIMultiDict(constant_headers(self._credentials, self._user_agent))
            if content_type:
                found["Content-Type"] = content_type
            if encoding:
                found["Accept-Encoding"] = encoding
            self._headers[content_type, encoding] = found
        return found


class StreamedAnswer:
    """A streamed answer, whose headers have come. `status`: the HTTP status."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status

    async def chunk(self) -> bytes:
        """Return the bytes that have arrived; b"" at the end. Raises OSError or aiohttp.ClientError."""
        return await self._response.content.readany()

    def abort(self) -> None:
        """End the answer; `chunk` then returns or raises."""
        # Without a TLS shutdown, which would wait for the server.
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()


def constant_headers(credentials: Credentials, user_agent: str) -> Sequence[tuple[str, str]]:
    """Return the headers that every request has, except that of the host."""
    made = [("Accept", "application/json"), ("User-Agent", user_agent)]
    if credentials.authorization:
        made.append(("Authorization", credentials.authorization))
    return [*made, *credentials.impersonation]


def probe(connected: socket.socket) -> None:
    """Turn keep-alive probes on, because a watch may be silent for long."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE_PROBES:
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
