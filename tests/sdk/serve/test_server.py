"""The server as a whole: where it listens, which calls run at the same time, how it stops."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest
from berth_sdk import CycleState, Plugin, Pod, Status
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.serve.served import MAX_BINDING_CALLS
from berth_sdk.serve.server import ListenError, PluginServer
from berth_sdk.wire.peer_certificate import MOST_CONNECTIONS
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.sdk_server import ALL, RawHost, Serving, refused
from support.waiting import PATIENCE_S

from .conftest import Serve

WAIT_S = PATIENCE_S


class Slow(Plugin):
    """Every call tells that it is in and waits until it is let out."""

    max_concurrency = 2
    inside: ClassVar[list[str]] = []
    out: ClassVar[threading.Event] = threading.Event()
    entered: ClassVar[threading.Semaphore] = threading.Semaphore(0)

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Any) -> None:
        self._wait(pod)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self._wait(pod)
        return Status.success()

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self._wait(pod)
        return Status.success()

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: Any) -> Status:
        self.inside.append(pod.name)
        self.entered.release()
        try:
            await asyncio.to_thread(self.out.wait, WAIT_S)
        except asyncio.CancelledError:
            self.inside.append(f"{pod.name} cancelled")
            self.entered.release()
            raise
        return Status.success()

    def _wait(self, pod: Pod) -> None:
        self.inside.append(pod.name)
        self.entered.release()
        self.out.wait(WAIT_S)
        self.inside.append(f"{pod.name} out")


@pytest.fixture
def slow(serve: Serve) -> Iterator[Serving]:
    Slow.inside, Slow.out, Slow.entered = [], threading.Event(), threading.Semaphore(0)
    serving = serve(Slow)
    serving.host.attach()
    serving.host.give_nodes(Node(name="n0"))
    yield serving
    Slow.out.set()


def pod(name: str) -> Pod:
    return Pod(name=name, uid=name)


def filter_later(host: RawHost, name: str) -> Any:
    request = spb.FilterRequest(ctx=host.ctx("Slow", pod(name), name), candidates=ALL)
    return host.scheduling.Filter.future(request, timeout=WAIT_S)


def bind_later(host: RawHost, name: str) -> Any:
    return host.scheduling.Bind.future(
        spb.BindRequest(ctx=host.ctx("Slow", pod(name), name), node_name="n0"), timeout=WAIT_S
    )


def pre_bind_later(host: RawHost, name: str) -> Any:
    return host.scheduling.PreBind.future(
        spb.PreBindRequest(ctx=host.ctx("Slow", pod(name), name), node_name="n0"), timeout=WAIT_S
    )


def one_more_is_in() -> None:
    assert Slow.entered.acquire(timeout=WAIT_S)


def until(condition: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends_s
        time.sleep(0.002)


# --- beside each other -----------------------------------------------------------------------------


def test_calls_of_the_scheduling_cycle_run_one_at_a_time(slow: Serving) -> None:
    first = filter_later(slow.host, "first")
    one_more_is_in()
    second = filter_later(slow.host, "second")
    until(lambda: slow.server.instance.in_flight.count == 2)
    assert Slow.inside == ["first"]
    Slow.out.set()
    first.result()
    second.result()
    assert Slow.inside == ["first", "first out", "second", "second out"]


def test_binding_calls_run_beside_a_scheduling_call_and_each_other_up_to_the_limit(slow: Serving) -> None:
    calls = [filter_later(slow.host, "filter"), bind_later(slow.host, "b1"), bind_later(slow.host, "b2")]
    for _ in calls:
        one_more_is_in()
    calls.append(bind_later(slow.host, "b3"))
    until(lambda: slow.server.instance.in_flight.count == 4)
    assert sorted(Slow.inside) == ["b1", "b2", "filter"]
    Slow.out.set()
    for call in calls:
        call.result()
    assert "b3" in Slow.inside[3:]


def test_coroutines_of_the_binding_cycle_run_beside_anything(slow: Serving) -> None:
    calls = [pre_bind_later(slow.host, f"p{i}") for i in range(5)]
    for _ in calls:
        one_more_is_in()
    Slow.out.set()
    assert [call.result().ctx.status.code for call in calls] == [1] * 5


def test_a_flood_of_binding_calls_leaves_threads_for_the_scheduling_cycle(slow: Serving) -> None:
    calls = [bind_later(slow.host, f"b{i}") for i in range(230)]
    until(lambda: sum(call.done() for call in calls) == 230 - MAX_BINDING_CALLS)
    errors = {call.code() for call in calls if call.done()}
    assert errors == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    filtered = filter_later(slow.host, "filter")
    until(lambda: "filter" in Slow.inside)
    Slow.out.set()
    filtered.result()
    assert sum(call.exception() is None for call in calls) == MAX_BINDING_CALLS


# --- cancellation ----------------------------------------------------------------------------------


def test_a_coroutine_notices_within_100_ms_that_its_call_was_cancelled(slow: Serving) -> None:
    numbers = itertools.count()

    def at_once() -> bool:
        call = pre_bind_later(slow.host, f"p{next(numbers)}")
        one_more_is_in()
        begun_s = time.monotonic()
        call.cancel()
        one_more_is_in()
        return time.monotonic() - begun_s < 0.1

    until(at_once)  # a busy machine holds up a call now and then
    assert Slow.inside[:2] == ["p0", "p0 cancelled"]


def test_a_reserve_that_was_cancelled_before_its_turn_is_not_executed(slow: Serving) -> None:
    host = slow.host
    first = filter_later(host, "first")
    one_more_is_in()
    second = host.scheduling.Reserve.future(
        spb.ReserveRequest(ctx=host.ctx("Slow", pod("second"), "second"), node_name="n0"), timeout=WAIT_S
    )
    until(lambda: slow.server.instance.in_flight.count == 2)
    second.cancel()
    until(lambda: slow.server.instance.in_flight.count == 1)
    Slow.out.set()
    first.result()
    assert Slow.inside == ["first", "first out"]


# --- listening -------------------------------------------------------------------------------------


class Plain(Plugin):
    """Lets every node pass."""

    def filter(self, state: CycleState, pod: Pod, node: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [
        pytest.param("0.0.0.0:7001", "would be served in plaintext", id="all interfaces"),
        pytest.param("example.com:7001", "would be served in plaintext", id="a name"),
        pytest.param("7001", "write unix:PATH or HOST:PORT", id="a port alone"),
        pytest.param("127.0.0.1:http", "write unix:PATH or HOST:PORT", id="a port by name"),
        pytest.param("unix:", "names no socket", id="no path"),
        pytest.param("unix:/no/such/folder/x.sock", "there is no folder /no/such/folder", id="no folder"),
    ],
)
def test_an_address_that_cannot_be_served_is_refused_with_the_cure(endpoint: str, text: str) -> None:
    with PluginServer({"Plain": Plain}) as server, pytest.raises(ListenError, match=text):
        server.listen(endpoint)


@pytest.mark.parametrize("form", ["unix:{}", "unix://{}"])
def test_a_unix_socket_is_open_to_user_and_group_alone(tmp_path: Path, form: str) -> None:
    path = tmp_path / "x.sock"
    with PluginServer({"Plain": Plain}) as server:
        assert server.listen(form.format(path)) == f"unix://{path}"
        assert path.stat().st_mode & 0o777 == 0o770


def test_a_relative_socket_is_announced_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with PluginServer({"Plain": Plain}) as server:
        assert server.listen("unix:x.sock") == f"unix://{tmp_path}/x.sock"


def test_a_free_port_is_chosen_and_announced() -> None:
    with PluginServer({"Plain": Plain}) as server:
        address = server.listen("127.0.0.1:0")
        host = RawHost(address)
        assert host.handshake().plugins[0].name == "Plain"
        host.close()
        with PluginServer({"Plain": Plain}) as second, pytest.raises(ListenError):
            second.listen(address)


def test_a_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    import socket

    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with PluginServer({"Plain": Plain}) as server:
        host = RawHost(server.listen(f"unix:{path}"))
        assert host.handshake().plugins[0].name == "Plain"
        host.close()


def test_connections_without_calls_leave_a_full_port_to_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth_sdk.serve.server.IDLE_MS", 500)
    with PluginServer({"Demo": Slow}) as server:
        host, _, port = server.listen("127.0.0.1:0").rpartition(":")
        greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
        idle = [socket.create_connection((host, int(port))) for _ in range(MOST_CONNECTIONS)]
        for sock in idle:
            sock.sendall(greeting)
            sock.settimeout(WAIT_S)
            assert sock.recv(1)
        with grpc.insecure_channel(f"{host}:{port}") as channel:
            grpc.channel_ready_future(channel).result(WAIT_S)
        for sock in idle:
            while sock.recv(4096):
                pass
            sock.close()


def test_health_is_served(serve: Serve) -> None:
    host = serve(Plain).host
    stub = health_pb2_grpc.HealthStub(host.channel)
    for service in ("", "berth.plugin.v1.SchedulingService"):
        reply = stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert reply.status == health_pb2.HealthCheckResponse.SERVING


# --- stopping --------------------------------------------------------------------------------------


def test_stopping_lets_open_calls_end(slow: Serving) -> None:
    call = filter_later(slow.host, "first")
    one_more_is_in()
    with ThreadPoolExecutor(1) as threads:
        stopped: Future[bool] = threads.submit(slow.server.stop, WAIT_S)
        until(lambda: refused_at_once(slow.host))
        Slow.out.set()
        assert call.result() is not None
        assert stopped.result(WAIT_S)


def refused_at_once(host: RawHost) -> bool:
    try:
        host.identity.Probe(identity_pb2.ProbeRequest(), timeout=1)
    except grpc.RpcError:
        return True
    return False


def test_stopping_does_not_wait_for_a_call_that_hangs(slow: Serving) -> None:
    call = filter_later(slow.host, "first")
    one_more_is_in()
    assert not slow.server.stop(0.05)
    assert Slow.inside == ["first"]  # it hangs on
    assert refused(call.result).code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
    Slow.out.set()
    until(lambda: slow.server.instance.in_flight.count == 0)
