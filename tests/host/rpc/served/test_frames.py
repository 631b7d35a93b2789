"""A framed connection whose peer answers well, badly or in pieces, or goes away."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from berth_host.rpc.served.busy_poll import BusyPoll
from berth_host.rpc.served.frames import FramedConnection, FramedConnections, FramedSocket
from berth_sdk.wire.frames import CLOSING_FRAME, NUMBERS, Kind, call_frame, failure_frame
from google.protobuf.message import DecodeError
from grpc import StatusCode
from structlog.testing import capture_logs
from support.stream_server import stream_server
from support.waiting import PATIENCE_S, until

FILTER = NUMBERS["Filter"]
LIMIT = 1000
HEADER = struct.Struct(">IBB")
GOOD = call_frame(FILTER, b"yes")
Talk = Callable[["Peer"], Awaitable[None]]


class Peer:
    """One connection, from the other end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def hear(self) -> bytes:
        """Return the next request."""
        length, kind, call = HEADER.unpack(await self.reader.readexactly(HEADER.size))
        assert (kind, call) == (Kind.CALL, FILTER)
        return await self.reader.readexactly(length)

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


class Counted(BusyPoll):
    """Remembers how often the loop was told to stay awake, and how often that it may sleep."""

    begun = ended = 0

    def begin(self) -> None:
        self.begun += 1
        super().begin()

    def end(self) -> None:
        self.ended += 1
        super().end()


class Trial:
    """A connection to a peer that talks as it is told. `opened`: how many times it was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened = self.ended = 0
        self.poll = Counted(2)
        self.connection = FramedConnection(FramedSocket(path), LIMIT, self.poll)

    @asynccontextmanager
    async def peer(self, talk: Talk) -> AsyncIterator[None]:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.opened += 1
            try:
                await talk(Peer(reader, writer))
            finally:
                self.ended += 1

        async with stream_server(connected, self.path):
            yield
        self.path.unlink(missing_ok=True)  # a server of Python 3.13 has removed it

    async def ask(self, raw: bytes = b"", deadline_s: float = PATIENCE_S) -> bytes | None:
        try:
            return await self.connection.ask(FILTER, raw, deadline_s)
        finally:
            assert not self.connection.busy
            assert self.poll.begun == self.poll.ended

    async def failure(self, raw: bytes = b"", deadline_s: float = PATIENCE_S) -> tuple[StatusCode, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.ask(raw, deadline_s)
        return caught.value.code(), caught.value.details() or ""


@pytest.fixture
async def trial(tmp_path: Path) -> AsyncIterator[Trial]:
    trial = Trial(tmp_path / "p.framed")
    yield trial
    trial.connection.close()


async def answering(peer: Peer) -> None:
    """Every request."""
    while True:
        await peer.hear()
        await peer.say(GOOD)


def saying(data: bytes) -> Talk:
    """Return a peer that answers the first request with these bytes, and then reads on."""

    async def talk(peer: Peer) -> None:
        await peer.hear()
        await peer.say(data)
        await peer.reader.read()

    return talk


async def test_many_calls_go_over_one_connection(trial: Trial) -> None:
    async with trial.peer(answering):
        for _ in range(100):
            assert await trial.ask() == b"yes"
    assert trial.opened == 1


async def test_an_answer_may_come_byte_by_byte(trial: Trial) -> None:
    async def talk(peer: Peer) -> None:
        await peer.hear()
        for byte in GOOD:
            await peer.say(bytes([byte]))
            await asyncio.sleep(0.001)  # so that no two bytes are read at once
        await peer.hear()
        await peer.say(GOOD)

    async with trial.peer(talk):
        assert await trial.ask() == b"yes"
        assert await trial.ask() == b"yes"


async def test_a_request_that_does_not_fit_into_the_socket_is_sent_as_it_is_taken(trial: Trial) -> None:
    raw = bytes(range(256)) * 4000
    heard = []

    async def talk(peer: Peer) -> None:
        await asyncio.sleep(0.01)  # the host has to wait for room meanwhile
        for _ in range(2):
            heard.append(await peer.hear())
            await peer.say(GOOD)

    async with trial.peer(talk):
        assert await trial.ask(raw) == b"yes"
        assert await trial.ask(b"short") == b"yes"
    assert heard == [raw, b"short"]


async def test_a_failure_has_its_code_and_text_and_leaves_the_connection(trial: Trial) -> None:
    async def talk(peer: Peer) -> None:
        for code in (StatusCode.FAILED_PRECONDITION.value[0], 99, StatusCode.OK.value[0]):
            await peer.hear()
            await peer.say(failure_frame(FILTER, code, "no dice"))
        await answering(peer)

    async with trial.peer(talk):
        assert await trial.failure() == (StatusCode.FAILED_PRECONDITION, "no dice")
        assert await trial.failure() == (StatusCode.UNKNOWN, "no dice")
        assert await trial.failure() == (StatusCode.UNKNOWN, "no dice")
        assert await trial.ask() == b"yes"
    assert trial.opened == 1


@pytest.mark.parametrize(
    ("said", "text"),
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", "a frame of the kind", id="another protocol"),
        pytest.param(HEADER.pack(3, 77, FILTER), "a frame of the kind 77", id="kind"),
        pytest.param(call_frame(0, b""), f"an answer to call 0 where {FILTER} was asked", id="no call"),
        pytest.param(
            call_frame(NUMBERS["Permit"], b""),
            f"an answer to call {NUMBERS['Permit']} where {FILTER} was asked",
            id="another call",
        ),
        pytest.param(
            failure_frame(NUMBERS["Permit"], 13, "no"),
            f"an answer to call {NUMBERS['Permit']} where {FILTER} was asked",
            id="failure of another call",
        ),
        pytest.param(HEADER.pack(1, Kind.FAILURE, FILTER) + b"x", "a failure without a code", id="no code"),
    ],
)
async def test_bytes_that_are_not_an_answer_are_named_and_end_the_connection(
    trial: Trial, said: bytes, text: str
) -> None:
    async with trial.peer(saying(said)):
        with pytest.raises(DecodeError, match=text):
            await trial.ask()
        await until(lambda: trial.ended == 1)


async def test_a_frame_over_the_limit_is_refused_by_its_header(trial: Trial) -> None:
    async with trial.peer(saying(HEADER.pack(LIMIT + 1, Kind.CALL, FILTER))):
        expected = f"Received message larger than max ({LIMIT + 1} vs. {LIMIT})"
        assert await trial.failure() == (StatusCode.RESOURCE_EXHAUSTED, expected)
        await until(lambda: trial.ended == 1)


@pytest.mark.parametrize("part", [b"", GOOD[:3], GOOD[:-1]], ids=["nothing", "half a header", "a part"])
async def test_a_peer_that_goes_under_a_call_is_unavailable(trial: Trial, part: bytes) -> None:
    async def talk(peer: Peer) -> None:
        await peer.hear()
        await peer.say(part)

    async with trial.peer(talk):
        code, text = await trial.failure()
        assert code is StatusCode.UNAVAILABLE
        assert "closed by the instance" in text
        assert (await trial.failure())[0] is StatusCode.UNAVAILABLE
    assert trial.opened == 2


async def test_a_peer_that_went_between_two_calls_is_dialled_anew(trial: Trial) -> None:
    async def talk(peer: Peer) -> None:
        await peer.hear()
        await peer.say(GOOD)

    async with trial.peer(talk):
        for turn in range(1, 4):
            assert await trial.ask() == b"yes"
            await until(lambda: not trial.connection.is_connected)
            assert trial.opened == turn


async def test_a_closed_connection_that_the_loop_has_not_heard_of_has_executed_nothing(
    trial: Trial,
) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(trial.path))
    listening.listen()
    with listening:
        call = asyncio.ensure_future(trial.ask())
        await asyncio.sleep(0)
        peer, _ = listening.accept()
        peer.sendall(GOOD)
        assert await call == b"yes"
        peer.close()  # in the same turn of the loop as the next call
        assert await trial.ask() is None


async def test_a_server_that_stops_says_that_it_did_not_execute_the_call(trial: Trial) -> None:
    async with trial.peer(saying(CLOSING_FRAME)):
        assert await trial.ask() is None
        await until(lambda: trial.ended == 1)


async def test_an_answer_and_the_end_may_come_together(trial: Trial) -> None:
    async with trial.peer(saying(GOOD + CLOSING_FRAME)):
        for _ in range(3):
            assert await trial.ask() == b"yes"
    assert trial.opened == 3


async def test_an_unexpected_answer_is_not_taken_for_the_next_one(trial: Trial) -> None:
    async with trial.peer(saying(GOOD + call_frame(FILTER, b"stale"))):
        assert await trial.ask() == b"yes"
        assert await trial.ask() == b"yes"
    assert trial.opened == 2


async def test_a_peer_that_goes_in_the_middle_of_a_request_has_executed_nothing(trial: Trial) -> None:
    async def talk(peer: Peer) -> None:
        await peer.reader.readexactly(10)

    async with trial.peer(talk):
        assert await trial.ask(b"x" * 1_000_000) is None


@pytest.mark.parametrize("size", [0, 1_000_000], ids=["unanswered", "not taken"])
async def test_a_deadline_ends_the_connection(trial: Trial, size: int) -> None:
    async def talk(peer: Peer) -> None:
        if size == 0:
            await peer.hear()
        else:
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it reads as well
        await peer.reader.read()

    async with trial.peer(talk):
        assert (await trial.failure(b"x" * size, 0.05))[0] is StatusCode.DEADLINE_EXCEEDED
    assert not trial.connection.is_connected


async def test_a_cancelled_call_ends_the_connection(trial: Trial) -> None:
    async with trial.peer(saying(b"")):
        call = asyncio.ensure_future(trial.ask())
        await until(lambda: trial.opened == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: trial.ended == 1)


async def test_a_connection_that_is_closed_under_a_call_cuts_it_off(trial: Trial) -> None:
    async with trial.peer(saying(b"")):
        call = asyncio.ensure_future(trial.failure())
        await until(lambda: trial.opened == 1)
        trial.connection.close()
        assert (await call)[0] is StatusCode.CANCELLED
        await until(lambda: trial.ended == 1)


async def test_a_socket_without_a_listener_falls_back_to_grpc_and_is_logged_once(trial: Trial) -> None:
    with capture_logs() as told:
        assert await trial.ask() is None
        assert await trial.ask() is None
        async with trial.peer(answering):
            assert await trial.ask() == b"yes"
        trial.connection.close()
        assert await trial.ask() is None
    assert [entry["event"] for entry in told] == ["framed.unreachable"] * 2


async def test_idle_connections_are_closed_and_busy_ones_continue(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "p.framed")
    connections = FramedConnections(FramedSocket(trial.path), LIMIT)
    go = asyncio.Event()

    async def talk(peer: Peer) -> None:
        request = await peer.hear()
        if request == b"wait":
            await go.wait()
        await peer.say(GOOD)
        await peer.reader.read()

    async with trial.peer(talk):
        idle, busy = connections.free("A"), connections.free("B")
        assert idle is not None
        assert busy is not None
        assert await idle.ask(FILTER, b"", PATIENCE_S) == b"yes"
        call = asyncio.ensure_future(busy.ask(FILTER, b"wait", PATIENCE_S))
        await until(lambda: trial.opened == 2)
        assert connections.free("B") is None
        assert connections.free("A") is idle
        connections.end()
        await until(lambda: trial.ended == 1)
        go.set()
        assert await call == b"yes"
        connections.close()
        await until(lambda: trial.ended == 2)


# --- the socket ----------------------------------------------------------------------------------------


def listening(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def test_framed_socket_is_dialled_as_long_as_its_file_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "p.framed"
    with listening(path):
        found = FramedSocket(path)
        for _ in range(2):
            with found.connect() as connection:
                assert not connection.getblocking()
        with (
            listening(path),
            pytest.raises(PermissionError, match="another process has put its socket there"),
        ):
            found.connect()
        path.unlink()
        with pytest.raises(FileNotFoundError):
            found.connect()


def test_framed_socket_that_appears_later_is_dialled_whoever_serves_it(tmp_path: Path) -> None:
    path = tmp_path / "p.framed"
    later = FramedSocket(path)
    with pytest.raises(FileNotFoundError):
        later.connect()
    with listening(path), later.connect() as connection:
        assert connection.getpeername() == str(path)
