"""`FramedConnection`: the server's side of one framed connection. Made and driven by `FramedServer`."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

import grpc

from berth_sdk.serve.calls import LOG
from berth_sdk.serve.carriers import Answer, Carrier, carried
from berth_sdk.wire.frames import CHUNK_BYTES, FrameError, Incoming, Kind, failure, frame

STALLED_S: Final = 10
"""How long the rest of a frame may take, in either direction."""
_NUMBERS: Final = {code: code.value[0] for code in grpc.StatusCode}
_HUNG_UP: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP
_TIMEVAL: Final = struct.Struct("ll")


class FramedConnection(Carrier):
    """idle -next_call-> busy -answer-> idle; any -the host closes, cancel, cut_off-> closed"""

    def __init__(self, sock: socket.socket, limit_bytes: int, stalled_s: int = STALLED_S) -> None:
        """`limit_bytes`: the longest request."""
        super().__init__()
        self._sock = sock
        self._incoming = Incoming(limit_bytes)
        self._stalled_s = stalled_s
        self._watcher: threading.Thread | None = None
        # Of the socket, not of Python, which would look at it before each read.
        patience = _TIMEVAL.pack(stalled_s, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)

    def next_call(self) -> bytes | None:
        """The payload of the next call; None: the host has closed. Raises OSError, FrameError."""
        while True:
            try:
                data = self._sock.recv(CHUNK_BYTES)
            except BlockingIOError as err:
                if self._incoming.has_begun:
                    raise FrameError(f"the rest of a frame did not come within {self._stalled_s} s") from err
                continue  # between two calls the host may take its time
            if not data:
                if self._incoming.has_begun:
                    raise FrameError("it was closed in the middle of a frame")
                return None
            frames = self._incoming.take(data)
            if not frames:
                continue
            kind, payload = frames[0]
            if kind is not Kind.CALL:
                raise FrameError(f"a frame of the kind {kind.name} where a call was due")
            if len(frames) > 1 or self._incoming.has_begun:
                raise FrameError("a second call before the answer to the first")
            return payload

    def answer(self, calls: Mapping[int, Answer], payload: bytes) -> None:
        """Put a call to its handler and send the reply. Raises OSError."""
        try:
            reply = frame(Kind.CALL, carried(calls, payload, self))
        except _AbortedError as err:
            reply = failure(_NUMBERS[err.code], err.text)
        except Exception as err:  # noqa: BLE001 (as gRPC does for a call of its own; the next one must be served)
            LOG.exception("a call failed")
            reply = failure(_NUMBERS[grpc.StatusCode.UNKNOWN], f"Exception calling application: {err}")
        # A host that has gone does not wait for it any more.
        with contextlib.suppress(BrokenPipeError):
            self._sock.sendall(reply)

    def is_active(self) -> bool:
        """Whether a caller waits for the answer."""
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call back when the host closes while this call is open; False if it has."""
        if self._watcher is None:
            # Only calls that run on the loop ask for it; the others cost no second thread.
            self._watcher = threading.Thread(target=self._watch, name="berth-framed-watch", daemon=True)
            self._watcher.start()
        return super().add_callback(callback)

    def abort(self, code: grpc.StatusCode, text: str) -> NoReturn:
        """End the call with an error; the connection stays."""
        raise _AbortedError(code, text)

    def cancel(self) -> None:
        """Say that nothing is executed any more, and close."""
        with contextlib.suppress(OSError):
            self._sock.send(frame(Kind.CLOSING), socket.MSG_DONTWAIT)
        self.cut_off()

    def cut_off(self) -> None:
        """Close under a call that is open."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Let the socket go, once it is not watched any more."""
        self.cut_off()
        if self._watcher is not None:
            self._watcher.join()
        self._sock.close()

    def _watch(self) -> None:
        """Until the host closes, or `end`."""
        poll = select.poll()
        poll.register(self._sock, _HUNG_UP)
        poll.poll()
        self.given_up()


class _AbortedError(Exception):
    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(text)
