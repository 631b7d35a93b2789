"""`FramedConnections`: the carrier for the calls of scheduling cycles to an instance that listens for frames.

There is one connection per plugin, opened by the first call that needs it. A call that is not answered closes
the connection; the next call opens another. Used by `InstanceLink`. Source:
docs/reference/framed-transport.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, Protocol

from berth_sdk.wire.frames import (
    CHUNK_BYTES,
    Frame,
    FrameError,
    Incoming,
    Kind,
    TooLongError,
    call_frame,
    read_failure,
)
from google.protobuf.message import DecodeError
from grpc import StatusCode

from berth_host.log import get_logger
from berth_host.rpc.served.answer_wait import AnswerWait, Stream
from berth_host.rpc.served.busy_poll import BusyPoll
from berth_host.rpc.served.grpc_errors import rpc_error
from berth_host.rpc.served.peer_user import may_serve, peer_user, socket_identity

_LOG = get_logger()
_CODES: Final = {code.value[0]: code for code in StatusCode if code is not StatusCode.OK}
_CLOSING: Final = Frame(Kind.CLOSING, 0, b"")
LARGEST_BYTES: Final = 1024 * 1024
"""The largest request in bytes. A larger one is a unary call, because frames would save little of its
cost.
"""


class Listener(Protocol):
    """The place where an instance listens for frames. `path`: the path of its framed socket."""

    path: Path

    def connect(self) -> Stream:
        """Return a new connection that does not block. Raises OSError."""
        ...


class FramedConnections:
    """The connections of one instance, by plugin, each opened when it is needed."""

    name = "framed"

    def __init__(
        self,
        listener: Listener,
        limit_bytes: int,
        *,
        poll: BusyPoll | None = None,
        wait: Callable[[], AnswerWait] = AnswerWait,
    ) -> None:
        """`limit_bytes`: the longest answer that was agreed. `poll`: None for one that knows the CPUs of this
        machine. `wait`: makes the waits of one connection; see `FramedConnection`.
        """
        self._listener = listener
        self._limit_bytes = limit_bytes
        self._poll = BusyPoll() if poll is None else poll
        self._wait = wait
        self._connections: dict[str, FramedConnection] = {}

    def free(self, plugin: str) -> FramedConnection | None:
        """Return the plugin's connection; None while a call is open on the connection."""
        found = self._connections.get(plugin)
        if found is None:
            found = FramedConnection(self._listener, self._limit_bytes, self._poll, self._wait())
            self._connections[plugin] = found
        return None if found.busy else found

    def end(self) -> None:
        """Close the connections on which no call is open."""
        for connection in self._connections.values():
            if not connection.busy:
                connection.close()

    def close(self) -> None:
        """Close all connections, and end with them the calls that are open."""
        for connection in self._connections.values():
            connection.close()


class FramedConnection:
    """The connection of one plugin.

    closed -ask-> busy -answered-> idle -ask-> busy; busy or idle -the other end closes, close-> closed
    """

    def __init__(
        self, listener: Listener, limit_bytes: int, poll: BusyPoll, wait: AnswerWait | None = None
    ) -> None:
        """Prepare a connection, which is not open yet. `limit_bytes`: the longest answer. `wait`: its waits
        without a turn of the loop; None: with the share of the process.
        """
        self.busy = False
        self._listener = listener
        self._limit_bytes = limit_bytes
        self._poll = poll
        self._wait = wait or AnswerWait()
        self._sock: Stream | None = None
        self._loop: asyncio.AbstractEventLoop
        self._incoming = Incoming(limit_bytes)
        self._answer: asyncio.Future[Frame] | None = None
        self._unsent = memoryview(b"")
        self._is_missed = False

    @property
    def is_connected(self) -> bool:
        """True while the connection is open, busy or idle."""
        return self._sock is not None

    async def ask(self, number: int, raw: bytes, deadline_s: float) -> bytes | None:
        """Send one request and return the answer, serialised; None if the call was not executed.

        `number`: the call's (`NUMBERS`). Raises what a unary call would: AioRpcError, DecodeError,
        CancelledError.
        """
        if self._sock is None and not self._connect():
            return None
        self.busy = True
        self._wait.begin(number)
        answered = False
        try:
            kind, call, payload = await self._put(call_frame(number, raw), deadline_s)
            if kind is Kind.CLOSING:
                return None
            if call != number:
                raise FrameError(f"an answer to call {call} where {number} was asked")
            if kind is Kind.FAILURE:
                code, text = read_failure(payload)
                answered = True
                raise rpc_error(_CODES.get(code, StatusCode.UNKNOWN), text)
            answered = True
            return payload
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
            self._wait.end()
            if not answered:
                self.close()

    def close(self) -> None:
        """Close the connection, and end with it a call that is open."""
        self._drop()
        self._said(rpc_error(StatusCode.CANCELLED, "the connection was closed"))

    async def _put(self, message: bytes, deadline_s: float) -> Frame:
        """Send a frame and return the next one that arrives.

        Raises OSError, FrameError, AioRpcError, TimeoutError.
        """
        ends_s = self._loop.time() + deadline_s
        answer: asyncio.Future[Frame] = self._loop.create_future()
        self._answer = answer
        self._unsent = memoryview(message)
        try:
            self._send()
            if self._sock is not None:
                if self._unsent:
                    self._loop.add_writer(self._sock.fileno(), self._send)
                else:
                    self._wait.at(self._sock, deadline_s, self._received)
            if answer.done():
                return answer.result()
            self._poll.begin()
            try:
                async with asyncio.timeout_at(ends_s):
                    return await answer
            finally:
                self._poll.end()
        finally:
            self._answer = None

    def _received(self) -> bool:
        """Read what is there; return True if the open call has its answer or has failed."""
        self._receive()
        return self._answer is not None and self._answer.done()

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
            self._said(_CLOSING)
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
                self._said(_CLOSING)
            else:
                self._said(err)
            return
        for found in frames:
            if not self._said(found):
                # Otherwise a frame without a waiting call would become the answer to the next call.
                self._drop()

    def _said(self, what: Frame | Exception) -> bool:
        """Set the result of the open call; return False if no call is open."""
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
        """Close the connection without a result for the open call."""
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.remove_reader(sock.fileno())
            self._loop.remove_writer(sock.fileno())
            sock.close()


class FramedSocket:
    """The socket at which an instance listens for frames.

    Another process may bind the path while the instance lives on. gRPC's connection does not notice, and a
    new framed connection would reach the other process. So `connect` compares the file with the one that was
    there first; a file that appears later may belong to anybody who may serve.
    """

    def __init__(self, path: Path, allowed_uids: Collection[int] = ()) -> None:
        """`allowed_uids`: users beside root and the host's own that may listen there."""
        self.path = path
        self._allowed_uids = allowed_uids
        self._identity: tuple[int, int, int] | None = None
        with contextlib.suppress(OSError):
            self._identity = socket_identity(path)

    def connect(self) -> socket.socket:
        """Return a connection that does not block. Raises OSError; PermissionError if a stranger listens."""
        if self._identity is not None and socket_identity(self.path) != self._identity:
            raise PermissionError("another process has put its socket there")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.connect(str(self.path))
            user = peer_user(sock)
            if not may_serve(user.uid, self._allowed_uids):
                raise PermissionError(f"the user {user.uid} listens there, who may not")
        except OSError:
            sock.close()
            raise
        return sock
