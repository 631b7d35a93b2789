"""`MemoryNetwork`: connections between the processes of a life, in memory, as a `virtual_loop.Network`.

A connection is a pair of transports. Bytes arrive in their order, late by a drawn time, and in pieces that
are drawn; connections overtake each other. A connection can be reset, of which both sides hear. A process
hears nothing while it is paused, and the bytes for it wait.
"""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, Final

from berth_bench.life.processes import Process, current

_HIGH_WATER: Final = 2**16
"""Bytes on their way from which on the sender is asked to wait."""
_LOW_WATER: Final = 2**14
_PART: Final = 2**16
"""The most bytes that arrive at once."""

Address = tuple[str, int]
Factory = Callable[[], asyncio.BaseProtocol]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """How late bytes are. `delay_s`: the most seconds. `pieces`: the share of parts that arrive in two
    pieces (0..1).
    """

    delay_s: float = 0.0
    pieces: float = 0.0


class MemoryNetwork:
    """The network. `lateness`: of each part from now on. `is_down`: no new connection is opened.

    `connections`: the open ones, the oldest first, as the servers' sides.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: random.Random, lateness: Lateness) -> None:
        self.lateness = lateness
        self.is_down = False
        self.connections: dict[Transport, None] = {}
        self._loop = loop
        self._chance = chance
        self._servers: dict[Address, tuple[Factory, Context]] = {}

    def listen(self, address: Address, factory: Factory) -> None:
        """Let a server take the connections to an address, in the current context."""
        self._servers[address] = factory, copy_context()

    def close(self, address: Address) -> None:
        """Refuse new connections to an address."""
        del self._servers[address]

    async def connect(
        self, protocol_factory: Factory, address: Address, sock: socket.socket
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Open a connection. Raises ConnectionRefusedError."""
        await asyncio.sleep(self.drawn_s())
        server = self._servers.get(address)
        process = current()
        if server is None or self.is_down or (process is not None and process.is_dead):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there")
        factory, context = server
        ours = Transport(self, self._loop, copy_context(), process, sock)
        theirs = Transport(self, self._loop, context.copy(), process, None)
        ours.peer, theirs.peer = theirs, ours
        self.connections[theirs] = None
        made = context.run(factory)
        theirs.set_protocol(made)
        theirs.context.run(made.connection_made, theirs)
        protocol = protocol_factory()
        ours.set_protocol(protocol)
        protocol.connection_made(ours)
        return ours, protocol

    def cut(self, connection: Transport) -> None:
        """Reset a connection: both sides hear of it, and bytes under way are lost."""
        assert connection.peer is not None
        for side in (connection, connection.peer):
            side.lose(ConnectionResetError(errno.ECONNRESET, "the connection was reset"))

    def lose(self, process: Process) -> None:
        """End the connections of a process that was killed: the servers hear of it."""
        for connection in [one for one in self.connections if one.process is process]:
            self.cut(connection)

    def drawn_s(self) -> float:
        """Draw how late the next part is."""
        delay_s = self.lateness.delay_s
        return self._chance.uniform(0.0, delay_s) if delay_s else 0.0

    def drawn_cut(self, size: int) -> int:
        """Draw the bytes of a part that come first, of all its bytes."""
        pieces = self.lateness.pieces
        if size > 1 and pieces and self._chance.random() < pieces:
            return 1 + int((size - 1) * self._chance.random())
        return size


class Transport(asyncio.Transport):
    """One side of a connection.

    `peer`: the other side. `process`: the client's. `context`: of the callbacks of this side. `sent_s`: the
    loop's time at which the last bytes that arrived here were sent.
    """

    def __init__(
        self,
        network: MemoryNetwork,
        loop: asyncio.AbstractEventLoop,
        context: Context,
        process: Process | None,
        sock: socket.socket | None,
    ) -> None:
        super().__init__({"socket": sock, "peername": (process.name if process else "life", 0)})
        self.peer: Transport | None = None
        self.process = process
        self.context = context
        self.sent_s = 0.0
        self._network = network
        self._loop = loop
        self._sock = sock
        self._protocol: Any = None
        self._arriving: deque[tuple[float, float, bytes | None]] = deque()
        """When it arrives, when it was sent, and the bytes; None: the other side has closed."""
        self._arriving_bytes = 0
        self._timer: asyncio.Handle | None = None
        self._reads = True
        self._is_closing = False
        self._is_lost = False
        self._asked_to_wait = False

    # --- this side sends -------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        """Send bytes."""
        if self._is_closing or not data:
            return
        assert self.peer is not None
        self.peer.arrive(bytes(data))
        if self.peer._arriving_bytes > _HIGH_WATER and not self._asked_to_wait:
            self._asked_to_wait = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        """Send several pieces at once."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """Return False: a side closes the whole connection."""
        return False

    def get_write_buffer_size(self) -> int:
        """Return the bytes on their way."""
        return self.peer._arriving_bytes if self.peer is not None else 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: all connections have the same limits."""

    def close(self) -> None:
        """Close after the bytes that are under way."""
        if not self._is_closing:
            self._is_closing = True
            assert self.peer is not None
            self.peer.arrive(None)
            self.lose(None)

    def abort(self) -> None:
        """Reset the connection."""
        if not self._is_lost:
            self._is_closing = True
            assert self.peer is not None
            self.lose(None)
            self.peer.lose(ConnectionResetError(errno.ECONNRESET, "the other side reset it"))

    def is_closing(self) -> bool:
        """Return True once this side is closed."""
        return self._is_closing

    # --- this side receives ------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another protocol receive."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that receives."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def pause_reading(self) -> None:
        """Keep what arrives."""
        self._reads = False

    def resume_reading(self) -> None:
        """Hand over what arrived."""
        self._reads = True
        self._plan()

    def is_reading(self) -> bool:
        """Return True while this side reads."""
        return self._reads and not self._is_closing

    def arrive(self, data: bytes | None) -> None:
        """Take bytes of the other side, or its end."""
        if self._is_lost:
            return
        now_s = self._loop.time()
        due_s = now_s + self._network.drawn_s()
        if self._arriving:
            due_s = max(due_s, self._arriving[-1][0])
        first = 0 if data is None else self._network.drawn_cut(len(data))
        if data is None or first == len(data):
            self._arriving.append((due_s, now_s, data))
        else:
            self._arriving.append((due_s, now_s, data[:first]))
            self._arriving.append((due_s + self._network.drawn_s(), now_s, data[first:]))
        self._arriving_bytes += 0 if data is None else len(data)
        self._plan()

    def lose(self, error: Exception | None) -> None:
        """End this side: nothing arrives any more."""
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._arriving.clear()
        self._arriving_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
        if self._sock is not None:
            self._sock.close()
        self._network.connections.pop(self, None)
        self._loop.call_soon(self._protocol.connection_lost, error, context=self.context)

    def _plan(self) -> None:
        if self._timer is not None or not self._arriving or not self._reads or self._is_lost:
            return
        due_s = self._arriving[0][0]
        if due_s <= self._loop.time():
            self._timer = self._loop.call_soon(self._hand_over, context=self.context)
        else:
            self._timer = self._loop.call_at(due_s, self._hand_over, context=self.context)

    def _hand_over(self) -> None:
        """Hand over what is due, as one part."""
        self._timer = None
        if not self._reads or self._is_lost:
            return
        now_s = self._loop.time()
        parts: list[bytes] = []
        size, is_over = 0, False
        while self._arriving and self._arriving[0][0] <= now_s and size < _PART:
            _, self.sent_s, data = self._arriving.popleft()
            if data is None:
                is_over = True
                break
            parts.append(data)
            size += len(data)
        self._arriving_bytes -= size
        self._relieve()
        if parts:
            self._protocol.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        if is_over and not self._is_lost:
            self._protocol.eof_received()
            self.lose(None)
        self._plan()

    def _relieve(self) -> None:
        """Let the other side write again."""
        peer = self.peer
        assert peer is not None
        if peer._asked_to_wait and self._arriving_bytes <= _LOW_WATER and not peer._is_lost:
            peer._asked_to_wait = False
            self._loop.call_soon(peer._protocol.resume_writing, context=peer.context)
