"""`Network`: simulated links between hosts and the processes of served plugins, on the virtual loop.

It stands where gRPC's core and the sockets are: the host's stubs, its framed carrier, the SDK's servicers and
its reader of frames are the real ones, and every message is encoded and decoded. What arrives on one
connection keeps its order; what two connections carry overtakes each other. A link delays, loses connections
in the middle of a message, and refuses new ones. It never carries a message twice.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterable, Callable, Collection, Iterator, Mapping, Sequence
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar

import grpc
from berth_host.attach.configured_places import Place
from berth_host.attach.dialing import Identity
from berth_host.attach.peer import DialError, Peer
from berth_host.rpc.served.answer_wait import AnswerWait, Stream, WaitShare
from berth_host.rpc.served.busy_poll import BusyPoll
from berth_host.rpc.served.frames import FramedConnections
from berth_host.rpc.served.grpc_errors import rpc_error
from berth_sdk.serve.framed_requests import aborted, next_request
from berth_sdk.wire.frames import CHUNK_BYTES, CLOSING_FRAME, Frame, FrameError, Incoming

from berth_bench.life.processes import Process as Host
from berth_bench.life.processes import current
from berth_bench.life.virtual_loop import VirtualLoop

T = TypeVar("T")
_SERVER_BYTES: Final = 64 * 1024 * 1024
_PARTIAL: Final = 0.05
"""The share of sends and arrivals that take only a part of the bytes."""
_STATE = grpc.ChannelConnectivity


class Delays:
    """The delays of all links, drawn up to `longest_s` seconds."""

    def __init__(self, chance: random.Random, longest_s: float) -> None:
        self.chance = chance
        self.longest_s = longest_s

    def drawn_s(self) -> float:
        """Return the seconds until one message arrives."""
        return self.chance.uniform(0.0, self.longest_s)


class Pipe(Generic[T]):
    """One direction of a connection: what is sent arrives in order, each after a drawn delay.

    It waits while the process is paused that `context` belongs to.
    """

    def __init__(
        self, loop: VirtualLoop, delays: Delays, arrived: Callable[[T], None], context: Context
    ) -> None:
        """`arrived`: called with each item, in `context`."""
        self._loop = loop
        self._delays = delays
        self._arrived = arrived
        self._context = context
        self._under_way: deque[T] = deque()
        self._timers: deque[asyncio.TimerHandle] = deque()
        self._last_s = 0.0

    def send(self, item: T) -> None:
        """Let `item` arrive after all that was sent before."""
        self._last_s = max(self._last_s, self._loop.time() + self._delays.drawn_s())
        self._under_way.append(item)
        self._timers.append(self._loop.call_at(self._last_s, self._arrive, context=self._context))

    def _arrive(self) -> None:
        self._timers.popleft()
        self._arrived(self._under_way.popleft())

    def cut(self) -> list[T]:
        """Let nothing arrive any more; return what was under way."""
        for timer in self._timers:
            timer.cancel()
        lost = list(self._under_way)
        self._timers.clear()
        self._under_way.clear()
        return lost


class ServerCall:
    """A unary call as the process sees it, and its context.

    `raw`: the messages of the request, serialised. `is_whole` False: the stream of messages broke off.
    """

    def __init__(
        self,
        path: str,
        raw: Sequence[bytes],
        metadata: Sequence[tuple[str, str]],
        answered: Callable[[ServerCall, bytes | grpc.aio.AioRpcError], None],
    ) -> None:
        self.path = path
        self.raw = raw
        self.is_whole = True
        self._metadata = metadata
        self._answered = answered
        self._is_over = False
        self._callbacks: list[Callable[[], None]] = []

    def answer(self, what: bytes | grpc.aio.AioRpcError) -> None:
        """Send the answer or the error, unless nobody waits."""
        if not self._is_over:
            self._answered(self, what)

    def end(self) -> None:
        """Record that nobody waits for the answer any more."""
        self._is_over = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    # --- the context, as a servicer uses gRPC's ----------------------------------------------------------

    def is_active(self) -> bool:
        """Return True while the host waits for the answer."""
        return not self._is_over

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call `callback` when the call ends; return False if it has ended."""
        self._callbacks.append(callback)
        return not self._is_over

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        """Return the call's metadata."""
        return self._metadata

    abort = staticmethod(aborted)


class Process(Protocol):
    """A process that serves plugins."""

    def take(self, call: ServerCall) -> None:
        """Take a unary call, and answer it at some time."""
        ...

    def take_frame(self, request: Frame, stream: FramedEnd) -> None:
        """Take a call in a frame, and answer it at some time."""
        ...


class Link:
    """The place where processes listen, one after the other.

    `process`: the one that listens; None: connections are refused. `is_down` True: they are refused
    although it listens. `context`: that of the life, in which the processes work.
    """

    def __init__(self, loop: VirtualLoop, delays: Delays, context: Context) -> None:
        self.loop = loop
        self.delays = delays
        self.context = context
        self.process: Process | None = None
        self.is_down = False
        self._number = 0
        self._wires: list[_Wire] = []
        self._streams: list[SimulatedStream] = []

    @property
    def accepts(self) -> Process | None:
        """The process that a new connection reaches; None: it is refused."""
        return None if self.is_down else self.process

    @property
    def identity(self) -> Identity | None:
        """A value that differs between the sockets of two processes."""
        return None if self.process is None else (1, self._number, self._number)

    def listen(self, process: Process) -> None:
        """Let new connections reach `process`."""
        self.process = process
        self._number += 1

    def lose(self, host: Host | None = None) -> None:
        """Lose all connections, with what is under way. `host`: only those of this process."""
        for wire in [one for one in self._wires if host in (None, one.host)]:
            self._wires.remove(wire)
            wire.lose("Connection reset by peer")
        for stream in [one for one in self._streams if host in (None, one.host)]:
            self._streams.remove(stream)
            stream.lose()

    def opened(self, connection: _Wire | SimulatedStream) -> None:
        """Record a new connection."""
        if isinstance(connection, _Wire):
            self._wires.append(connection)
        else:
            self._streams.append(connection)

    def closed(self, connection: _Wire | SimulatedStream) -> None:
        """Forget a connection that was closed."""
        known: list[Any] = self._wires if isinstance(connection, _Wire) else self._streams
        if connection in known:
            known.remove(connection)


class Network:
    """The links of a life, by machine and endpoint; see `berth_host.attach.dialing.Network`.

    A host reaches the processes of its own machine. `is_shared` True: all hosts reach the same ones, as on
    one machine.
    """

    def __init__(self, loop: VirtualLoop, delays: Delays, *, is_shared: bool = True) -> None:
        self._loop = loop
        self._delays = delays
        self._is_shared = is_shared
        self._context = copy_context()
        self._links: dict[tuple[str, str], Link] = {}
        self._shares: dict[str, WaitShare] = {}
        loop.at_kill.append(self.lose)

    def link(self, endpoint: str, machine: str = "") -> Link:
        """Return the link of an endpoint. `machine`: "" for the only one."""
        found = self._links.get((machine, endpoint))
        if found is None:
            found = Link(self._loop, self._delays, self._context)
            self._links[machine, endpoint] = found
        return found

    def lose(self, host: Host) -> None:
        """Lose the connections of a host that was killed."""
        for link in self._links.values():
            link.lose(host)

    def _seen(self, endpoint: str) -> Link:
        """Return the link of an endpoint on the machine of the host that asks."""
        host = current()
        return self.link(endpoint, "" if self._is_shared or host is None else host.machine)

    def dial(self, endpoint: str, place: Place) -> grpc.aio.Channel:
        """Return a channel. See the host's Network."""
        return SimulatedChannel(self._seen(endpoint))

    async def peer_at(self, endpoint: str, place: Place) -> Peer:
        """Return the peer at an endpoint. See the host's Network."""
        if self._seen(endpoint).accepts is None:
            raise DialError(f"{endpoint}: Connection refused")
        return Peer()

    def frames_at(self, endpoint: str, limit_bytes: int, allowed_uids: Collection[int]) -> FramedConnections:
        """Return the framed carrier. See the host's Network."""
        listener = _FramedPlace(Path(endpoint), self._seen(endpoint))
        host = current()
        share = self._shares.setdefault("" if host is None else host.name, WaitShare())

        def wait() -> AnswerWait:
            return AnswerWait(share, _has_bytes)

        # With one CPU the carrier never polls, and a poll would wait for time that stands still.
        return FramedConnections(listener, limit_bytes, poll=BusyPoll(1), wait=wait)

    def identity_of(self, endpoint: str) -> Identity | None:
        """Return a value that differs between two processes at an endpoint."""
        return self._seen(endpoint).identity


def _has_bytes(stream: Stream, within_s: float) -> bool:
    """Return True if the stream can be read now: no time passes during a wait without a turn of the loop."""
    return isinstance(stream, SimulatedStream) and stream.is_readable


# --- unary calls --------------------------------------------------------------------------------------


class _Wire:
    """One connection of a channel to a process. `host`: the process that opened it."""

    def __init__(self, link: Link, process: Process, lost: Callable[[], None]) -> None:
        self.host = current()
        self._link = link
        self._process = process
        self._lost = lost
        loop, delays = link.loop, link.delays
        self._requests: Pipe[ServerCall] = Pipe(loop, delays, process.take, link.context)
        self._answers: Pipe[tuple[ServerCall, Any]] = Pipe(loop, delays, self._arrived, copy_context())
        self._waiting: dict[ServerCall, asyncio.Future[bytes]] = {}
        link.opened(self)

    def send(
        self, path: str, raw: Sequence[bytes], metadata: Sequence[tuple[str, str]]
    ) -> tuple[ServerCall, asyncio.Future[bytes]]:
        """Send a call; return it with its answer."""
        call = ServerCall(path, raw, metadata, lambda answered, what: self._answers.send((answered, what)))
        answer: asyncio.Future[bytes] = self._link.loop.create_future()
        self._waiting[call] = answer
        self._requests.send(call)
        return call, answer

    def forget(self, call: ServerCall) -> None:
        """Record that nobody waits for the call any more."""
        self._waiting.pop(call, None)
        call.end()

    def _arrived(self, answered: tuple[ServerCall, Any]) -> None:
        call, what = answered
        answer = self._waiting.pop(call, None)
        if answer is None or answer.done():
            return
        if isinstance(what, grpc.aio.AioRpcError):
            answer.set_exception(what)
        else:
            answer.set_result(what)

    def lose(self, why: str, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> None:
        """Lose the connection: every open call ends, and nothing that is under way arrives."""
        for call in self._requests.cut():
            # Of a stream of messages the first ones may have arrived.
            if len(call.raw) > 1:
                call.raw = call.raw[: self._link.delays.chance.randint(0, len(call.raw) - 1)]
                call.is_whole = False
                self._process.take(call)
        self._answers.cut()
        waiting, self._waiting = self._waiting, {}
        for call, answer in waiting.items():
            call.end()
            if not answer.done():
                answer.set_exception(rpc_error(code, why))
        self._link.closed(self)
        self._lost()


class SimulatedChannel(grpc.aio.Channel):
    """A channel over a link: it connects at its first call, and again after a loss."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._wire: _Wire | None = None
        self._state = _STATE.IDLE
        self._changed: list[asyncio.Future[None]] = []

    def unary_unary(  # type: ignore[override]  # stubs take any callable
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,
    ) -> Callable[..., Any]:
        """Return a call with one request."""

        async def call(request: Any, **options: Any) -> Any:
            raw = request if request_serializer is None else request_serializer(request)
            return _read(response_deserializer, await self._ask(method, [raw], options))

        return call

    def stream_unary(  # type: ignore[override]
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,
    ) -> Callable[..., Any]:
        """Return a call with a stream of requests, which are sent when the last one is there."""

        async def call(requests: AsyncIterable[Any], **options: Any) -> Any:
            serialised = request_serializer or bytes
            raw = [serialised(request) async for request in requests]
            return _read(response_deserializer, await self._ask(method, raw, options))

        return call

    def unary_stream(self, *_: Any, **__: Any) -> NoReturn:
        """Raise NotImplementedError: the contract has no such call."""
        raise NotImplementedError

    stream_stream = unary_stream

    async def _ask(self, method: str, raw: list[bytes], options: Mapping[str, Any]) -> bytes:
        if self._state is _STATE.SHUTDOWN:
            raise rpc_error(grpc.StatusCode.CANCELLED, "the channel is closed")
        wire = self._connected()
        metadata = tuple((key, value) for key, value in options.get("metadata") or ())
        call, answer = wire.send(method, raw, metadata)
        try:
            async with asyncio.timeout(options.get("timeout")):
                return await answer
        except TimeoutError as err:
            raise rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from err
        finally:
            wire.forget(call)

    def _connected(self) -> _Wire:
        if self._wire is None:
            process = self._link.accepts
            if process is None:
                self._enter(_STATE.TRANSIENT_FAILURE)
                raise rpc_error(grpc.StatusCode.UNAVAILABLE, "failed to connect: Connection refused")
            self._wire = _Wire(self._link, process, self._lost)
            self._enter(_STATE.READY)
        return self._wire

    def _lost(self) -> None:
        self._wire = None
        if self._state is not _STATE.SHUTDOWN:
            self._enter(_STATE.IDLE)

    def _enter(self, state: grpc.ChannelConnectivity) -> None:
        if state is self._state:
            return
        self._state = state
        changed, self._changed = self._changed, []
        for future in changed:
            if not future.done():
                future.set_result(None)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the state of the connection."""
        return self._state

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the state is another one."""
        while self._state is last_observed_state:
            future: asyncio.Future[None] = self._link.loop.create_future()
            self._changed.append(future)
            await future

    async def channel_ready(self) -> None:
        """Wait until there is a connection."""
        while self._state is not _STATE.READY:
            await self.wait_for_state_change(self._state)

    async def close(self, grace: float | None = None) -> None:
        """Close the connection, and end the open calls."""
        self._enter(_STATE.SHUTDOWN)
        if self._wire is not None:
            self._wire.lose("Channel closed!", grpc.StatusCode.CANCELLED)

    async def __aenter__(self) -> SimulatedChannel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _read(deserialise: Callable[[bytes], Any] | None, raw: bytes) -> Any:
    """Return the answer; None for bytes that are none, as gRPC does."""
    if deserialise is None:
        return raw
    try:
        return deserialise(raw)
    except Exception:  # noqa: BLE001  # as gRPC, which logs it
        return None


# --- frames -------------------------------------------------------------------------------------------


class _FramedPlace:
    """The place where the process of a link listens for frames."""

    def __init__(self, path: Path, link: Link) -> None:
        self.path = path
        self._link = link
        self._process = link.process

    def connect(self) -> SimulatedStream:
        """Return a new connection. Raises OSError; PermissionError if another process listens by now."""
        if self._link.process is not self._process:
            raise PermissionError("another process has put its socket there")
        process = self._link.accepts
        if process is None:
            raise ConnectionRefusedError("Connection refused")
        return SimulatedStream(self._link, process)


class SimulatedStream:
    """The host's end of a framed connection; a `VirtualFile` and a `Stream`. `host`: the process that opened
    it.
    """

    def __init__(self, link: Link, process: Process) -> None:
        self.host = current()
        self._link = link
        self._there = bytearray()
        self._has_ended = self._is_reset = self._is_closed = False
        self._chance = link.delays.chance
        self._server = FramedEnd(process, self)
        self._up: Pipe[bytes] = Pipe(link.loop, link.delays, self._server.arrived, link.context)
        self._down: Pipe[bytes] = Pipe(link.loop, link.delays, self._arrived, copy_context())
        self._number = link.loop.open_file(self)
        link.opened(self)

    @property
    def is_readable(self) -> bool:
        """True if a read returns at once."""
        return bool(self._there) or self._has_ended or self._is_reset

    @property
    def is_writable(self) -> bool:
        """True: there is always some room."""
        return True

    def fileno(self) -> int:
        """Return the number that the loop knows."""
        return self._number

    def send(self, data: memoryview, /) -> int:
        """Send the bytes, or some of them. Raises BrokenPipeError after the end."""
        if self._has_ended or self._is_reset:
            raise BrokenPipeError("Broken pipe")
        taken = bytes(data)
        if self._chance.random() < _PARTIAL:
            taken = taken[: self._chance.randint(1, len(taken))]
        for piece in self._pieces(taken):
            self._up.send(piece)
        return len(taken)

    def recv(self, most_bytes: int, /) -> bytes:
        """Return what is there. Raises BlockingIOError and ConnectionResetError."""
        if self._there:
            data = bytes(self._there[: min(most_bytes, CHUNK_BYTES)])
            del self._there[: len(data)]
            return data
        if self._is_reset:
            raise ConnectionResetError("Connection reset by peer")
        if self._has_ended:
            return b""
        raise BlockingIOError

    def close(self) -> None:
        """Close the connection: the process reads the end after all that was sent."""
        self._link.loop.close_file(self._number)
        self._is_closed = True
        self._down.cut()
        self._up.send(b"")

    def lose(self) -> None:
        """Lose the connection: of what is under way, a drawn part arrives."""
        for pipe, arrived in ((self._up, self._server.arrived), (self._down, self._arrived)):
            lost = b"".join(pipe.cut())
            if lost and (part := lost[: self._chance.randint(0, len(lost) - 1)]):
                arrived(part)
        self._is_reset = True
        self._server.arrived(b"")
        if self.host is not None and self.host.is_dead:
            self._link.loop.close_file(self._number)
        elif not self._is_closed:
            self._link.loop.file_changed(self._number)

    def answer(self, data: bytes) -> None:
        """Carry bytes of the process to the host; none: the process has closed the connection."""
        if self._is_closed or self._is_reset:
            return
        for piece in self._pieces(data) if data else (b"",):
            self._down.send(piece)

    def forget(self) -> None:
        """Record that the process has closed its end, too."""
        self._link.closed(self)

    def _arrived(self, data: bytes) -> None:
        if data:
            self._there += data
        else:
            self._has_ended = True
        self._link.loop.file_changed(self._number)

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        if len(data) > 1 and self._chance.random() < _PARTIAL:
            at = self._chance.randint(1, len(data) - 1)
            yield data[:at]
            data = data[at:]
        yield data


class FramedEnd:
    """The process's end of a framed connection, and the context of the call that is open on it."""

    def __init__(self, process: Process, stream: SimulatedStream) -> None:
        self._process = process
        self._stream = stream
        self._incoming = Incoming(_SERVER_BYTES)
        self._is_open = True
        self._callbacks: list[Callable[[], None]] = []

    def arrived(self, data: bytes) -> None:
        """Take bytes of the host; none: the host has closed the connection."""
        if not self._is_open:
            return
        try:
            request = next_request(self._incoming, data)
        except FrameError:
            self.close()
            return
        if request is not None:
            self._process.take_frame(request, self)
        elif not data:
            self.close()
            self._stream.forget()

    def answer(self, reply: bytes) -> None:
        """Send the frame of an answer, unless the connection has ended."""
        if self._is_open:
            self._stream.answer(reply)

    def say_closing(self) -> None:
        """Send CLOSING in place of an answer, and close."""
        self.answer(CLOSING_FRAME)
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._is_open:
            self._stream.answer(b"")
        self._is_open = False
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    # --- the context ------------------------------------------------------------------------------------

    def is_active(self) -> bool:
        """Return True while the host waits for the answer."""
        return self._is_open

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call `callback` when the host closes; return False if it has."""
        self._callbacks.append(callback)
        return self._is_open

    abort = staticmethod(aborted)
