"""`Listener`: accepts the connections of one socket: first the limits, then what the port does with each.

    accept -> a turn -> Connections.admit -> the first bytes -> a turn -> `serve`: a TLS handshake, or `relay`

A handshake costs the loop that schedules 1 to 8 ms of CPU, and a client next to nothing. So it waits for its
turn, which comes only when the client has sent something.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from berth_sdk.clocks import monotonic_s

from berth_host.listening.connections import UNIX_PEER, Connection, Connections, Phase, peer_of
from berth_host.listening.turn_queue import TurnQueue
from berth_host.log import get_logger
from berth_host.model.token_bucket import TokenBucket

log = get_logger()
TURN_WITHIN_S: Final = 32.0
"""The longest time, in seconds, from the start of a connection to its turn."""
TURNS_PER_S: Final = 25.0
BURST_TURNS: Final = 50.0
"""Handshakes: 4 % of the loop's time with the usual keys, 1.5 ms each."""
LARGE_KEY_TURNS_PER_S: Final = 8.0
"""Handshakes with an RSA key of more than 2048 bits, 8 ms each."""
LOOKED_AT_PER_S: Final = 2000.0
"""New connections that leave the kernel's queue: one peer must not fill it, as no peers take turns there."""
ACCEPTED_PER_S: Final = 200.0
BURST_ACCEPTED: Final = 200.0
"""New connections that get a place. Peers take turns, as for handshakes."""
MOST_IN_A_ROW: Final = 16
"""Connections that are accepted before other work of the loop has its turn."""
BACKLOG: Final = 512
_AGAIN_S: Final = 0.2
_WANT_OF_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listener:
    """made -start-> accepting -stop-> stopped. Connections outlive it; `close_all` ends them.

    `serve`: does what the port is there for, after a connection's turn. It owns the socket from then on, and
    returns once the connection is served by others or has ended.
    """

    def __init__(
        self,
        listening: socket.socket,
        connections: Connections,
        serve: Callable[[Connection, socket.socket], Awaitable[None]],
        *,
        turns_per_s: float = TURNS_PER_S,
        turn_within_s: float = TURN_WITHIN_S,
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        """`turns_per_s`: of handshakes. `turn_within_s`: the most seconds until `serve` begins."""
        self._listening = listening
        self._connections = connections
        self._serve = serve
        self._turns = TurnQueue(turns_per_s, min(BURST_TURNS, 2 * turns_per_s), clock)
        self._looked_at = TokenBucket(LOOKED_AT_PER_S, LOOKED_AT_PER_S, clock)
        self._places = TurnQueue(ACCEPTED_PER_S, BURST_ACCEPTED, clock)
        self._entering: Counter[str] = Counter()
        self._entering_tasks: set[asyncio.Task[None]] = set()
        """The tasks of connections that wait for a place. `_entering` has their number by peer."""
        self._turn_within_s = turn_within_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._is_running = False

    def start(self) -> None:
        """Accept connections on the running loop."""
        self._listening.setblocking(False)
        self._listening.listen(BACKLOG)
        self._is_running = True
        self._resume()

    def stop(self) -> None:
        """Accept no more connections; the socket stays open. Has no effect without `start`."""
        if not self._is_running:
            return
        self._is_running = False
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        else:
            asyncio.get_running_loop().remove_reader(self._listening.fileno())

    async def close_all(self) -> None:
        """Close the connections that `serve` has not handed on, and wait for their ends."""
        for connection in self._connections.all():
            connection.close()
        for task in self._entering_tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _resume(self) -> None:
        self._pause = None
        asyncio.get_running_loop().add_reader(self._listening.fileno(), self._accept)

    def _pause_for(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listening.fileno())
        self._pause = loop.call_later(seconds, self._resume)

    def _accept(self) -> None:
        limits = self._connections.limits
        for _ in range(MOST_IN_A_ROW):
            wait_s = _AGAIN_S if self._places.waiting_count >= limits.in_all else self._looked_at.take()
            if wait_s > 0:
                self._pause_for(wait_s)
                return
            try:
                sock, address = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as err:
                if err.errno not in _WANT_OF_ROOM:
                    continue  # the client has gone
                if not self._connections.make_room():
                    self._connections.note(
                        "refused", UNIX_PEER, f"the process has no room for its socket: {err.strerror}"
                    )
                self._pause_for(_AGAIN_S)
                return
            peer = peer_of(address)
            if self._entering[peer] >= limits.of_peer:
                self._connections.note("refused", peer, "the peer opens connections too fast")
                sock.close()
                continue
            sock.setblocking(False)
            self._begin(sock, peer)

    def _begin(self, sock: socket.socket, peer: str) -> None:
        self._entering[peer] += 1
        task = asyncio.get_running_loop().create_task(self._run(sock, peer))
        self._entering_tasks.add(task)
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, sock, peer))

    def _ended(self, sock: socket.socket, peer: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task in self._entering_tasks:
            # Cancelled before it had a place, maybe before its first step.
            self._entered(task, peer)
            sock.close()

    def _entered(self, task: asyncio.Task[None], peer: str) -> None:
        self._entering_tasks.discard(task)
        self._entering[peer] -= 1
        if not self._entering[peer]:
            del self._entering[peer]

    async def _place(self, peer: str) -> Connection | None:
        """Wait for a turn, and return the connection; None if there is no room."""
        await self._places.take(peer)
        task = asyncio.current_task()
        assert task is not None
        self._entered(task, peer)
        return self._connections.admit(peer, partial(_cancel, task))

    async def _run(self, sock: socket.socket, peer: str) -> None:
        """Wait for a place, the first bytes and a turn, and serve the connection. Never raises."""
        connections = self._connections
        connection: Connection | None = None
        is_served = False
        try:
            async with asyncio.timeout(self._turn_within_s):
                connection = await self._place(peer)
                if connection is None:
                    return
                await _readable(sock)
                connections.spoke(connection, Phase.WAITING)
                if not _has_bytes(sock):
                    return
                await self._turns.take(peer)
            connections.spoke(connection, Phase.HANDSHAKING)
            is_served = True
            await self._serve(connection, sock)
        except TimeoutError:
            connections.count("closed_silent")
        except asyncio.CancelledError:
            pass  # `close` was called
        except Exception as err:
            # A connection that fails must not end the port.
            log.error("task.failed", work=f"connection to {connections.port}", exc_info=err)
        finally:
            if not is_served:
                sock.close()
                if connection is not None:
                    connections.remove(connection)


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


async def _readable(sock: socket.socket) -> None:
    """Wait until the client has sent something, or has closed."""
    loop = asyncio.get_running_loop()
    came: asyncio.Future[None] = loop.create_future()

    def is_readable() -> None:
        if not came.done():
            came.set_result(None)

    number = sock.fileno()
    loop.add_reader(number, is_readable)
    try:
        await came
    finally:
        loop.remove_reader(number)


def _has_bytes(sock: socket.socket) -> bool:
    """Return False if the client has closed without a byte."""
    with suppress(BlockingIOError):
        try:
            return bool(sock.recv(1, socket.MSG_PEEK))
        except ConnectionError:
            return False
    return True
