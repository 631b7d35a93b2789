"""Calls of the scheduling cycle in frames on a Unix socket, beside the gRPC server: `FramedServer`.

Each connection has a thread, which puts one call after the other to `SchedulingService`'s own handlers, as
`stream_servicer` does. Called by `server`. Source: docs/reference/framed-transport.md.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from berth_sdk.serve.calls import LOG
from berth_sdk.serve.carriers import Answer, Carriers
from berth_sdk.serve.framed_connection import FramedConnection
from berth_sdk.serve.socket_file import identity_of, unlink
from berth_sdk.wire.frames import FrameError

MAX_CONNECTIONS: Final = 256
_BACKLOG: Final = 64
_WANT_OF_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
ROOM_AGAIN_S: Final = 0.2


class FramedServer:
    """made -listen-> serving -stop-> stopped"""

    def __init__(self, calls: Mapping[int, Answer], limit_bytes: int) -> None:
        """`calls`: by number (`wire.stream.NUMBERS`). `limit_bytes`: the longest request."""
        self._calls = calls
        self._limit_bytes = limit_bytes
        self.open = Carriers()
        self._lock = threading.Lock()
        self._threads: dict[threading.Thread, FramedConnection] = {}
        self._listening: socket.socket | None = None
        self._path = Path()
        self._file: tuple[int, int] | None = None
        self._stopping = threading.Event()

    def listen(self, path: Path) -> bool:
        """Serve there, under the process's umask. False: nothing can listen there, which leaves everything
        to gRPC.
        """
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            unlink(path)  # of a process that did not end well; gRPC's own socket was free
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
        """Take no more connections, and end the open ones: idle ones now, the others with their answer."""
        self._stopping.set()
        if self._listening is None:
            return
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        if self._file == identity_of(self._path):  # a successor may have its own there by now
            unlink(self._path)
        self.open.stop()

    def wait(self, timeout_s: float) -> None:
        """Wait until the connections have ended; those still open after this time are cut off."""
        with self._lock:
            threads = dict(self._threads)
        ends_s = time.monotonic() + timeout_s
        for thread, connection in threads.items():
            thread.join(max(ends_s - time.monotonic(), 0.0))
            if thread.is_alive():
                connection.cut_off()

    @property
    def connection_count(self) -> int:
        """Connections that a thread serves."""
        return len(self._threads)

    def accept(self, listening: socket.socket) -> None:
        """Take connections until the server stops; the body of a thread."""
        with listening:
            while not self._stopping.is_set():
                try:
                    sock, _ = listening.accept()
                except OSError as err:
                    if err.errno in _WANT_OF_ROOM:
                        self._stopping.wait(ROOM_AGAIN_S)
                    elif not isinstance(err, ConnectionError):
                        return
                    continue
                self._begin(FramedConnection(sock, self._limit_bytes))

    def _begin(self, connection: FramedConnection) -> None:
        thread = threading.Thread(target=self._serve, args=(connection,), name="berth-framed", daemon=True)
        with self._lock:
            is_room = len(self._threads) < MAX_CONNECTIONS
            if is_room:
                self._threads[thread] = connection
        if is_room:
            thread.start()
        else:
            LOG.warning("a framed connection is refused: %d are open", MAX_CONNECTIONS)
            connection.cancel()
            connection.end()

    def _serve(self, connection: FramedConnection) -> None:
        self.open.add(connection)
        try:
            while (payload := connection.next_call()) is not None:
                if not self.open.take_up(connection):
                    connection.cancel()
                    return
                connection.answer(self._calls, payload)
                if not self.open.lay_down(connection):
                    connection.cancel()
                    return
        except (OSError, FrameError) as err:
            LOG.warning("a framed connection ends: %s", err)
        finally:
            self.open.discard(connection)
            connection.end()
            with self._lock:
                del self._threads[threading.current_thread()]
