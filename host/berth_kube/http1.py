"""`Http1Connection`: one request at a time over one HTTP/1.1 connection to the API server.

Opened by `connect`, for servers that do not offer HTTP/2 and for plain http. Made for few CPU cycles per
request: the head is prepared but for the path and the length, head and body are one write, and llhttp
(`httptools`) reads the answer, of which status, body and Retry-After are kept.

An idle connection that receives anything is closed: bytes that answer no request could be taken for the
answer to the next one. Source: RFC 9112.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final

import httptools

from berth_kube.http2_heads import Header
from berth_kube.write_connection import (
    MAX_ANSWER,
    Asked,
    ConnectionLostError,
    WriteConnection,
)

PROTOCOL: Final = "http/1.1"
"""The name by which TLS offers it (ALPN)."""
KEEP_ALIVE_S: Final = 30.0
"""Seconds after which an idle connection is closed, before a server or a load balancer closes it while a
request is sent.
"""
MAX_HEAD: Final = 2**16
"""The longest head of an answer, in bytes, with those of the interim answers (1xx) before it."""
_NO_BODY: Final = (204, 304)


class Http1Heads:
    """Writes requests.

    `target`: what stands before each path, such as `http://HOST` for a proxy. `constant`: the headers that
    every request has, Host first.
    """

    def __init__(self, target: str, constant: Sequence[Header]) -> None:
        self._target = target.encode("ascii")
        lines = "".join(f"{name}: {value}\r\n" for name, value in constant)
        # A name to act as (Impersonate-User) may have any letters; client-go sends them in UTF-8 too.
        self._constant = b" HTTP/1.1\r\n" + lines.encode()
        self._starts: dict[str, bytes] = {}
        self._middles: dict[str, bytes] = {}

    def message(self, method: str, path: str, body: bytes | None, content_type: str) -> bytes:
        """Return a whole request."""
        start = self._starts.get(method)
        if start is None:
            start = self._starts[method] = method.encode("ascii") + b" " + self._target
        if body is None:
            return b"%b%b%b\r\n" % (start, path.encode("ascii"), self._constant)
        middle = self._middles.get(content_type)
        if middle is None:
            middle = b"%bContent-Type: %b\r\nContent-Length: " % (
                self._constant,
                content_type.encode("ascii"),
            )
            self._middles[content_type] = middle
        return b"%b%b%b%d\r\n\r\n%b" % (start, path.encode("ascii"), middle, len(body), body)


class Http1Connection(WriteConnection):
    """One connection. `heads`: writes the head of each request."""

    def __init__(self, heads: Http1Heads, on_change: Callable[[WriteConnection], None]) -> None:
        super().__init__(on_change)
        self._heads = heads
        self._parser = httptools.HttpResponseParser(self)
        self._asked: Asked | None = None
        self._has_written = False
        self._read_bytes = 0
        """Bytes of an answer that is not whole yet."""
        self._has_length = False
        """True if the answer says where it ends; otherwise the end of the connection ends it."""
        self._is_whole = False
        self._is_kept = False
        self._wrong = ""

    # --- what the lane does --------------------------------------------------------------------------

    @property
    def asked(self) -> Collection[Asked]:
        """The request under way."""
        return () if self._asked is None else (self._asked,)

    @property
    def room_count(self) -> int:
        """1, or 0 while a request is under way."""
        return int(self.has_room)

    @property
    def needs_checks(self) -> bool:
        """True: a request may time out, and an idle connection is closed."""
        return True

    def begin(self, method: str, path: str, body: bytes | None, content_type: str, ends_s: float) -> Asked:
        """Send a request now, in one write."""
        message = self._heads.message(method, path, body, content_type)
        asked = self._asked = Asked(ends_s, self._loop.create_future())
        self.has_room = False
        transport = self._transport
        # A transport that closes would drop the bytes; `connection_lost` then says that nothing was sent.
        if transport is not None and not transport.is_closing():
            self._has_written = True
            transport.write(message)
        return asked

    def drop(self, asked: Asked, error: Exception) -> None:
        """Give up the request, and close the connection, on which its answer may still come."""
        if asked is self._asked:
            self._fail(asked, error)
            self.close()

    def check(self, now_s: float) -> None:
        """End a request whose time is over; close the connection after KEEP_ALIVE_S without a request."""
        super().check(now_s)
        if self._asked is None and now_s - self.heard_s >= KEEP_ALIVE_S:
            self.close()

    # --- the transport's side ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take requests from now on."""
        super().connection_made(transport)
        self.has_room = True
        self.ready.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Read an answer, as far as it has come."""
        self.heard_s = self._loop.time()
        asked = self._asked
        if asked is None:
            self._give_up("bytes that answer no request")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._wrong = "a switch to another protocol"
        except httptools.HttpParserError as err:
            self._wrong = str(err) or type(err).__name__
        if self._is_whole:
            self._end(asked)
            return
        self._read_bytes += len(data)
        if not asked.status and self._read_bytes > MAX_HEAD:
            self._wrong = self._wrong or f"a head of more than {MAX_HEAD} bytes"
        elif self._read_bytes > MAX_ANSWER:
            self._wrong = self._wrong or f"an answer of more than {MAX_ANSWER} bytes"
        if self._wrong:
            self._give_up(self._wrong)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the request: whole if the end of the connection is the end of its answer."""
        asked = self._asked
        if exc is None and asked is not None and asked.status and not self._has_length:
            self._end(asked)
        super().connection_lost(exc)

    # --- what the parser says ------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Note an answer that follows the one that was asked for."""
        if self._is_whole:
            self._wrong = "a second answer"

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep Retry-After; note the headers that say where the answer ends."""
        length = len(name)
        if length == 14:
            self._has_length = self._has_length or name.lower() == b"content-length"
        elif length == 17:
            self._has_length = self._has_length or name.lower() == b"transfer-encoding"
        elif length == 11 and self._asked is not None and name.lower() == b"retry-after":
            self._asked.retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Keep the status, unless the answer is an interim one."""
        status = self._parser.get_status_code()
        if status >= 200 and self._asked is not None and not self._is_whole:
            self._asked.status = status
            self._has_length = self._has_length or status in _NO_BODY

    def on_body(self, part: bytes) -> None:
        """Keep a part of the body."""
        if self._asked is not None and not self._is_whole and not self._asked.add_part(part):
            self._wrong = f"an answer of more than {MAX_ANSWER} bytes"

    def on_message_complete(self) -> None:
        """Note that the answer is whole, unless it is an interim one."""
        if self._asked is not None and self._asked.status:
            self._is_whole = True
            self._is_kept = self._parser.should_keep_alive()
        else:
            self._has_length = False

    # --- ends ----------------------------------------------------------------------------------------

    def _end(self, asked: Asked) -> None:
        transport = self._transport
        # A server may answer before it has read the whole request, as it may do with an error.
        is_sent = transport is not None and not transport.get_write_buffer_size()
        is_kept = self._is_kept and is_sent and not self._wrong
        self._asked = None
        self._has_written = self._has_length = self._is_whole = self._is_kept = False
        self._read_bytes = 0
        if not asked.answer.done():
            asked.answer.set_result(None)
        if self.is_retired or not is_kept:
            self.close()
        else:
            self.has_room = True
            self._on_change(self)

    def _is_written(self, asked: Asked) -> bool:
        return self._has_written

    def _fail(self, asked: Asked, error: Exception) -> None:
        self._asked = None
        if not asked.answer.done():
            asked.answer.set_exception(error)

    def _give_up(self, text: str) -> None:
        """Close the connection, because the server breaks the protocol."""
        if self._transport is not None:
            self._transport.abort()
        self._ended(ConnectionLostError(f"it sent what is no HTTP/1.1: {text}"))
