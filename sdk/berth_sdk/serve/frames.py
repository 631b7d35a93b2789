"""Calls of the scheduling cycle in frames on a Unix socket beside the gRPC server: `FramedServer`.

Each connection has a thread, which passes one call after the other to the handlers of `SchedulingService`.
`server` makes the `FramedServer`. Source: docs/reference/framed-transport.md.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from berth_sdk.clocks import monotonic_s
from berth_sdk.serve.calls import LOG
from berth_sdk.serve.framed_requests import Answer, aborted, next_request, reply_to
from berth_sdk.serve.quiet_lines import QuietLines
from berth_sdk.serve.socket_file import identity_of, unlink
from berth_sdk.wire.frames import (
    CHUNK_BYTES,
    CLOSING_FRAME,
    Frame,
    FrameError,
    Incoming,
)

MAX_CONNECTIONS: Final = 256
STALLED_S: Final = 10
"""Seconds that the rest of a frame may take, in either direction."""
ROOM_AGAIN_S: Final = 0.2
_BACKLOG: Final = 64
_WANT_OF_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_HUNG_UP: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP
_TIMEVAL: Final = struct.Struct("ll")


class FramedServer:
    """The listening socket and its connections. made -listen-> serving -stop-> stopped."""

    def __init__(self, calls: Mapping[int, Answer], limit_bytes: int) -> None:
        """Serve `calls`: handlers by number (`wire.frames.NUMBERS`). `limit_bytes`: the longest request."""
        self._calls = calls
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._threads: dict[threading.Thread, FramedConnection] = {}
        self._listening: socket.socket | None = None
        self._path = Path()
        self._file: tuple[int, int] | None = None
        self._stopping = threading.Event()
        self._lines = QuietLines(LOG)

    def listen(self, path: Path) -> bool:
        """Listen at `path`, with the process's umask.

        Returns False if the path cannot be bound; all calls then come over gRPC.
        """
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Left by a process that crashed: gRPC's socket beside it was free.
            unlink(path)
            listening.bind(str(path))
            listening.listen(_BACKLOG)
        except OSError as err:
            LOG.warning("calls come over gRPC alone, as nothing can listen at %s: %s", path, err)
            listening.close()
            return False
        self._listening, self._path, self._file = listening, path, identity_of(path)
        threading.Thread(
            target=self.accept, args=(listening,), name="berth-framed-accept", daemon=True
        ).start()
        return True

    def stop(self) -> None:
        """Accept no more connections. Close idle connections now, the others after their answer."""
        with self._lock:
            self._stopping.set()
            idle = [connection for connection in self._threads.values() if not connection.busy]
        if self._listening is None:
            return
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        # Not the file of a successor at the same path.
        if self._file == identity_of(self._path):
            unlink(self._path)
        for connection in idle:
            connection.say_closing()

    def wait(self, timeout_s: float) -> None:
        """Wait until the connections have ended; cut off those that are open after `timeout_s`."""
        with self._lock:
            threads = dict(self._threads)
        ends_s = monotonic_s() + timeout_s
        for thread, connection in threads.items():
            thread.join(max(ends_s - monotonic_s(), 0.0))
            if thread.is_alive():
                connection.cut_off()

    @property
    def connection_count(self) -> int:
        """The number of connections that have a thread."""
        return len(self._threads)

    @property
    def is_stopping(self) -> bool:
        """True once `stop` was called."""
        return self._stopping.is_set()

    def accept(self, listening: socket.socket) -> None:
        """Accept connections until the server stops; the body of a thread."""
        with listening:
            while not self._stopping.is_set():
                try:
                    sock, _ = listening.accept()
                except OSError as err:
                    if err.errno in _WANT_OF_ROOM:
                        self._make_room(f"no connection can be accepted ({err.strerror})")
                        self._stopping.wait(ROOM_AGAIN_S)
                    elif not isinstance(err, ConnectionError):
                        return
                    continue
                self._begin(FramedConnection(sock, self._limit_bytes))

    def _begin(self, connection: FramedConnection) -> None:
        thread = threading.Thread(target=self._serve, args=(connection,), name="berth-framed", daemon=True)
        # One that leaves has given its place to another already, however long its thread takes to end.
        is_room = self._staying_count() < MAX_CONNECTIONS or self._make_room(
            f"{MAX_CONNECTIONS} framed connections are open"
        )
        with self._lock:
            is_late = self._stopping.is_set()
            if is_room and not is_late:
                self._threads[thread] = connection
        if is_room and not is_late:
            thread.start()
            return
        if not is_late:
            self._lines.tell("a framed connection is refused: calls are open on all %d", MAX_CONNECTIONS)
        connection.say_closing()
        connection.end()

    def _staying_count(self) -> int:
        """Return the number of connections that are not closed for another one."""
        with self._lock:
            return sum(not one.is_leaving for one in self._threads.values())

    def _make_room(self, reason: str) -> bool:
        """Close the connection that has been silent for longest, first among those on which nobody has
        called; return False if there is none, or a call is open on each. Only the thread that accepts calls
        this. `reason`: for the log.
        """
        with self._lock:
            silent = [
                (thread, one) for thread, one in self._threads.items() if not (one.busy or one.is_leaving)
            ]
            if not silent:
                return False
            thread, found = min(silent, key=lambda item: (item[1].has_called, item[1].spoke_s))
            found.is_leaving = True
        self._lines.tell("%s: the longest silent framed connection is closed", reason)
        found.say_closing()
        # Its thread ends as it reads the end of the connection.
        thread.join(ROOM_AGAIN_S)
        return True

    def _serve(self, connection: FramedConnection) -> None:
        try:
            while (request := connection.next_call()) is not None:
                if not self._take_up(connection):
                    connection.say_closing()
                    return
                connection.answer(self._calls, request)
                if not self._lay_down(connection):
                    connection.say_closing()
                    return
        except (OSError, FrameError) as err:
            LOG.warning("a framed connection ends: %s", err)
        finally:
            connection.end()
            with self._lock:
                del self._threads[threading.current_thread()]

    def _take_up(self, connection: FramedConnection) -> bool:
        """Mark the connection as busy; return False if it is being closed and the call must not run."""
        with self._lock:
            connection.begin()
            connection.busy = connection.has_called = not (self._stopping.is_set() or connection.is_leaving)
            return connection.busy

    def _lay_down(self, connection: FramedConnection) -> bool:
        """Mark the connection as idle; return False if the server stops."""
        with self._lock:
            connection.busy = False
            connection.spoke_s = monotonic_s()
            return not self._stopping.is_set()


class FramedConnection:
    """The server's side of one framed connection, and the context of the call that is open on it.

    idle -next_call-> busy -answer-> idle; any -the host closes, say_closing, cut_off-> closed.
    `FramedServer` writes the fields. `busy`: a call is open. `has_called`: there was a call. `spoke_s`: when
    the connection began or the last call ended, in monotonic seconds. `is_leaving`: it is closed for another.
    """

    def __init__(self, sock: socket.socket, limit_bytes: int, stalled_s: int = STALLED_S) -> None:
        """`limit_bytes`: the longest request."""
        self.busy = self.has_called = self.is_leaving = False
        self.spoke_s = monotonic_s()
        self._sock = sock
        self._incoming = Incoming(limit_bytes)
        self._stalled_s = stalled_s
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._watcher: threading.Thread | None = None
        # A timeout of the socket: with Python's, each read would need another system call.
        patience = _TIMEVAL.pack(stalled_s, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)

    def next_call(self) -> Frame | None:
        """Return the next request; None if the host has closed. Raises OSError, FrameError."""
        while True:
            try:
                data = self._sock.recv(CHUNK_BYTES)
            except BlockingIOError as err:
                if self._incoming.has_begun:
                    raise FrameError(f"the rest of a frame did not come within {self._stalled_s} s") from err
                continue  # the time between two calls is not limited
            request = next_request(self._incoming, data)
            if request is not None or not data:
                return request

    def answer(self, calls: Mapping[int, Answer], request: Frame) -> None:
        """Pass a request to its handler and send the answer or the failure. Raises OSError."""
        reply = reply_to(calls, request, self)
        # A host that has closed does not wait for the answer any more.
        with contextlib.suppress(BrokenPipeError):
            self._sock.sendall(reply)

    def say_closing(self) -> None:
        """Send CLOSING and close, while no call is open."""
        with contextlib.suppress(OSError):
            self._sock.send(CLOSING_FRAME, socket.MSG_DONTWAIT)
        self.cut_off()

    def cut_off(self) -> None:
        """Close the connection, also while a call is open."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Close the connection, and release the socket and its watching thread."""
        self.cut_off()
        if self._watcher is not None:
            self._watcher.join()
        self._sock.close()

    # --- the context of the open call, as a servicer uses gRPC's -----------------------------------------

    def begin(self) -> None:
        """Drop the callbacks of the previous call."""
        if self._callbacks:
            with self._lock:
                self._callbacks.clear()

    def is_active(self) -> bool:
        """Return True while the host waits for the answer."""
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call `callback` when the host closes while this call is open; return False if it has closed."""
        if self._watcher is None:
            # Only calls of async methods need the second thread.
            self._watcher = threading.Thread(target=self._watch, name="berth-framed-watch", daemon=True)
            self._watcher.start()
        with self._lock:
            self._callbacks.append(callback)
        return self.is_active()

    abort = staticmethod(aborted)

    def _watch(self) -> None:
        """Wait until the host closes or `end` is called, then run the callbacks; the body of a thread."""
        poll = select.poll()
        poll.register(self._sock, _HUNG_UP)
        poll.poll()
        with self._lock:
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()
