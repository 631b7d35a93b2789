"""`Http2Connection`: many requests at once over one connection to the API server.

Opened by `lane`, for the requests that are made for every pod and for the watches. Made for few CPU cycles
per request: the frames of one turn of the event loop are written at once, blocks of headers are prepared, and
of an answer only what is needed is decoded. The server is asked to keep no table of headers
(SETTINGS_HEADER_TABLE_SIZE 0), so that each of its blocks can be read, or skipped, alone.
Source: RFC 9113.

    dial -> SETTINGS of both sides -> requests -+-> GOAWAY, or `retire`: no new requests, the others end
                                                +-> closed by either side: every open request is lost

A request that the server cannot have acted on ends in `NotActedOnError`, and may be sent again: it was not
written yet, the server refused its stream, or left it out of its GOAWAY. Every other lost request ends in
`ConnectionLostError`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, cast

from berth_host.cluster.kube.http2_heads import (
    MAX_BLOCK,
    TABLE_SIZE,
    BlockError,
    HeadEncoder,
    Header,
    read_block,
    status_of,
)

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PROTOCOL: Final = "h2"
"""The name by which TLS offers it (ALPN)."""
MAX_FRAME: Final = 16_384
"""The largest payload of a frame, in bytes, that either side sends here."""
WINDOW: Final = 2**22
"""Bytes of one answer that the server may send before they are read."""
CONNECTION_WINDOW: Final = 2**30
PING_AFTER_S: Final = 30.0
"""Seconds of silence, with requests under way, after which the server is asked whether it is there."""
PING_TIMEOUT_S: Final = 15.0
TICK_S: Final = 0.25
"""Time-outs are looked at this often, which costs less than a timer for each request."""
_DATA, _HEADERS, _, _RST_STREAM, _SETTINGS, _PUSH, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = range(10)
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_HEADER_TABLE_SIZE, _ENABLE_PUSH, _MAX_STREAMS, _INITIAL_WINDOW, _, _MAX_HEADERS = range(1, 7)
_NO_ERROR, _PROTOCOL_ERROR, _FLOW_CONTROL_ERROR, _FRAME_SIZE_ERROR = 0, 1, 3, 6
_REFUSED_STREAM, _CANCEL, _COMPRESSION_ERROR = 7, 8, 9
_ERROR_NAMES: Final = (
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
)
_LAST_STREAM: Final = 2**31 - 1
_LAST_WINDOW: Final = 2**31 - 1


class ConnectionLostError(ConnectionError):
    """The request may have been acted on: its connection ended, or its answer is no HTTP/2."""


class NotActedOnError(ConnectionLostError):
    """The server cannot have acted on the request."""


class NoHttp2Error(Exception):
    """The server does not offer HTTP/2; nothing was sent."""


class _Exchange:
    """One request and its answer. `status`: 0 until the answer's headers came."""

    __slots__ = (
        "answer",
        "ends_s",
        "number",
        "parts",
        "retry_after",
        "send_window",
        "status",
        "unread",
        "unsent",
    )

    def __init__(self, number: int, ends_s: float, send_window: int, answer: asyncio.Future[None]) -> None:
        self.number = number
        self.ends_s = ends_s
        self.send_window = send_window
        self.answer = answer
        self.status = 0
        self.retry_after = ""
        self.parts: list[bytes] = []
        self.unread = 0
        """Bytes received for which the window was not given back."""
        self.unsent: memoryview | None = None
        """The rest of the request's body, in bytes, which waits until the server's windows allow it."""


class Http2Connection(asyncio.Protocol):
    """One connection. `ready`: done once the server's SETTINGS came.

    `constant`: the headers that every request has, `:authority` first. `on_change`: called when the
    connection may take another request, or takes none any more.
    """

    def __init__(self, constant: Sequence[Header], on_change: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.is_retired = False
        self.is_closed = False
        self._constant = constant
        self._on_change = on_change
        self._transport: asyncio.Transport | None = None
        self._encoder = HeadEncoder(TABLE_SIZE, constant)
        self._open: dict[int, _Exchange] = {}
        self._next_number = 1
        self._max_streams = 100
        self._initial_window = 65_535
        self._send_window = 65_535
        self._blocked: deque[_Exchange] = deque()
        self._to_write: list[bytes] = []
        self._unwritten: list[_Exchange] = []
        self._flush_is_due = False
        self._is_paused = False
        self._rest = b""
        self._block: tuple[int, int, bytearray] | None = None
        self._unacknowledged = 0
        self._heard_s = self._loop.time()
        self._pinged_s: float | None = None
        self._tick: asyncio.TimerHandle | None = None

    # --- what the client does ----------------------------------------------------------------------

    @property
    def open_count(self) -> int:
        """The number of requests under way."""
        return len(self._open)

    @property
    def has_room(self) -> bool:
        """True if the connection takes another request now."""
        return (
            not self.is_retired
            and not self.is_closed
            and len(self._open) < self._max_streams
            and self._next_number < _LAST_STREAM
        )

    async def exchange(
        self, method: str, path: str, body: bytes | None, content_type: str, timeout_s: float
    ) -> tuple[int, bytes, str]:
        """Send a request at the end of this turn of the event loop; return status, body and Retry-After.

        `timeout_s`: until the whole answer came. Raises TimeoutError, ConnectionLostError, NotActedOnError.
        """
        asked = self._begin(method, path, body, content_type, timeout_s)
        try:
            await asked.answer
        except asyncio.CancelledError:
            if asked.number in self._open:
                self._reset(asked, _CANCEL)
            raise
        parts = asked.parts
        return asked.status, parts[0] if len(parts) == 1 else b"".join(parts), asked.retry_after

    def _begin(
        self, method: str, path: str, body: bytes | None, content_type: str, timeout_s: float
    ) -> _Exchange:
        number = self._next_number
        self._next_number += 2
        loop = self._loop
        asked = _Exchange(number, loop.time() + timeout_s, self._initial_window, loop.create_future())
        self._open[number] = asked
        block = self._encoder.block(method, path, content_type, None if body is None else len(body))
        self._add_head(number, block, ends=not body)
        if body:
            if len(body) <= min(self._send_window, asked.send_window, MAX_FRAME):
                self._send_window -= len(body)
                asked.send_window -= len(body)
                self._add(_DATA, _END_STREAM, number, body)
            else:
                asked.unsent = memoryview(body)
                self._blocked.append(asked)
                self._add_blocked()
        self._unwritten.append(asked)
        self._plan_flush()
        if self._tick is None:
            self._tick = loop.call_later(TICK_S, self._on_tick)
        return asked

    def retire(self) -> None:
        """Take no new request; close when the last one has ended."""
        if not self.is_retired:
            self.is_retired = True
            self._on_change()
        if not self._open:
            self.close()

    def close(self) -> None:
        """Close the connection; open requests are lost."""
        if self._transport is not None and not self.is_closed:
            self._flush()
            # No TLS shutdown, which would wait for the server.
            self._transport.abort()
        self._ended(ConnectionLostError("it was closed here"))

    # --- the transport's side ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface and the settings."""
        self._transport = cast("asyncio.Transport", transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != PROTOCOL:
            self.ready.set_exception(NoHttp2Error())
            self._transport.abort()
            return
        settings = b"".join(
            _setting(name, value)
            for name, value in (
                (_HEADER_TABLE_SIZE, 0),
                (_ENABLE_PUSH, 0),
                (_INITIAL_WINDOW, WINDOW),
                (_MAX_HEADERS, MAX_BLOCK),
            )
        )
        self._to_write.append(PREFACE)
        self._add(_SETTINGS, 0, 0, settings)
        self._add_window(0, CONNECTION_WINDOW - 65_535)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all requests."""
        self._ended(ConnectionLostError(str(exc) if exc else "the server closed it"))

    def pause_writing(self) -> None:
        """Keep what is to be written."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Write again."""
        self._is_paused = False
        self._plan_flush()

    def data_received(self, data: bytes) -> None:
        """Read the frames that are complete."""
        self._heard_s = self._loop.time()
        self._pinged_s = None
        if self._rest:
            data = self._rest + data
        place, end = 0, len(data)
        try:
            while end - place >= 9:
                length = data[place] << 16 | data[place + 1] << 8 | data[place + 2]
                if length > MAX_FRAME:
                    raise _PeerError(_FRAME_SIZE_ERROR, f"a frame of {length} bytes")
                after = place + 9 + length
                if after > end:
                    break
                kind, flags = data[place + 3], data[place + 4]
                number = int.from_bytes(data[place + 5 : place + 9], "big") & _LAST_STREAM
                self._frame(kind, flags, number, data[place + 9 : after])
                place = after
                if self.is_closed:
                    return
        except _PeerError as err:
            self._give_up(err.code, err.text)
            return
        except BlockError as err:
            self._give_up(_COMPRESSION_ERROR, str(err))
            return
        self._rest = data[place:] if place < end else b""

    # --- frames that came --------------------------------------------------------------------------

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block is not None and (kind != _CONTINUATION or number != self._block[0]):
            raise _PeerError(_PROTOCOL_ERROR, "a block of headers that another frame interrupts")
        if not self.ready.done() and kind != _SETTINGS:
            raise _PeerError(_PROTOCOL_ERROR, "no SETTINGS frame first: it does not speak HTTP/2")
        if kind == _DATA:
            self._data(flags, number, payload)
        elif kind == _HEADERS:
            payload = _unpadded(flags, payload)
            if flags & _PRIORITY:
                payload = payload[5:]
            if flags & _END_HEADERS:
                self._headers(flags, number, payload)
            else:
                self._block = number, flags, bytearray(payload)
        elif kind == _CONTINUATION:
            self._continuation(flags, payload)
        elif kind == _WINDOW_UPDATE:
            self._window_update(number, payload)
        elif kind == _SETTINGS:
            self._settings(flags, payload)
        elif kind == _PING:
            if len(payload) != 8:
                raise _PeerError(_FRAME_SIZE_ERROR, "a PING of another length than 8")
            if not flags & _ACK:
                self._add(_PING, _ACK, 0, payload)
                self._plan_flush()
        elif kind == _RST_STREAM:
            if len(payload) != 4:
                raise _PeerError(_FRAME_SIZE_ERROR, "an RST_STREAM of another length than 4")
            self._reset_by_server(number, int.from_bytes(payload, "big"))
        elif kind == _GOAWAY:
            self._goaway(payload)
        elif kind == _PUSH:
            raise _PeerError(_PROTOCOL_ERROR, "a PUSH_PROMISE, which was not allowed")

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        whole = len(payload)
        self._unacknowledged += whole
        if self._unacknowledged >= CONNECTION_WINDOW // 4:
            self._add_window(0, self._unacknowledged)
            self._unacknowledged = 0
        asked = self._open.get(number)
        if asked is None:
            if number >= self._next_number or not number & 1:
                raise _PeerError(_PROTOCOL_ERROR, f"an answer to request {number}, which was not made")
            return  # A request that was given up.
        if not asked.status:
            raise _PeerError(_PROTOCOL_ERROR, "an answer without headers")
        payload = _unpadded(flags, payload)
        if payload:
            asked.parts.append(payload)
        if flags & _END_STREAM:
            self._end(asked)
            return
        asked.unread += whole
        if asked.unread >= WINDOW // 4:
            self._add_window(number, asked.unread)
            asked.unread = 0

    def _continuation(self, flags: int, payload: bytes) -> None:
        if self._block is None:
            raise _PeerError(_PROTOCOL_ERROR, "a CONTINUATION frame of nothing")
        number, first_flags, block = self._block
        block += payload
        if len(block) > MAX_BLOCK:
            raise _PeerError(_PROTOCOL_ERROR, f"headers of more than {MAX_BLOCK} bytes")
        if flags & _END_HEADERS:
            self._block = None
            self._headers(first_flags, number, bytes(block))

    def _headers(self, flags: int, number: int, block: bytes) -> None:
        asked = self._open.get(number)
        if asked is None:
            if number >= self._next_number or not number & 1:
                raise _PeerError(_PROTOCOL_ERROR, f"an answer to request {number}, which was not made")
            return
        if not asked.status:
            status = status_of(block)
            if status is None or status >= 300:
                status, asked.retry_after = read_block(block)
            if status < 200:
                if flags & _END_STREAM:
                    raise _PeerError(_PROTOCOL_ERROR, f"an answer that ends with {status}")
                return  # The real headers follow.
            asked.status = status
        elif not flags & _END_STREAM:
            raise _PeerError(_PROTOCOL_ERROR, "two blocks of headers in one answer")
        if flags & _END_STREAM:
            self._end(asked)

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & _ACK:
            return
        if len(payload) % 6:
            raise _PeerError(_FRAME_SIZE_ERROR, "a SETTINGS frame cut off")
        table_size = TABLE_SIZE
        for place in range(0, len(payload), 6):
            name = int.from_bytes(payload[place : place + 2], "big")
            value = int.from_bytes(payload[place + 2 : place + 6], "big")
            if name == _HEADER_TABLE_SIZE:
                table_size = min(value, TABLE_SIZE)
            elif name == _MAX_STREAMS:
                self._max_streams = value
            elif name == _INITIAL_WINDOW:
                if value > _LAST_WINDOW:
                    raise _PeerError(_FLOW_CONTROL_ERROR, "a window of more than 2^31-1 bytes")
                for asked in self._open.values():
                    asked.send_window += value - self._initial_window
                self._initial_window = value
        self._add(_SETTINGS, _ACK, 0)
        if not self.ready.done():
            self._encoder = HeadEncoder(table_size, self._constant)
            self.ready.set_result(None)
        elif table_size != TABLE_SIZE:
            # The table could have to forget what later blocks refer to: go on with another connection.
            self.retire()
        self._add_blocked()
        self._plan_flush()
        self._on_change()

    def _window_update(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise _PeerError(_FRAME_SIZE_ERROR, "a WINDOW_UPDATE of another length than 4")
        more = int.from_bytes(payload, "big") & _LAST_WINDOW
        if number:
            asked = self._open.get(number)
            if asked is not None:
                asked.send_window += more
                if asked.send_window > _LAST_WINDOW:
                    raise _PeerError(_FLOW_CONTROL_ERROR, "a window of more than 2^31-1 bytes")
        else:
            self._send_window += more
            if self._send_window > _LAST_WINDOW:
                raise _PeerError(_FLOW_CONTROL_ERROR, "a window of more than 2^31-1 bytes")
        if self._blocked:
            self._add_blocked()
            self._plan_flush()

    def _reset_by_server(self, number: int, code: int) -> None:
        asked = self._open.get(number)
        if asked is None:
            return
        if code == _REFUSED_STREAM:
            self._fail(asked, NotActedOnError("the server refused the request's stream"))
        elif code == _NO_ERROR and asked.status:
            self._end(asked)
        else:
            self._fail(asked, ConnectionLostError(f"the server reset the request's stream: {_name_of(code)}"))

    def _goaway(self, payload: bytes) -> None:
        if len(payload) < 8:
            raise _PeerError(_FRAME_SIZE_ERROR, "a GOAWAY cut off")
        last = int.from_bytes(payload[:4], "big") & _LAST_STREAM
        code = int.from_bytes(payload[4:8], "big")
        text = f"the server says GOAWAY: {_name_of(code)}"
        if payload[8:]:
            text += f", {payload[8:208].decode(errors='replace')!r}"
        for number, asked in list(self._open.items()):
            if number > last:
                self._fail(asked, NotActedOnError(text))
        self.retire()

    # --- ends ----------------------------------------------------------------------------------------

    def _end(self, asked: _Exchange) -> None:
        if asked.unsent is not None:
            # The server answered without reading all of the request, as it may do with an error.
            self._reset(asked, _NO_ERROR)
        self._open.pop(asked.number, None)
        if not asked.answer.done():
            asked.answer.set_result(None)
        self._has_ended_one()

    def _fail(self, asked: _Exchange, error: Exception) -> None:
        self._open.pop(asked.number, None)
        asked.unsent = None
        if not asked.answer.done():
            asked.answer.set_exception(error)
        self._has_ended_one()

    def _has_ended_one(self) -> None:
        if self.is_retired and not self._open:
            self.close()
        elif len(self._open) == self._max_streams - 1:
            self._on_change()

    def _reset(self, asked: _Exchange, code: int) -> None:
        self._open.pop(asked.number, None)
        asked.unsent = None
        self._add(_RST_STREAM, 0, asked.number, code.to_bytes(4, "big"))
        self._plan_flush()
        self._has_ended_one()

    def _give_up(self, code: int, text: str) -> None:
        """Close the connection, because the server breaks the protocol."""
        self._add(_GOAWAY, 0, 0, (0).to_bytes(4, "big") + code.to_bytes(4, "big"))
        self._flush()
        error = ConnectionLostError(f"it sent what is no HTTP/2: {text}")
        if self._transport is not None:
            self._transport.abort()
        self._ended(error)

    def _ended(self, error: ConnectionLostError) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._rest = b""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # Seen, even if nobody waits for it any more.
        unwritten = set(map(id, self._unwritten))
        self._unwritten.clear()
        for asked in list(self._open.values()):
            if id(asked) in unwritten:
                self._fail(asked, NotActedOnError(str(error)))
            else:
                self._fail(asked, error)
        self._on_change()

    def _on_tick(self) -> None:
        """Look at the time-outs, and whether the server is there."""
        self._tick = None
        now_s = self._loop.time()
        for asked in [one for one in self._open.values() if one.ends_s <= now_s]:
            self._reset(asked, _CANCEL)
            self._fail(asked, TimeoutError())
        if self._pinged_s is not None:
            if now_s - self._pinged_s >= PING_TIMEOUT_S:
                silent_s = now_s - self._heard_s
                self._give_up(_NO_ERROR, f"nothing for {silent_s:.0f} s, and no answer to a PING")
                return
        elif self._open and now_s - self._heard_s >= PING_AFTER_S:
            self._pinged_s = now_s
            self._add(_PING, 0, 0, b"berth\0\0\0")
            self._plan_flush()
        if self._open and self._tick is None and not self.is_closed:
            self._tick = self._loop.call_later(TICK_S, self._on_tick)

    # --- writing -----------------------------------------------------------------------------------

    def _add_head(self, number: int, block: bytes, *, ends: bool) -> None:
        flags = _END_STREAM if ends else 0
        if len(block) <= MAX_FRAME:
            self._add(_HEADERS, flags | _END_HEADERS, number, block)
            return
        kind = _HEADERS
        for place in range(0, len(block), MAX_FRAME):
            piece = block[place : place + MAX_FRAME]
            last = _END_HEADERS if place + MAX_FRAME >= len(block) else 0
            self._add(kind, flags | last, number, piece)
            kind, flags = _CONTINUATION, 0

    def _add_blocked(self) -> None:
        """Write as much of the bodies that wait for the server's windows as these allow, in turn."""
        for _ in range(len(self._blocked)):
            asked = self._blocked.popleft()
            while asked.unsent is not None:
                size = min(len(asked.unsent), self._send_window, asked.send_window, MAX_FRAME)
                if size <= 0:
                    self._blocked.append(asked)
                    break
                piece, rest = asked.unsent[:size], asked.unsent[size:]
                self._send_window -= size
                asked.send_window -= size
                asked.unsent = rest if len(rest) else None
                flags = 0 if len(rest) else _END_STREAM
                self._add(_DATA, flags, asked.number, bytes(piece))

    def _add_window(self, number: int, more: int) -> None:
        self._add(_WINDOW_UPDATE, 0, number, more.to_bytes(4, "big"))
        self._plan_flush()

    def _add(self, kind: int, flags: int, number: int, payload: bytes = b"") -> None:
        self._to_write.append(
            (len(payload) << 48 | kind << 40 | flags << 32 | number).to_bytes(9, "big") + payload
        )

    def _plan_flush(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._is_paused or self.is_closed or self._transport is None or not self._to_write:
            return
        raw = b"".join(self._to_write)
        self._to_write.clear()
        self._unwritten.clear()
        self._transport.write(raw)


class _PeerError(Exception):
    """The server breaks the protocol. `code`: the error code of HTTP/2."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def _setting(name: int, value: int) -> bytes:
    return name.to_bytes(2, "big") + value.to_bytes(4, "big")


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & _PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise _PeerError(_PROTOCOL_ERROR, "more padding than the frame is long")
    return payload[1 : len(payload) - payload[0]]


def _name_of(code: int) -> str:
    return _ERROR_NAMES[code] if code < len(_ERROR_NAMES) else f"error {code}"
