"""The host waits for an answer at its socket, for a bounded time, and then lets the loop go on."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from berth_host.rpc.served.answer_wait import (
    HAS_OTHER_WORK,
    LONGEST_S,
    AnswerWait,
    Readable,
    Stream,
    WaitShare,
    is_readable,
)
from berth_host.rpc.served.busy_poll import BusyPoll
from berth_host.rpc.served.frames import FramedConnection, FramedSocket
from berth_sdk.wire.frames import NUMBERS, call_frame
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples
from support.waiting import PATIENCE_S

FILTER, RESERVE = NUMBERS["Filter"], NUMBERS["Reserve"]
NEVER_S = 1e9
MS = 0.001
GOOD = call_frame(FILTER, b"yes")


class Bench:
    """Calls of one connection on a fake clock. `waits`: the length of each wait, by its beginning.

    `asked`: the longest that each call would have waited; None for a call without a wait.
    """

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits: list[tuple[float, float]] = []
        self.asked: list[float | None] = []
        self.wait = AnswerWait(WaitShare(lambda: self.now_s), self.readable)
        self._comes_s = NEVER_S
        self.sock = socket.socket()

    def readable(self, sock: Stream, within_s: float) -> bool:
        """Move the clock to the answer, or to the end of the wait."""
        self.asked[-1] = within_s
        came = self._comes_s - self.now_s <= within_s
        waited_s = max(self._comes_s - self.now_s, 0.0) if came else within_s
        self.waits.append((self.now_s, waited_s))
        self.now_s += waited_s
        return came

    def call(
        self, answer_s: float, call: int = FILTER, *, deadline_s: float = 1.0, needs_loop: bool = False
    ) -> float | None:
        """Make a call that is answered after `answer_s`; return how long it would have waited at most.

        `needs_loop`: the time of the answer begins when the wait is over.
        """
        self.asked.append(None)
        self._comes_s = NEVER_S if needs_loop else self.now_s + answer_s
        self.wait.begin(call)
        self.wait.at(self.sock, deadline_s, lambda: True)
        self.now_s = self.now_s + answer_s if needs_loop else max(self.now_s, self._comes_s)
        self.wait.end()
        return self.asked[-1]

    def idle(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.sock.close()


def settled(bench: Bench, answer_s: float, call: int = FILTER) -> None:
    """Make calls until `answer_s` is the usual time of the call."""
    for _ in range(80):
        bench.call(answer_s, call)
        bench.idle(1.0)


def test_first_call_is_not_waited_for(bench: Bench) -> None:
    assert bench.call(MS) is None


@pytest.mark.parametrize("usual_ms", [0.05, 0.4, 1, 3])
def test_wait_lasts_half_as_long_again_as_answers_usually_take(bench: Bench, usual_ms: float) -> None:
    settled(bench, usual_ms * MS)
    assert bench.call(usual_ms * MS) == pytest.approx(1.5 * usual_ms * MS)


def test_each_call_has_its_own_usual_time(bench: Bench) -> None:
    settled(bench, 0.4 * MS, FILTER)
    settled(bench, 2 * MS, RESERVE)
    assert bench.call(0.4 * MS, FILTER) == pytest.approx(0.6 * MS)
    assert bench.call(2 * MS, RESERVE) == pytest.approx(3 * MS)


def test_wait_ends_with_the_deadline(bench: Bench) -> None:
    settled(bench, MS)
    assert bench.call(MS, deadline_s=0.2 * MS) == pytest.approx(0.2 * MS)


def test_answers_that_take_too_long_are_left_to_the_loop(bench: Bench) -> None:
    settled(bench, 1.01 * LONGEST_S / 1.5)
    assert bench.call(MS) is None


def test_call_after_a_late_answer_is_not_waited_for(bench: Bench) -> None:
    settled(bench, MS)
    assert bench.call(2 * MS) == pytest.approx(1.5 * MS)  # late by half a millisecond
    bench.idle(1.0)
    assert bench.call(MS) is None
    bench.idle(1.0)
    assert bench.call(MS) is not None


def test_call_after_an_answer_that_the_loop_got_late_is_not_waited_for(bench: Bench) -> None:
    settled(bench, MS)
    bench.call(2 * MS)
    bench.idle(1.0)
    assert bench.call(2 * MS) is None
    bench.idle(1.0)
    assert bench.call(MS) is None
    bench.idle(1.0)
    assert bench.call(MS) is not None


def test_plugin_that_is_late_whenever_the_loop_stands_still_is_hardly_waited_for(bench: Bench) -> None:
    """A plugin that asks the host during the call cannot answer before the loop turns."""
    settled(bench, MS)
    limits = []
    for _ in range(1000):
        limits.append(bench.call(MS, needs_loop=True))
        bench.idle(1.0)
    assert limits[0] is not None
    assert 1 < sum(limit_s is not None for limit_s in limits) <= 8 + 1000 / 64


def test_call_beside_other_work_is_not_waited_for(bench: Bench) -> None:
    settled(bench, MS)
    token = HAS_OTHER_WORK.set(True)
    try:
        assert bench.call(MS) is None
    finally:
        HAS_OTHER_WORK.reset(token)
    assert bench.call(MS) is not None


@given(
    calls=st.lists(
        st.tuples(
            st.integers(0, 6000),  # the answer, in microseconds
            st.integers(0, 4000),  # the time to the next call
            st.sampled_from([FILTER, RESERVE]),
        ),
        min_size=50,
        max_size=600,
    )
)
@settings(max_examples=examples(40), deadline=None)
def test_waits_take_at_most_a_fifth_of_any_second(calls: list[tuple[int, int, int]]) -> None:
    bench = Bench()
    for answer_us, idle_us, call in calls:
        bench.call(answer_us * 1e-6, call)
        bench.idle(idle_us * 1e-6)
    bench.sock.close()
    most_s = max((within_second(bench.waits, begins_s) for begins_s, _ in bench.waits), default=0.0)
    assert most_s <= 0.2 + 1e-9


def within_second(waits: list[tuple[float, float]], begins_s: float) -> float:
    """Return how much of the second from `begins_s` the waits take."""
    ends_s = begins_s + 1.0
    return sum(
        max(min(began_s + waited_s, ends_s) - max(began_s, begins_s), 0.0) for began_s, waited_s in waits
    )


def test_calls_one_after_the_other_use_their_fifth_of_the_second(bench: Bench) -> None:
    began_s = bench.now_s
    while bench.now_s < began_s + 10:
        bench.call(MS)
    waited_s = sum(length_s for _, length_s in bench.waits)
    assert 1.5 < waited_s <= 2.0


# --- at a socket -----------------------------------------------------------------------------------------


@contextmanager
def instance(path: Path, pieces: list[bytes], go: threading.Event) -> Iterator[None]:
    """Answer each request with `pieces`, in a thread, once `go` is set."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        with server, server.accept()[0] as sock:
            while sock.recv(1000):
                go.wait(PATIENCE_S)
                for piece in pieces:
                    sock.sendall(piece)

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    thread.join(PATIENCE_S)


class Clock:
    """Stands still, but for `expecting`."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def expecting(self, readable: Readable) -> AnswerWait:
        """Return waits that expect the answer to Filter after a millisecond."""
        wait = AnswerWait(WaitShare(self), readable)
        wait.begin(FILTER)
        self.now_s += MS
        wait.end()
        return wait


def patient(sock: Stream, within_s: float) -> bool:
    """Wait as long as it takes."""
    return is_readable(sock, PATIENCE_S)


@pytest.mark.parametrize("pieces", [[GOOD], [bytes([byte]) for byte in GOOD]], ids=["whole", "in pieces"])
async def test_answer_is_taken_before_the_loop_turns(tmp_path: Path, pieces: list[bytes]) -> None:
    path, go = tmp_path / "p.framed", threading.Event()
    go.set()
    with instance(path, pieces, go):
        connection = FramedConnection(FramedSocket(path), 1000, BusyPoll(1), Clock().expecting(patient))
        call = connection.ask(FILTER, b"", PATIENCE_S)
        with pytest.raises(StopIteration) as answered:
            call.send(None)
        assert answered.value.value == b"yes"
        connection.close()


async def test_answer_that_is_late_comes_with_the_loop(tmp_path: Path) -> None:
    path, go = tmp_path / "p.framed", threading.Event()
    waited = []

    def readable(sock: Stream, within_s: float) -> bool:
        waited.append(within_s)
        return False

    with instance(path, [GOOD], go):
        connection = FramedConnection(FramedSocket(path), 1000, BusyPoll(1), Clock().expecting(readable))
        call = asyncio.ensure_future(connection.ask(FILTER, b"", PATIENCE_S))
        await asyncio.sleep(0)
        assert waited == [pytest.approx(1.5 * MS)]
        assert not call.done()
        go.set()
        assert await call == b"yes"
        connection.close()


async def test_instance_that_ends_during_the_wait_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "p.framed"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def end() -> None:
        with server.accept()[0] as sock:
            sock.recv(1000)

    thread = threading.Thread(target=end)
    thread.start()
    connection = FramedConnection(FramedSocket(path), 1000, BusyPoll(1), Clock().expecting(patient))
    with server, pytest.raises(grpc.aio.AioRpcError, match="closed by the instance"):
        await connection.ask(FILTER, b"", PATIENCE_S)
    thread.join(PATIENCE_S)
    assert not connection.is_connected


def test_socket_with_a_number_that_select_does_not_take_is_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth_host.rpc.served.answer_wait._SELECTABLE", 0)
    monkeypatch.setattr(select, "select", None)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not is_readable(ours, 1.5 * MS)
        theirs.send(b"x")
        assert is_readable(ours, 1.5 * MS)
