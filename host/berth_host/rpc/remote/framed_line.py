"""`FramedLine`: one plugin's connection for calls of the scheduling cycle in frames, and an instance's all.

In the place of `CallStream` where the instance listens for frames on a Unix socket beside gRPC's: a call
costs half of one on a stream that is open. A call that is not answered closes the connection; the next call
opens another. Used by `InstanceLink`. Source: docs/reference/framed-transport.md.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection
from pathlib import Path
from typing import Final, TypeAlias

from berth_sdk.wire.frames import (
    CHUNK_BYTES,
    FEATURE,
    FrameError,
    Incoming,
    Kind,
    TooLongError,
    frame,
    read_failure,
)
from berth_sdk.wire.stream import wrap
from google.protobuf.message import DecodeError
from grpc import StatusCode

from berth_host.log import get_logger
from berth_host.rpc.remote.busy_poll import BusyPoll
from berth_host.rpc.remote.framed_socket import FramedSocket
from berth_host.rpc.remote.grpc_errors import rpc_error
from berth_host.rpc.remote.lines import ENVELOPE_BYTES, answer_to

_LOG = get_logger()
_CODES: Final = {code.value[0]: code for code in StatusCode if code is not StatusCode.OK}
_Frame: TypeAlias = tuple[Kind, bytes]


class FramedLine:
    """closed -ask-> busy -answered-> idle -ask-> busy; busy or idle -the other end closes, close-> closed"""

    def __init__(self, listener: FramedSocket, limit_bytes: int, poll: BusyPoll) -> None:
        """`limit_bytes`: the longest answer, with its envelope."""
        self.busy = False
        self._listener = listener
        self._limit_bytes = limit_bytes
        self._poll = poll
        self._sock: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop
        self._incoming = Incoming(limit_bytes)
        self._answer: asyncio.Future[_Frame] | None = None
        self._unsent = memoryview(b"")
        self._is_missed = False

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, in use or not."""
        return self._sock is not None

    async def ask(self, number: int, raw: bytes, deadline_s: float) -> bytes | None:
        """One call; None: nobody was there to execute it. Raises what a call of its own would: AioRpcError,
        DecodeError, CancelledError.
        """
        if self._sock is None and not self._connect():
            return None
        self.busy = True
        self._poll.begin()
        answered = False
        try:
            async with asyncio.timeout(deadline_s):
                kind, payload = await self._put(frame(Kind.CALL, wrap(number, raw)))
            if kind is Kind.CLOSING:
                return None
            if kind is Kind.FAILURE:
                code, text = read_failure(payload)
                answered = True
                raise rpc_error(_CODES.get(code, StatusCode.UNKNOWN), text)
            reply = answer_to(number, payload)
            answered = True
            return reply
        except TimeoutError as err:
            raise rpc_error(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from err
        except TooLongError as err:
            text = f"Received message larger than max ({err.length} vs. {err.limit})"
            raise rpc_error(StatusCode.RESOURCE_EXHAUSTED, text) from err
        except FrameError as err:
            raise DecodeError(str(err)) from err
        except OSError as err:
            raise rpc_error(StatusCode.UNAVAILABLE, f"{self._listener.path}: {err}") from err
        finally:
            self.busy = False
            self._poll.end()
            if not answered:
                self.close()

    def close(self) -> None:
        """Close the connection, and end with it a call that is open."""
        self._drop()
        self._said(rpc_error(StatusCode.CANCELLED, "the connection was closed"))

    async def _put(self, message: bytes) -> _Frame:
        """The instance's answer to a message. Raises OSError, FrameError, AioRpcError."""
        answer: asyncio.Future[_Frame] = self._loop.create_future()
        self._answer = answer
        self._unsent = memoryview(message)
        self._send()
        if self._unsent and self._sock is not None:
            self._loop.add_writer(self._sock.fileno(), self._send)
        try:
            return await answer
        finally:
            self._answer = None

    def _send(self) -> None:
        sock = self._sock
        if sock is None:
            return
        try:
            self._unsent = self._unsent[sock.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            # The peer executes whole messages only: if it closed before, it executed nothing.
            self._drop()
            self._said((Kind.CLOSING, b""))
            return
        if not self._unsent:
            self._loop.remove_writer(sock.fileno())

    def _receive(self) -> None:
        if self._sock is None:
            return
        try:
            data = self._sock.recv(CHUNK_BYTES)
            if not data:
                raise ConnectionResetError("closed by the instance")
            frames = self._incoming.take(data)
        except BlockingIOError:
            return
        except (OSError, FrameError) as err:
            self._drop()
            if self._unsent:
                self._said((Kind.CLOSING, b""))
            else:
                self._said(err)
            return
        for found in frames:
            if not self._said(found):
                # Without a call under way only the end may come: anything else would seem to be an answer.
                self._drop()

    def _said(self, what: _Frame | Exception) -> bool:
        """False: no call waits for it."""
        answer = self._answer
        if answer is None or answer.done():
            return False
        if isinstance(what, Exception):
            answer.set_exception(what)
        else:
            answer.set_result(what)
        return True

    def _connect(self) -> bool:
        try:
            sock = self._listener.connect()
        except OSError as err:
            if not self._is_missed:
                _LOG.warning("framed.unreachable", path=str(self._listener.path), error=str(err))
            self._is_missed = True
            return False
        self._is_missed = False
        self._sock, self._loop = sock, asyncio.get_running_loop()
        self._incoming = Incoming(self._limit_bytes)
        self._loop.add_reader(sock.fileno(), self._receive)
        return True

    def _drop(self) -> None:
        """Let the connection go."""
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.remove_reader(sock.fileno())
            self._loop.remove_writer(sock.fileno())
            sock.close()


class FramedLines:
    """The connections of one instance, by plugin, each opened when it is needed."""

    name = FEATURE

    def __init__(self, path: Path, limit_bytes: int, allowed_uids: Collection[int] = ()) -> None:
        """`path`: its framed socket. `limit_bytes`: the longest answer that was agreed. `allowed_uids`: users
        beside root and the host's own that may listen there.
        """
        self._listener = FramedSocket(path, allowed_uids)
        self._limit_bytes = limit_bytes + ENVELOPE_BYTES
        self._poll = BusyPoll()
        self._lines: dict[str, FramedLine] = {}

    def free(self, plugin: str) -> FramedLine | None:
        """The plugin's connection; None: it carries a call already."""
        line = self._lines.get(plugin)
        if line is None:
            line = self._lines[plugin] = FramedLine(self._listener, self._limit_bytes, self._poll)
        return None if line.busy else line

    async def end(self) -> None:
        """Close those between two calls, of which nothing is under way."""
        for line in self._lines.values():
            if not line.busy:
                line.close()

    def close(self) -> None:
        """No call will be answered any more."""
        for line in self._lines.values():
            line.close()
