"""`Http2Connection`: many requests at once over one HTTP/2 connection to the API server.

Opened by `connect`, for servers that offer HTTP/2. Made for few CPU cycles per request: the frames of one
turn of the event loop are written at once, blocks of headers are prepared, and of an answer only what is
needed is decoded. The server is asked to keep no table of headers (SETTINGS_HEADER_TABLE_SIZE 0), so that
each of its blocks can be read, or skipped, alone. Source: RFC 9113.

    dial -> SETTINGS of both sides -> requests -+-> GOAWAY, or `retire`: no new requests, the others end
                                                +-> closed by either side: every open request is lost

A request that the server cannot have acted on ends in `NotActedOnError`: it was not written yet, the server
refused its stream, left it out of its GOAWAY, or asked for HTTP/1.1 instead of an answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final

from berth_kube import http2_frames as h2
from berth_kube.http2_frames import LAST_STREAM, LAST_WINDOW, MAX_FRAME, PREFACE, PeerError
from berth_kube.http2_heads import (
    MAX_BLOCK,
    TABLE_SIZE,
    BlockError,
    HeadEncoder,
    Header,
    read_block,
    status_of,
)
from berth_kube.write_connection import (
    MAX_ANSWER,
    Asked,
    ConnectionLostError,
    NotActedOnError,
    WriteConnection,
)

PROTOCOL: Final = "h2"
"""The name by which TLS offers it (ALPN)."""
WINDOW: Final = 2**22
"""Bytes of one answer that the server may send before they are read."""
CONNECTION_WINDOW: Final = 2**30
PING_AFTER_S: Final = 30.0
"""Seconds of silence, with requests under way, after which the server is asked whether it is there."""
PING_TIMEOUT_S: Final = 15.0
MAX_UNWRITTEN: Final = 10_000
"""Frames that may wait for a server that sends PING or SETTINGS and does not read the acknowledgements."""
PIECE_BYTES: Final = 256
"""Bytes that each CONTINUATION frame counts beside its content, so that a block of empty ones ends too."""
_LAST_NUMBERS: Final = 2**20
"""Numbers of streams at the end of their range, at which the connection is left for a new one."""


class _Stream(Asked):
    """One request on its stream."""

    __slots__ = ("number", "send_window", "unread", "unsent")

    def __init__(self, number: int, ends_s: float, send_window: int, answer: asyncio.Future[None]) -> None:
        super().__init__(ends_s, answer)
        self.number = number
        self.send_window = send_window
        self.unread = 0
        """Bytes received for which the window was not given back."""
        self.unsent: memoryview | None = None
        """The rest of the request's body, in bytes, which waits until the server's windows allow it."""


class Http2Connection(WriteConnection):
    """One connection. `ready`: done once the server's SETTINGS came.

    `constant`: the headers that every request has, `:authority` first. `wants_http1`: True once the server
    said that it takes the requests over HTTP/1.1 alone (HTTP_1_1_REQUIRED).
    """

    def __init__(self, constant: Sequence[Header], on_change: Callable[[WriteConnection], None]) -> None:
        super().__init__(on_change)
        self.wants_http1 = False
        self._constant = constant
        self._encoder = HeadEncoder(TABLE_SIZE, constant)
        self._open: dict[int, _Stream] = {}
        self._next_number = 1
        self._max_streams = 100
        self._initial_window = 65_535
        self._send_window = 65_535
        self._blocked: deque[_Stream] = deque()
        self._to_write: list[bytes] = []
        self._unwritten: list[_Stream] = []
        self._flush_is_due = False
        self._is_paused = False
        self._rest = b""
        self._block: tuple[int, int, bytearray] | None = None
        self._block_bytes = 0
        self._unacknowledged = 0
        self._pinged_s: float | None = None

    # --- what the lane does --------------------------------------------------------------------------

    @property
    def asked(self) -> Collection[Asked]:
        """The requests under way."""
        return self._open.values()

    @property
    def room_count(self) -> int:
        """The number of requests that the server takes beside those under way."""
        return max(self._max_streams - len(self._open), 0) if self.has_room else 0

    @property
    def needs_checks(self) -> bool:
        """True while requests are under way, or a PING has no answer yet."""
        return bool(self._open) or self._pinged_s is not None

    def begin(self, method: str, path: str, body: bytes | None, content_type: str, ends_s: float) -> Asked:
        """Send a request at the end of this turn of the event loop."""
        if body is None:
            size, block = 0, self._encoder.block(method, path)
        else:
            size = len(body)
            block = self._encoder.block(method, path, content_type, size)
        number = self._next_number
        self._next_number = number + 2
        asked = _Stream(number, ends_s, self._initial_window, self._loop.create_future())
        open_now = self._open
        open_now[number] = asked
        if len(open_now) >= self._max_streams:
            self.has_room = False
        is_small = size <= MAX_FRAME and len(block) <= MAX_FRAME
        if body and is_small and size <= self._send_window and size <= asked.send_window:
            self._send_window -= size
            asked.send_window -= size
            # Both frames of the usual request at once.
            self._to_write.append(
                b"%b%b%b%b"
                % (
                    (len(block) << 48 | 0x0104_0000_0000 | number).to_bytes(9, "big"),
                    block,
                    (size << 48 | 0x0001_0000_0000 | number).to_bytes(9, "big"),
                    body,
                )
            )
        else:
            self._to_write += h2.head_frames(number, block, ends=not body)
            if body:
                asked.unsent = memoryview(body)
                self._blocked.append(asked)
                self._add_blocked()
        self._unwritten.append(asked)
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)
        return asked

    def drop(self, asked: Asked, error: Exception) -> None:
        """Give up a request, and tell the server so."""
        if isinstance(asked, _Stream) and asked.number in self._open:
            self._reset(asked, h2.CANCEL)
            self._fail(asked, error)

    def close(self) -> None:
        """Close the connection; requests under way are lost, those not written yet may be sent again."""
        if not self._unwritten:
            self._flush()  # An RST_STREAM may wait.
        super().close()

    def check(self, now_s: float) -> None:
        """End the requests whose time is over; look whether the server is there."""
        super().check(now_s)
        if self._next_number > LAST_STREAM - _LAST_NUMBERS:
            self.retire()
        if self.is_closed:
            return
        if self._pinged_s is not None:
            if now_s - self._pinged_s >= PING_TIMEOUT_S:
                silent_s = now_s - self.heard_s
                self._give_up(h2.NO_ERROR, f"nothing for {silent_s:.0f} s, and no answer to a PING")
        elif self._open and now_s - self.heard_s >= PING_AFTER_S:
            self._pinged_s = now_s
            self._add(h2.PING, 0, 0, b"berth\0\0\0")
            self._plan_flush()

    # --- the transport's side ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface and the settings."""
        super().connection_made(transport)
        settings = b"".join(
            h2.setting(name, value)
            for name, value in (
                (h2.HEADER_TABLE_SIZE, 0),
                (h2.ENABLE_PUSH, 0),
                (h2.INITIAL_WINDOW, WINDOW),
                (h2.MAX_HEADERS, MAX_BLOCK),
            )
        )
        self._to_write.append(PREFACE)
        self._add(h2.SETTINGS, 0, 0, settings)
        self._add_window(0, CONNECTION_WINDOW - 65_535)
        self._flush()

    def pause_writing(self) -> None:
        """Keep what is to be written."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Write again."""
        self._is_paused = False
        self._plan_flush()

    def data_received(self, data: bytes) -> None:
        """Read the frames that are complete."""
        self.heard_s = self._loop.time()
        self._pinged_s = None
        if self._rest:
            data = self._rest + data
        place, end = 0, len(data)
        try:
            while end - place >= 9:
                length = data[place] << 16 | data[place + 1] << 8 | data[place + 2]
                if length > MAX_FRAME:
                    raise PeerError(h2.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
                after = place + 9 + length
                if after > end:
                    break
                kind, flags = data[place + 3], data[place + 4]
                number = int.from_bytes(data[place + 5 : place + 9], "big") & LAST_STREAM
                self._frame(kind, flags, number, data[place + 9 : after])
                place = after
                if self.is_closed:
                    return
            if self._is_paused and len(self._to_write) > MAX_UNWRITTEN:
                raise PeerError(h2.ENHANCE_YOUR_CALM, "frames without reading their acknowledgements")
        except PeerError as err:
            self._give_up(err.code, err.text)
            return
        except BlockError as err:
            self._give_up(h2.COMPRESSION_ERROR, str(err))
            return
        self._rest = data[place:] if place < end else b""

    # --- frames that came --------------------------------------------------------------------------

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block is not None and (kind != h2.CONTINUATION or number != self._block[0]):
            raise PeerError(h2.PROTOCOL_ERROR, "a block of headers that another frame interrupts")
        if not self.ready.done() and kind != h2.SETTINGS:
            raise PeerError(h2.PROTOCOL_ERROR, "no SETTINGS frame first: it does not speak HTTP/2")
        if kind == h2.DATA:
            self._data(flags, number, payload)
        elif kind == h2.HEADERS:
            payload = h2.unpadded(flags, payload)
            if flags & h2.PRIORITY:
                payload = payload[5:]
            if flags & h2.END_HEADERS:
                self._headers(flags, number, payload)
            else:
                self._block = number, flags, bytearray(payload)
                self._block_bytes = len(payload)
        elif kind == h2.CONTINUATION:
            self._continuation(flags, payload)
        elif kind == h2.WINDOW_UPDATE:
            self._window_update(number, h2.number_of("a WINDOW_UPDATE", payload) & LAST_WINDOW)
        elif kind == h2.SETTINGS:
            self._settings(flags, payload)
        elif kind == h2.PING:
            if len(payload) != 8:
                raise PeerError(h2.FRAME_SIZE_ERROR, "a PING of another length than 8")
            if not flags & h2.ACK:
                self._add(h2.PING, h2.ACK, 0, payload)
                self._plan_flush()
        elif kind == h2.RST_STREAM:
            self._reset_by_server(number, h2.number_of("an RST_STREAM", payload))
        elif kind == h2.GOAWAY:
            self._goaway(payload)
        elif kind == h2.PUSH:
            raise PeerError(h2.PROTOCOL_ERROR, "a PUSH_PROMISE, which was not allowed")

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        whole = len(payload)
        self._unacknowledged += whole
        if self._unacknowledged >= CONNECTION_WINDOW // 4:
            self._add_window(0, self._unacknowledged)
            self._unacknowledged = 0
        asked = self._open.get(number)
        if asked is None:
            self._check_known(number)
            return  # A request that was given up.
        if not asked.status:
            raise PeerError(h2.PROTOCOL_ERROR, "an answer without headers")
        if flags & h2.PADDED:
            payload = h2.unpadded(flags, payload)
        if payload and not asked.add_part(payload):
            self.drop(asked, ConnectionLostError(f"the answer has more than {MAX_ANSWER} bytes"))
            return
        if flags & h2.END_STREAM:
            self._end(asked)
            return
        asked.unread += whole
        if asked.unread >= WINDOW // 4:
            self._add_window(number, asked.unread)
            asked.unread = 0

    def _continuation(self, flags: int, payload: bytes) -> None:
        if self._block is None:
            raise PeerError(h2.PROTOCOL_ERROR, "a CONTINUATION frame of nothing")
        number, first_flags, block = self._block
        block += payload
        self._block_bytes += len(payload) + PIECE_BYTES
        if self._block_bytes > MAX_BLOCK:
            raise PeerError(h2.PROTOCOL_ERROR, f"headers of more than {MAX_BLOCK} bytes")
        if flags & h2.END_HEADERS:
            self._block = None
            self._headers(first_flags, number, bytes(block))

    def _headers(self, flags: int, number: int, block: bytes) -> None:
        asked = self._open.get(number)
        if asked is None:
            self._check_known(number)
            return
        if not asked.status:
            status = status_of(block)
            if status is None or status >= 300:
                status, asked.retry_after = read_block(block)
            if status < 200:
                if flags & h2.END_STREAM:
                    raise PeerError(h2.PROTOCOL_ERROR, f"an answer that ends with {status}")
                return  # The real headers follow.
            asked.status = status
        elif not flags & h2.END_STREAM:
            raise PeerError(h2.PROTOCOL_ERROR, "two blocks of headers in one answer")
        if flags & h2.END_STREAM:
            self._end(asked)

    def _check_known(self, number: int) -> None:
        if number >= self._next_number or not number & 1:
            raise PeerError(h2.PROTOCOL_ERROR, f"an answer to request {number}, which was not made")

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & h2.ACK:
            return
        table_size = TABLE_SIZE
        for name, value in h2.settings_of(payload):
            if name == h2.HEADER_TABLE_SIZE:
                table_size = min(value, TABLE_SIZE)
            elif name == h2.MAX_STREAMS:
                self._max_streams = value
            elif name == h2.INITIAL_WINDOW:
                for asked in self._open.values():
                    asked.send_window = h2.window(asked.send_window + value - self._initial_window)
                self._initial_window = h2.window(value)
        self._add(h2.SETTINGS, h2.ACK, 0)
        if not self.ready.done():
            self._encoder = HeadEncoder(table_size, self._constant)
            self.ready.set_result(None)
        elif table_size != TABLE_SIZE:
            # The table could have to forget what later blocks refer to: go on with another connection.
            self.retire()
        self._add_blocked()
        self._plan_flush()
        self._look_for_room()

    def _window_update(self, number: int, more: int) -> None:
        if not number:
            self._send_window = h2.window(self._send_window + more)
        elif (asked := self._open.get(number)) is not None:
            asked.send_window = h2.window(asked.send_window + more)
        if self._blocked:
            self._add_blocked()
            self._plan_flush()

    def _reset_by_server(self, number: int, code: int) -> None:
        wants_http1 = code == h2.HTTP_1_1_REQUIRED
        if wants_http1:
            self.wants_http1 = True
            self.retire()
        asked = self._open.get(number)
        if asked is None:
            return
        # Without END_STREAM the answer is cut off, whatever the code: also with NO_ERROR. A server that has
        # begun to answer has acted, also if it then asks for HTTP/1.1.
        is_refused = code == h2.REFUSED_STREAM or (wants_http1 and not asked.status)
        error = NotActedOnError if is_refused else ConnectionLostError
        self._fail(asked, error(f"the server reset the request's stream: {h2.error_name(code)}"))

    def _goaway(self, payload: bytes) -> None:
        if len(payload) < 8:
            raise PeerError(h2.FRAME_SIZE_ERROR, "a GOAWAY cut off")
        last = int.from_bytes(payload[:4], "big") & LAST_STREAM
        code = int.from_bytes(payload[4:8], "big")
        text = f"the server says GOAWAY: {h2.error_name(code)}"
        if payload[8:]:
            text += f", {payload[8:208].decode(errors='replace')!r}"
        self.wants_http1 = self.wants_http1 or code == h2.HTTP_1_1_REQUIRED
        self.retire()
        for number, asked in list(self._open.items()):
            if number > last:
                self._fail(asked, NotActedOnError(text))

    # --- ends ----------------------------------------------------------------------------------------

    def _end(self, asked: _Stream) -> None:
        if asked.unsent is not None:
            # The server answered without reading all of the request, as it may do with an error.
            self._reset(asked, h2.NO_ERROR)
        self._open.pop(asked.number, None)
        if not asked.answer.done():
            asked.answer.set_result(None)
        if not self.has_room:
            self._look_for_room()

    def _fail(self, asked: Asked, error: Exception) -> None:
        if isinstance(asked, _Stream):
            self._forget(asked)
        if not asked.answer.done():
            asked.answer.set_exception(error)
        self._look_for_room()

    def _reset(self, asked: _Stream, code: int) -> None:
        self._forget(asked)
        self._add(h2.RST_STREAM, 0, asked.number, code.to_bytes(4, "big"))
        self._plan_flush()

    def _forget(self, asked: _Stream) -> None:
        self._open.pop(asked.number, None)
        if asked.unsent is not None:
            asked.unsent = None
            self._blocked.remove(asked)

    def _look_for_room(self) -> None:
        """Note that there is room, or none; close a retired connection after its last request."""
        if self.is_closed:
            return
        if self.is_retired:
            if not self._open:
                self.close()
            return
        has_room = self.ready.done() and len(self._open) < self._max_streams
        if has_room != self.has_room:
            self.has_room = has_room
            self._on_change(self)

    def _give_up(self, code: int, text: str) -> None:
        """Close the connection, because the server breaks the protocol."""
        transport = self._transport
        if transport is not None:
            if not self._is_paused and not transport.is_closing():
                # Without the requests that were not written yet, so that they may be sent again.
                payload = (0).to_bytes(4, "big") + code.to_bytes(4, "big")
                transport.write(h2.frame(h2.GOAWAY, 0, 0, payload))
            transport.abort()
        self._ended(ConnectionLostError(f"it sent what is no HTTP/2: {text}"))

    def _ended(self, error: ConnectionLostError) -> None:
        self._rest = b""
        super()._ended(error)
        self._to_write.clear()
        self._unwritten.clear()

    def _is_written(self, asked: Asked) -> bool:
        return not any(one is asked for one in self._unwritten)

    # --- writing -----------------------------------------------------------------------------------

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
                flags = 0 if len(rest) else h2.END_STREAM
                self._add(h2.DATA, flags, asked.number, bytes(piece))

    def _add_window(self, number: int, more: int) -> None:
        self._add(h2.WINDOW_UPDATE, 0, number, more.to_bytes(4, "big"))
        self._plan_flush()

    def _add(self, kind: int, flags: int, number: int, payload: bytes = b"") -> None:
        self._to_write.append(h2.frame(kind, flags, number, payload))

    def _plan_flush(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        transport = self._transport
        if self._is_paused or self.is_closed or transport is None or not self._to_write:
            return
        if transport.is_closing():
            return  # It would drop the bytes; `connection_lost` then says that nothing was sent.
        raw = b"".join(self._to_write)
        self._to_write.clear()
        self._unwritten.clear()
        transport.write(raw)
