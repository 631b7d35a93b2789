"""The framed socket of a real server: which processes may connect, bad frames, and how connections end."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_sdk import CycleState, Plugin, Pod, Status
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.serve import frames
from berth_sdk.serve.frames import FramedConnection, FramedServer
from berth_sdk.serve.server import PluginServer
from berth_sdk.wire.frames import (
    CLOSING_FRAME,
    FEATURE,
    NUMBERS,
    Frame,
    FrameError,
    Kind,
    call_frame,
    failure_frame,
    framed_path,
)
from support.framed_client import WAIT_S, FramedClient, framed, header
from support.sdk_server import Serving

from .conftest import Serve

POD = Pod(name="p", uid="p")
PERMIT = NUMBERS["Permit"]


class Demo(Plugin):
    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return Status.success()


@pytest.fixture
def serving(serve: Serve) -> Serving:
    serving = serve(Demo)
    serving.host.attach()
    return serving


@pytest.fixture
def client(serving: Serving) -> Iterator[FramedClient]:
    client = FramedClient(serving.address)
    yield client
    client.close()


def permit(serving: Serving, cycle_id: str = "c") -> spb.PermitRequest:
    return spb.PermitRequest(ctx=serving.host.ctx("Demo", POD, cycle_id), node_name="n0")


def wait_for(condition: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends_s
        time.sleep(0.002)


def threads_of(server: PluginServer) -> int:
    return server.framed.connection_count


# --- where it listens --------------------------------------------------------------------------------------


def test_framed_socket_lies_beside_grpcs_with_the_same_rights(serving: Serving) -> None:
    path = Path(serving.address.removeprefix("unix://"))
    assert serving.host.handshake().features == ["configure-trial", FEATURE]
    assert framed_path(path).stat().st_mode == path.stat().st_mode
    assert framed_path(path).stat().st_mode & 0o777 == 0o770
    serving.server.stop(0)
    assert not framed_path(path).exists()


def test_over_tcp_there_is_none() -> None:
    with PluginServer({"Demo": Demo}) as server:
        server.listen("127.0.0.1:0")
        assert not server.instance.framed


def test_where_it_cannot_listen_grpc_alone_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "p.sock"
    framed_path(path).write_text("somebody's file")
    with PluginServer({"Demo": Demo}) as server:
        server.listen(f"unix:{path}")
        assert not server.instance.framed
        assert path.exists()
    assert "calls come over gRPC alone" in caplog.text
    assert framed_path(path).read_text() == "somebody's file"


def test_a_stale_socket_is_replaced_and_a_successors_is_left(tmp_path: Path) -> None:
    path = tmp_path / "p.sock.framed"
    first, second = FramedServer({}, 100), FramedServer({}, 100)
    assert first.listen(path)
    assert second.listen(path)
    first.stop()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
    second.stop()
    assert not path.exists()


# --- what is no call ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "text"),
    [
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "a frame of the kind", id="http2"),
        pytest.param(header(5, 9), "a frame of the kind 9", id="kind"),
        pytest.param(header(2**32 - 1, 0), f"a frame of {2**32 - 1} bytes", id="too long"),
        pytest.param(failure_frame(PERMIT, 1, "x"), "of the kind FAILURE where a call was due", id="failure"),
        pytest.param(CLOSING_FRAME, "of the kind CLOSING where a call was due", id="closing"),
        pytest.param(
            call_frame(PERMIT, b"") * 2, "a second call before the answer to the first", id="two at once"
        ),
        pytest.param(
            call_frame(PERMIT, b"") + b"\0", "a second call before the answer to the first", id="one and more"
        ),
    ],
)
def test_bytes_that_are_no_frame_end_the_connection(
    serving: Serving, client: FramedClient, said: bytes, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.sock.sendall(said)
    assert client.hear() is None
    wait_for(lambda: threads_of(serving.server) == 0)
    assert text in caplog.text
    another = FramedClient(serving.address)
    assert another.ask(permit(serving)).HasField("ctx")
    another.close()


@pytest.mark.parametrize(
    ("call", "payload", "code"),
    [
        pytest.param(0, b"", grpc.StatusCode.INVALID_ARGUMENT, id="no call"),
        pytest.param(200, b"", grpc.StatusCode.INVALID_ARGUMENT, id="a call of a later contract"),
        pytest.param(PERMIT, b"\xff\xff", grpc.StatusCode.INTERNAL, id="no request"),
    ],
)
def test_a_frame_that_carries_no_call_is_answered_with_an_error(
    serving: Serving, client: FramedClient, call: int, payload: bytes, code: grpc.StatusCode
) -> None:
    client.sock.sendall(call_frame(call, payload))
    assert client.error()[0] is code
    assert client.ask(permit(serving)).HasField("ctx")


def test_bytes_may_come_one_by_one(serving: Serving, client: FramedClient) -> None:
    for byte in framed(permit(serving)):
        client.sock.sendall(bytes([byte]))
    assert client.answer(spb.PermitResponse).HasField("ctx")


def test_an_exception_of_the_server_ends_the_call_and_not_the_connection(tmp_path: Path) -> None:
    def broken(_raw: bytes, _context: Any) -> bytes:
        raise LookupError("oh")

    server = FramedServer({PERMIT: broken}, 1000)
    path = tmp_path / "p.sock"
    assert server.listen(framed_path(path))
    client = FramedClient(f"unix://{path}")
    for _ in range(2):
        client.sock.sendall(call_frame(PERMIT, b""))
        assert client.error() == (grpc.StatusCode.UNKNOWN, "Exception calling application: oh")
    server.stop()
    assert client.ends()
    server.wait(WAIT_S)
    client.close()


# --- how connections end -----------------------------------------------------------------------------------


def test_a_host_that_goes_in_the_middle_of_a_frame_leaves_nothing(
    serving: Serving, client: FramedClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.sock.sendall(header(100, 0) + b"half")
    wait_for(lambda: threads_of(serving.server) == 1)
    client.close()
    wait_for(lambda: threads_of(serving.server) == 0)
    assert "closed in the middle of a frame" in caplog.text


@pytest.mark.slow
def test_a_frame_whose_rest_does_not_come_ends_the_connection() -> None:
    ours, theirs = socket.socketpair()
    connection = FramedConnection(theirs, 100, stalled_s=1)
    ours.sendall(b"\0")
    with pytest.raises(FrameError, match="did not come within 1 s"):
        connection.next_call()
    connection.end()
    ours.close()


@pytest.mark.slow
def test_a_host_that_is_silent_between_two_calls_is_waited_for() -> None:
    ours, theirs = socket.socketpair()
    connection = FramedConnection(theirs, 100, stalled_s=1)
    sending = threading.Timer(1.5, ours.sendall, [call_frame(PERMIT, b"late")])
    sending.start()
    assert connection.next_call() == (Kind.CALL, PERMIT, b"late")
    connection.end()
    ours.close()


@pytest.mark.slow
def test_an_answer_that_is_not_read_is_given_up() -> None:
    ours, theirs = socket.socketpair()
    connection = FramedConnection(theirs, 100, stalled_s=1)
    with pytest.raises(OSError) as caught:
        connection.answer({PERMIT: lambda _raw, _context: bytes(10_000_000)}, Frame(Kind.CALL, PERMIT, b""))
    assert caught.value.errno == errno.EAGAIN
    connection.end()
    ours.close()


def test_longest_silent_connection_leaves_its_place_first_one_that_has_not_called(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(frames, "MAX_CONNECTIONS", 3)
    caller = FramedClient(serving.address)
    assert caller.ask(permit(serving)).HasField("ctx")
    strangers = [FramedClient(serving.address) for _ in range(2)]
    wait_for(lambda: threads_of(serving.server) == 3)
    host = FramedClient(serving.address)
    assert host.ask(permit(serving, "c1")).HasField("ctx")
    assert strangers[0].ends()
    # The second stranger, then whoever of the two callers was silent for longer.
    more = []
    for cycle in ("c2", "c3"):
        more.append(FramedClient(serving.address))
        assert more[-1].ask(permit(serving, cycle)).HasField("ctx")
    assert strangers[1].ends()
    assert caller.ends()
    assert host.ask(permit(serving, "c4")).HasField("ctx")
    lines = [one.getMessage() for one in caplog.records if "longest silent" in one.getMessage()]
    assert lines == ["3 framed connections are open: the longest silent framed connection is closed"]
    for client in (caller, host, *strangers, *more):
        client.close()


def test_connection_whose_thread_is_slow_to_end_gives_its_place_once(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(frames, "ROOM_AGAIN_S", 0.01)
    may_end, next_call = threading.Event(), FramedConnection.next_call

    def slow_to_end(connection: FramedConnection) -> Frame | None:
        request = next_call(connection)
        if request is None:
            may_end.wait(WAIT_S)
        return request

    monkeypatch.setattr(FramedConnection, "next_call", slow_to_end)
    strangers = [FramedClient(serving.address) for _ in range(2)]
    wait_for(lambda: threads_of(serving.server) == 2)
    callers = []
    for stranger, cycle in zip(strangers, ("c1", "c2"), strict=True):
        callers.append(FramedClient(serving.address))
        assert callers[-1].ask(permit(serving, cycle)).HasField("ctx")
        assert stranger.ends()
    assert callers[0].ask(permit(serving, "c3")).HasField("ctx")
    may_end.set()
    wait_for(lambda: threads_of(serving.server) == 2)
    for client in (*strangers, *callers):
        client.close()


def test_connections_on_which_a_call_is_open_stay_and_another_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "MAX_CONNECTIONS", 1)
    begun, may_end = threading.Event(), threading.Event()

    def slow(_raw: bytes, _context: Any) -> bytes:
        begun.set()
        may_end.wait(WAIT_S)
        return b"ok"

    server = FramedServer({PERMIT: slow}, 100)
    server.listen(framed_path(tmp_path / "p"))
    first = FramedClient(f"unix://{tmp_path}/p")
    first.sock.sendall(call_frame(PERMIT, b""))
    assert begun.wait(WAIT_S)
    second = FramedClient(f"unix://{tmp_path}/p")
    assert second.ends()
    may_end.set()
    assert first.hear() == Frame(Kind.CALL, PERMIT, b"ok")
    tries: list[FramedClient] = []

    def is_let_in() -> bool:
        """A call is open for a moment after its answer: this connection may be refused, too."""
        tries.append(FramedClient(f"unix://{tmp_path}/p"))
        with contextlib.suppress(BrokenPipeError):
            tries[-1].sock.sendall(call_frame(PERMIT, b""))
        return tries[-1].hear() == Frame(Kind.CALL, PERMIT, b"ok")

    wait_for(is_let_in)
    assert first.ends()
    for client in (first, second, *tries):
        client.close()
    server.stop()
    server.wait(WAIT_S)


def test_want_of_file_descriptors_passes_and_closes_a_silent_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = FramedServer({PERMIT: lambda _raw, _context: b"ok"}, 100)
    monkeypatch.setattr(frames, "ROOM_AGAIN_S", 0.01)
    refusals: list[OSError] = [OSError(errno.EMFILE, os.strerror(errno.EMFILE))] * 3

    class Listening:
        """A socket that a process without descriptors listens at."""

        def __init__(self, sock: socket.socket) -> None:
            self._sock = sock

        def __enter__(self) -> Listening:
            return self

        def __exit__(self, *_: object) -> None:
            self._sock.close()

        def accept(self) -> Any:
            if refusals:
                raise refusals.pop()
            accepting.release()
            return self._sock.accept()

    accepting = threading.Semaphore(0)
    accept = server.accept
    monkeypatch.setattr(server, "accept", lambda sock: accept(Listening(sock)))  # type: ignore[arg-type]
    path = tmp_path / "p.sock"
    assert server.listen(framed_path(path))
    client = FramedClient(f"unix://{path}")
    client.sock.sendall(call_frame(PERMIT, b""))
    assert client.hear() == (Kind.CALL, PERMIT, b"ok")
    for _ in range(2):  # The server has accepted this connection, and waits for the next one.
        assert accepting.acquire(timeout=60)
    # One connection is open, far fewer than may be.
    refusals.append(OSError(errno.EMFILE, "Too many open files"))
    stranger = FramedClient(f"unix://{path}")
    assert stranger.ends()
    (line,) = [one.getMessage() for one in caplog.records if "longest silent" in one.getMessage()]
    assert line == (
        "no connection can be accepted (Too many open files): the longest silent framed connection is closed"
    )
    client.sock.sendall(call_frame(PERMIT, b""))
    assert client.hear() == (Kind.CALL, PERMIT, b"ok")
    server.stop()
    server.wait(WAIT_S)
    for one in (client, stranger):
        one.close()


def test_stopping_cuts_off_a_call_that_hangs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    go = threading.Event()
    entered = threading.Event()

    def hangs(_raw: bytes, _context: Any) -> bytes:
        entered.set()
        go.wait(WAIT_S)
        return b""

    server = FramedServer({PERMIT: hangs}, 100)
    path = tmp_path / "p.sock"
    assert server.listen(framed_path(path))
    client = FramedClient(f"unix://{path}")
    client.sock.sendall(call_frame(PERMIT, b""))
    assert entered.wait(WAIT_S)
    server.stop()
    server.wait(0.01)
    assert client.hear() is None
    go.set()
    wait_for(lambda: not server.connection_count)
    client.close()
