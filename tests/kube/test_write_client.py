"""Frequent requests over HTTP/2 and HTTP/1.1: the same promises, on both event loops."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from berth_host.errors.cluster import (
    NotFoundError,
    RepeatableError,
    TimedOutError,
    UnauthorizedError,
    UnavailableError,
)
from berth_host.model.clock import ManualClock
from berth_kube import connect, http1, write_client, write_connection
from berth_kube.client import MAX_UNDER_WAY, KubeClient
from berth_kube.connection import Connection
from h2.settings import SettingCodes
from support.certificates import Authority
from support.waiting import until
from support.wire_asked import Asked, WireServer
from support.wire_server import server_context, wire_server

WIRES = {"h2": ("h2", True), "http/1.1": ("http/1.1", True), "plain": ("http/1.1", False)}
OVER_TLS = ("h2", "http/1.1")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """The protocol of the server."""
    return str(request.param)


def served(wire: str, handler: Any = None, **more: Any) -> WireServer:
    protocol, is_tls = WIRES[wire]
    return WireServer(handler, protocol=protocol, is_tls=is_tls, **more)


Kubeconfig = Callable[..., str]


@pytest.fixture
def kubeconfig(authority: Authority, tmp_path: Path) -> Kubeconfig:
    def write(url: str, user: dict[str, Any] | None = None, **cluster: Any) -> str:
        (tmp_path / "ca.crt").write_bytes(authority.pem)
        trusted = {"certificate-authority": "ca.crt"} if url.startswith("https") else {}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": url, **trusted, **cluster}}],
            "users": [{"name": "u", "user": user or {"token": "t0"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(content))
        return str(path)

    return write


@asynccontextmanager
async def client_of(path: str, clock: ManualClock | None = None, **more: Any) -> AsyncIterator[KubeClient]:
    client = await KubeClient.open(Connection(kubeconfig=path, qps=-1, **more), clock=clock)
    try:
        yield client
    finally:
        await client.close()


Opened = Callable[..., Any]


@pytest.fixture
def opened(authority: Authority, tmp_path: Path, kubeconfig: Kubeconfig) -> Opened:
    """Return a function that starts a server and opens a client of it."""

    @asynccontextmanager
    async def open_both(
        server: WireServer, clock: ManualClock | None = None, user: dict[str, Any] | None = None
    ) -> AsyncIterator[KubeClient]:
        async with (
            wire_server(authority, tmp_path, server),
            client_of(kubeconfig(server.url, user), clock) as client,
        ):
            yield client

    return open_both


async def bind(client: KubeClient, name: str = "web", body: bytes = b"{}", **more: Any) -> bytes:
    path = f"/api/v1/namespaces/default/pods/{name}/binding"
    return await client.send("POST", path, body=body, resource="pods", key=name, frequent=True, **more)


async def created(asked: Asked) -> None:
    asked.answer(201, asked.body)


# --- what goes well --------------------------------------------------------------------------------


async def test_request_arrives_whole(opened: Opened, wire: str) -> None:
    server = served(wire, created)
    async with opened(server) as client:
        for _ in range(2):
            assert await bind(client, body=b'{"kind":"Binding"}') == b'{"kind":"Binding"}'
    first, second = server.asked
    assert first.headers == second.headers
    expected = {
        ":method": "POST",
        ":path": "/api/v1/namespaces/default/pods/web/binding",
        "accept": "application/json",
        "user-agent": "berth",
        "authorization": "Bearer t0",
        "content-type": "application/json",
        "content-length": "18",
    }
    authority = f"127.0.0.1:{server.port}"
    if wire == "h2":
        assert first.headers == expected | {":scheme": "https", ":authority": authority}
    else:
        assert first.headers == expected | {"host": authority}
    assert first.of is second.of


async def test_server_without_alpn_is_asked_over_http1(opened: Opened) -> None:
    server = WireServer(created, protocol="")
    async with opened(server) as client:
        for _ in range(2):
            await bind(client)
    assert len(server.asked) == 2
    assert len(server.connections) == 1


async def test_path_of_the_servers_url_stands_before_each_path(
    authority: Authority, tmp_path: Path, kubeconfig: Kubeconfig, wire: str
) -> None:
    server = served(wire, created)
    async with (
        wire_server(authority, tmp_path, server),
        client_of(kubeconfig(server.url + "/k8s/clusters/a b")) as client,
    ):
        await bind(client)
    assert server.asked[0].path == "/k8s/clusters/a%20b/api/v1/namespaces/default/pods/web/binding"


async def test_get_has_no_body(opened: Opened, wire: str) -> None:
    server = served(wire, created)
    async with opened(server) as client:
        await client.send("GET", "/version", frequent=True)
    assert server.asked[0].headers.keys().isdisjoint({"content-length", "content-type"})


@pytest.mark.parametrize("size", [0, 1, 300_000])
async def test_bodies_of_any_size_arrive_and_come_back(opened: Opened, wire: str, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    server = served(wire, created)
    async with opened(server) as client:
        assert await asyncio.gather(*(bind(client, body=body) for _ in range(3))) == [body] * 3


async def test_limit_on_requests_under_way_holds(opened: Opened, wire: str) -> None:
    server = served(wire)
    async with opened(server) as client:
        calls = [asyncio.ensure_future(bind(client, f"p{number}")) for number in range(MAX_UNDER_WAY + 5)]
        await until(lambda: len(server.asked) == MAX_UNDER_WAY)
        for asked in list(server.asked):
            asked.answer(201)
        await until(lambda: len(server.asked) == MAX_UNDER_WAY + 5)
        for asked in server.asked[MAX_UNDER_WAY:]:
            asked.answer(201)
        await asyncio.gather(*calls)
    assert sorted(asked.path for asked in server.asked) == sorted({asked.path for asked in server.asked})


async def test_requests_beyond_the_most_connections_wait_in_line(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    monkeypatch.setattr(write_client, "MAX_CONNECTIONS", {"h2": 2, "http/1.1": 4})
    server = served(wire, settings={SettingCodes.MAX_CONCURRENT_STREAMS: 2})
    async with opened(server) as client:
        calls = [asyncio.ensure_future(bind(client, f"p{number}", limited=False)) for number in range(9)]
        for count in (4, 8, 9):
            await until(lambda count=count: len(server.asked) == count)  # type: ignore[misc]
            for asked in server.asked[count - 4 if count < 9 else 8 :]:
                asked.answer(201)
        await asyncio.gather(*calls)
    assert len(server.connections) == (2 if wire == "h2" else 4)
    assert [asked.path.split("/")[-2] for asked in server.asked][8] == "p8"


async def test_connections_are_used_again(opened: Opened, wire: str) -> None:
    server = served(wire, created)
    async with opened(server) as client:
        for _ in range(5):
            await asyncio.gather(*(bind(client) for _ in range(3)))
    assert len(server.asked) == 15
    assert len(server.connections) <= (1 if wire == "h2" else 3)


# --- answers that are errors -----------------------------------------------------------------------


async def test_429_is_sent_again_after_the_time_that_the_server_names(opened: Opened, wire: str) -> None:
    async def answer(asked: Asked) -> None:
        if len(server.asked) == 1:
            asked.answer(429, b'{"kind": "Status", "code": 429}', retry_after="7")
        else:
            asked.answer(201)

    server = served(wire, answer)
    clock = ManualClock()
    async with opened(server, clock) as client:
        call = asyncio.ensure_future(bind(client))
        await until(lambda: clock.next_timer_s() is not None)
        assert clock.next_timer_s() == 7.0
        clock.advance(7.0)
        await call
    assert len(server.asked) == 2


async def test_retry_after_that_is_no_number_is_an_error_with_the_answers_text(
    opened: Opened, wire: str
) -> None:
    async def answer(asked: Asked) -> None:
        asked.answer(503, b'{"kind": "Status", "message": "etcd is away"}', retry_after="later")

    async with opened(served(wire, answer)) as client:
        with pytest.raises(RepeatableError, match="etcd is away"):
            await bind(client)


async def test_404_is_named(opened: Opened, wire: str) -> None:
    async def answer(asked: Asked) -> None:
        asked.answer(404, b'{"kind": "Status", "message": "pods \\"web\\" not found"}')

    async with opened(served(wire, answer)) as client:
        for _ in range(2):
            with pytest.raises(NotFoundError, match='pods "web" not found'):
                await bind(client)


# --- credentials that change -------------------------------------------------------------------------


async def test_401_brings_the_new_token_on_a_new_connection(
    opened: Opened, tmp_path: Path, wire: str
) -> None:
    token = tmp_path / "token"
    token.write_text("t1")

    async def answer(asked: Asked) -> None:
        asked.answer(201 if asked.headers["authorization"] == "Bearer t2" else 401)

    server = served(wire, answer)
    async with opened(server, user={"tokenFile": str(token)}) as client:
        token.write_text("t2")
        await bind(client)
        await bind(client)
    assert [asked.headers["authorization"] for asked in server.asked] == [
        "Bearer t1",
        "Bearer t2",
        "Bearer t2",
    ]
    assert len(server.connections) == 2
    assert server.asked[1].of is server.asked[2].of


async def test_late_401_of_the_old_token_is_sent_again_with_the_new_one(
    opened: Opened, tmp_path: Path, wire: str
) -> None:
    """The token was read again for another request, before the second answer came."""
    token = tmp_path / "token"
    token.write_text("t1")
    server = served(wire)
    async with opened(server, user={"tokenFile": str(token)}) as client:
        calls = [asyncio.ensure_future(bind(client)) for _ in range(2)]
        await until(lambda: len(server.asked) == 2)
        token.write_text("t2")
        first, second = server.asked
        server.handler = created
        first.answer(401)
        await until(lambda: len(server.asked) == 3)
        second.answer(401)
        await asyncio.gather(*calls)
        # The same token again is refused for good.
        server.handler = None
        call = asyncio.ensure_future(bind(client))
        await until(lambda: len(server.asked) == 5)
        server.asked[4].answer(401)
        with pytest.raises(UnauthorizedError):
            await call
    assert [asked.headers["authorization"][-2:] for asked in server.asked] == ["t1", "t1", "t2", "t2", "t2"]


@pytest.mark.parametrize("wire", OVER_TLS, indirect=True)
async def test_new_client_certificate_is_shown_on_a_new_connection(
    opened: Opened, authority: Authority, tmp_path: Path, wire: str
) -> None:
    def write(name: str) -> None:
        pair = authority.issue(name)
        (tmp_path / "client.crt").write_bytes(pair.certificate)
        (tmp_path / "client.key").write_bytes(pair.key)

    write("before")
    user = {
        "client-certificate": str(tmp_path / "client.crt"),
        "client-key": str(tmp_path / "client.key"),
    }
    server = served(wire, asks_certificate=True)
    async with opened(server, user=user) as client:
        slow = asyncio.ensure_future(bind(client, "slow"))
        await until(lambda: len(server.asked) == 1)
        write("after")
        client.credentials.due_s = 0.0
        quick = asyncio.ensure_future(bind(client, "quick"))
        await until(lambda: len(server.asked) == 2)
        for asked in server.asked:
            asked.answer(201)
        await asyncio.gather(slow, quick)
        await until(lambda: client.lane.connection_count == 1)
    assert [asked.of.certificate for asked in server.asked] == ["before", "after"]


# --- headers ---------------------------------------------------------------------------------------------


async def test_user_to_act_as_is_sent_in_utf_8(opened: Opened, wire: str) -> None:
    """As client-go and the session send it. In Latin-1 another user would be named, or none could be."""
    user = {"token": "t0", "as": "jürgen", "as-groups": ["żółw"]}
    server = served(wire, created)
    async with opened(server, user=user) as client:
        await bind(client)
    [asked] = server.asked
    read_as = "utf-8" if wire == "h2" else "latin-1"
    shown = {name: text.encode(read_as) for name, text in asked.headers.items() if "impersonate" in name}
    assert shown == {"impersonate-user": "jürgen".encode(), "impersonate-group": "żółw".encode()}


# --- requests that are given up ------------------------------------------------------------------------


async def test_cancelled_request_is_not_sent_again_and_the_next_one_gets_its_own_answer(
    opened: Opened, wire: str
) -> None:
    server = served(wire)
    async with opened(server) as client:
        call = asyncio.ensure_future(bind(client, "given-up"))
        await until(lambda: len(server.asked) == 1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        if wire == "h2":
            await until(lambda: len(server.resets) == 1)
        else:
            await until(lambda: server.asked[0].of.is_lost)
        server.handler = created
        assert await bind(client, "next", b'{"next": true}') == b'{"next": true}'
    assert [asked.path.split("/")[-2] for asked in server.asked] == ["given-up", "next"]


async def test_request_that_is_cancelled_in_its_first_turn_leaves_the_others(
    opened: Opened, wire: str
) -> None:
    server = served(wire, created)
    async with opened(server) as client:
        await bind(client)
        calls = [asyncio.ensure_future(bind(client, f"p{number}")) for number in range(6)]
        await asyncio.sleep(0)
        calls[2].cancel()
        calls[3].cancel()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        await bind(client)
    assert [isinstance(answer, bytes) for answer in answers] == [True, True, False, False, True, True]


async def test_no_answer_in_time_ends_this_request_alone(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    monkeypatch.setattr(write_client, "TICK_S", 0.01)
    server = served(wire)
    async with opened(server) as client:
        patient = asyncio.ensure_future(bind(client))
        await until(lambda: len(server.asked) == 1)
        with pytest.raises(TimedOutError, match=r"no answer from http\S+ within 0.3 s"):
            await bind(client, "late", timeout_s=0.3)
        server.asked[0].answer(201)
        await patient
    # On a busy machine, a connection of its own may not stand in time.
    assert {asked.path.split("/")[-2] for asked in server.asked} <= {"web", "late"}


async def test_dial_that_hangs_counts_to_the_time_of_the_request(kubeconfig: Kubeconfig, wire: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # Accepts, and says nothing.
        scheme = "https" if WIRES[wire][1] else "http"
        async with client_of(kubeconfig(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}")) as client:
            with pytest.raises(TimedOutError, match=r"within 0.3 s"):
                await bind(client, timeout_s=0.3)


async def test_server_that_does_not_take_part_in_a_dial_is_named_with_the_dials_time(
    kubeconfig: Kubeconfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "CONNECT_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with client_of(kubeconfig(f"https://127.0.0.1:{silent.getsockname()[1]}")) as client:
            with pytest.raises(
                TimedOutError, match=r"cannot connect to http\S+: no connection within 0.2 s; is the API"
            ):
                await bind(client)


async def test_close_ends_requests_that_are_sent_that_wait_and_that_dial(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    monkeypatch.setattr(write_client, "MAX_CONNECTIONS", {"h2": 1, "http/1.1": 1})
    server = served(wire, settings={SettingCodes.MAX_CONCURRENT_STREAMS: 1})
    async with opened(server) as client:
        sent = asyncio.ensure_future(bind(client, "sent"))
        await until(lambda: len(server.asked) == 1)
        waiting = asyncio.ensure_future(bind(client, "waiting"))
        await asyncio.sleep(0)
        await client.close()
        errors = await asyncio.gather(sent, waiting, return_exceptions=True)
        after = await asyncio.gather(bind(client, "after"), return_exceptions=True)
    assert [type(error) for error in (*errors, *after)] == [
        UnavailableError,
        RepeatableError,
        RepeatableError,
    ]
    assert len(server.asked) == 1


async def test_close_during_a_dial_ends_it(kubeconfig: Kubeconfig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with client_of(kubeconfig(f"https://127.0.0.1:{silent.getsockname()[1]}")) as client:
            call = asyncio.ensure_future(bind(client))
            await asyncio.sleep(0.01)
            await client.close()
            with pytest.raises(RepeatableError, match="the client was closed"):
                await call


async def test_one_dial_for_all_that_wait_and_a_cancelled_one_does_not_end_it(
    opened: Opened, wire: str
) -> None:
    server = served(wire, created)
    async with opened(server) as client:
        calls = [asyncio.ensure_future(bind(client, f"p{number}")) for number in range(10)]
        await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.gather(*calls[1:])
    assert len(server.connections) <= (1 if wire == "h2" else 9)
    assert sorted(asked.path.split("/")[-2] for asked in server.asked) == [f"p{n}" for n in range(1, 10)]


async def test_condition_to_stop_sending_is_asked_again_after_the_wait_for_a_connection(
    opened: Opened, wire: str
) -> None:
    """The lease may be lost while the client dials."""
    server = served(wire, created)
    asked_count = 0

    def leads_at_first() -> None:
        nonlocal asked_count
        asked_count += 1
        if asked_count > 1:
            raise UnavailableError("", "", "the lease was lost")

    async with opened(server) as client:
        with pytest.raises(UnavailableError, match="the lease was lost"):
            await bind(client, before_sending=leads_at_first)
    assert server.asked == []


# --- connections that end ------------------------------------------------------------------------------


async def test_request_that_may_have_been_acted_on_is_not_sent_again(opened: Opened, wire: str) -> None:
    async def cut(asked: Asked) -> None:
        asked.of.cut()

    server = served(wire, cut)
    async with opened(server) as client:
        with pytest.raises(
            UnavailableError, match=r"pods 'web': the connection to http\S+ was lost"
        ) as caught:
            await bind(client)
        assert not isinstance(caught.value, RepeatableError)
        assert len(server.asked) == 1
        server.handler = created
        await bind(client)
    assert len(server.asked) == 2


async def test_half_closed_connection_ends_its_requests_once(opened: Opened, wire: str) -> None:
    async def half_close(asked: Asked) -> None:
        asked.of.transport.close()

    server = served(wire, half_close)
    async with opened(server) as client:
        with pytest.raises(UnavailableError, match="was lost") as caught:
            await bind(client)
        assert not isinstance(caught.value, RepeatableError)
        server.handler = created
        await bind(client)
    assert len(server.asked) == 2


class ThreadedServer:
    """A server on its own thread and loop, so that its side goes on while the client's loop stands still."""

    def __init__(self, authority: Authority, folder: Path, server: WireServer) -> None:
        self.server = server
        self.loop = asyncio.new_event_loop()
        self._ends = asyncio.Event()
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(authority, folder))

    def _run(self, authority: Authority, folder: Path) -> None:
        async def serve() -> None:
            async with wire_server(authority, folder, self.server):
                self._is_up.set()
                await self._ends.wait()

        self.loop.run_until_complete(serve())

    def __enter__(self) -> ThreadedServer:
        self._thread.start()
        self._is_up.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._ends.set)
        self._thread.join()
        self.loop.close()

    def close_connections(self, most: int | None = None) -> None:
        """Close all connections, or the first ones, and return when the system has done so."""
        done = threading.Event()

        def close() -> None:
            for connection in self.server.connections[:most]:
                connection.cut()
            self.loop.call_later(0.01, done.set)

        self.loop.call_soon_threadsafe(close)
        done.wait()


async def test_request_on_a_connection_that_the_server_closed_meanwhile_is_sent_once_on_another(
    authority: Authority, tmp_path: Path, kubeconfig: Kubeconfig, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    """The client's loop has not seen the end of the connection when it sends."""
    monkeypatch.setattr(write_client, "RESTED_S", 0.005)
    with ThreadedServer(authority, tmp_path, served(wire, created)) as threaded:
        server = threaded.server
        async with client_of(kubeconfig(server.url)) as client:
            for number in range(3):
                calls = [asyncio.ensure_future(bind(client, f"p{number}-{place}")) for place in range(2)]
                await asyncio.gather(*calls)
                threaded.close_connections()  # Blocks this loop.
            await bind(client, "last")
    assert sorted(asked.path.split("/")[-2] for asked in server.asked) == [
        "last",
        *(f"p{number}-{place}" for number in range(3) for place in range(2)),
    ]


@pytest.mark.parametrize("wire", ["h2"], indirect=True)
async def test_request_goes_over_the_connection_that_is_left_when_the_preferred_one_is_found_closed(
    authority: Authority, tmp_path: Path, kubeconfig: Kubeconfig, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    """The one that is left has room, but its state does not change: nothing else would call the line."""
    monkeypatch.setattr(write_client, "RESTED_S", 0.005)
    streams = {SettingCodes.MAX_CONCURRENT_STREAMS: 2}
    with ThreadedServer(authority, tmp_path, served(wire, settings=streams)) as threaded:
        server = threaded.server

        def answer(*places: int) -> None:
            for place in places:
                threaded.loop.call_soon_threadsafe(server.asked[place].answer, 201)

        async with client_of(kubeconfig(server.url)) as client:
            calls = []
            for count in range(1, 4):
                calls.append(asyncio.ensure_future(bind(client, f"p{count}")))
                await until(lambda count=count: len(server.asked) == count)  # type: ignore[misc]
            answer(0, 1)
            await asyncio.gather(*calls[:2])
            assert [asked.of for asked in server.asked] == [server.connections[n] for n in (0, 0, 1)]
            threaded.close_connections(1)  # Blocks this loop, which therefore has not seen the end.
            last = asyncio.ensure_future(bind(client, "last", timeout_s=5.0))
            await until(lambda: len(server.asked) == 4 or last.done())
            assert len(server.asked) == 4, last.exception()
            answer(2, 3)
            await asyncio.gather(calls[2], last)
    assert len(server.connections) == 2


async def test_idle_connections_are_closed_before_the_server_does(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_client, "TICK_S", 0.01)
    monkeypatch.setattr(http1, "KEEP_ALIVE_S", 0.05)
    server = served("http/1.1", created)
    async with opened(server) as client:
        await asyncio.gather(*(bind(client) for _ in range(4)))
        await until(lambda: client.lane.connection_count == 0)
        await bind(client)


async def test_answer_without_end_ends_the_request_before_the_memory(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    monkeypatch.setattr(write_connection, "MAX_ANSWER", 50_000)
    large = b"x" * 200_000

    async def answer(asked: Asked) -> None:
        asked.answer(200, large if len(server.asked) == 1 else b"{}")

    server = served(wire, answer)
    async with opened(server) as client:
        with pytest.raises(UnavailableError, match=r"answer .*more than"):
            await bind(client)
        assert await bind(client) == b"{}"


async def test_refused_connection_may_be_repeated_and_says_what_to_look_at(
    kubeconfig: Kubeconfig, wire: str
) -> None:
    scheme = "https" if WIRES[wire][1] else "http"
    async with client_of(kubeconfig(f"{scheme}://127.0.0.1:9")) as client:
        with pytest.raises(RepeatableError, match="is the API server running, and the address right"):
            await bind(client)


async def test_address_that_refuses_leaves_the_others(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    server = served(wire, created)

    async def two_addresses(host: str, port: int) -> Any:
        return [(socket.AF_INET, address) for address in ("127.0.0.2", "127.0.0.1")]

    async with opened(server) as client:
        monkeypatch.setattr(connect, "_addresses", two_addresses)
        await bind(client)
    assert len(server.asked) == 1


@pytest.mark.parametrize("wire", OVER_TLS, indirect=True)
async def test_certificate_of_another_authority_is_refused(
    tmp_path: Path, kubeconfig: Kubeconfig, wire: str
) -> None:
    server = served(wire, created)
    async with (
        wire_server(Authority("other"), tmp_path, server),
        client_of(kubeconfig(server.url)) as client,
    ):
        with pytest.raises(UnavailableError, match=r"the certificate of \S+ is not trusted"):
            await bind(client)


# --- through a proxy -------------------------------------------------------------------------------------


class Proxy:
    """An HTTP proxy. `answers`: what it answers to CONNECT; None: it opens the tunnel."""

    def __init__(self, answers: bytes | None = None) -> None:
        self.answers = answers
        self.heads: list[str] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head.decode())
        method, target, _ = self.heads[-1].split("\r\n")[0].split(" ")
        if self.answers is not None:
            writer.write(self.answers)
            writer.close()
            return
        host, _, port = (target if method == "CONNECT" else target.split("/")[2]).rpartition(":")
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            there_writer.write(head.replace(f"http://{host}:{port}".encode(), b"", 1))

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(2**16):
                    sink.write(data)
            finally:
                sink.transport.abort()

        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer), return_exceptions=True)


@asynccontextmanager
async def proxy_of(proxy: Proxy, tls: ssl.SSLContext | None = None) -> AsyncIterator[Proxy]:
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=tls)
    proxy.port = listening.sockets[0].getsockname()[1]
    yield proxy
    listening.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_requests_go_through_the_proxy(
    authority: Authority, tmp_path: Path, kubeconfig: Kubeconfig, wire: str, scheme: str
) -> None:
    tls = server_context(authority, tmp_path, "http/1.1") if scheme == "https" else None
    if tls is not None and wire == "plain":
        return  # The proxy of a plain server over TLS needs the trust that only an https server's entry has.
    server = served(wire, created)
    async with proxy_of(Proxy(), tls) as proxy, wire_server(authority, tmp_path, server):
        url = f"{scheme}://us%20er:pass@127.0.0.1:{proxy.port}"
        async with client_of(kubeconfig(server.url, **{"proxy-url": url})) as client:
            for _ in range(3):
                assert await bind(client, body=b'{"a": 1}') == b'{"a": 1}'
    assert len(server.asked) == 3
    assert len(server.connections) == len(proxy.heads) == 1
    [head] = proxy.heads
    secret = b64encode(b"us er:pass").decode()
    assert f"\r\nProxy-Authorization: Basic {secret}\r\n" in head
    address = f"127.0.0.1:{server.port}"
    if wire == "plain":
        assert head.startswith(f"POST http://{address}/api/v1/namespaces/default/pods/web/binding HTTP/1.1")
    else:
        assert head.startswith(f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n")
        assert "Bearer" not in head
        assert "proxy-authorization" not in server.asked[0].headers


REFUSALS = {
    "407": (b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 2\r\n\r\nno", "407 to CONNECT"),
    "nothing": (b"", "closed the connection instead of an answer"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9\r\n", "is no HTTP"),
    "more than an answer": (b"HTTP/1.1 200 OK\r\n\r\nxxx", "bytes into the tunnel"),
    "endless": (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000, "more than 65536 bytes"),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_proxy_that_opens_no_tunnel_is_named(kubeconfig: Kubeconfig, name: str) -> None:
    raw, said = REFUSALS[name]
    async with proxy_of(Proxy(raw)) as proxy:
        entry = {"proxy-url": f"http://u:secret@127.0.0.1:{proxy.port}"}
        async with client_of(kubeconfig("https://127.0.0.1:6443", **entry)) as client:
            with pytest.raises(
                UnavailableError, match=rf"through the proxy 127\S+: .*{said}.*proxy-url"
            ) as caught:
                await bind(client)
    assert "secret" not in str(caught.value)


async def test_refused_password_of_a_proxy_is_not_in_the_message_of_an_ordinary_request(
    kubeconfig: Kubeconfig,
) -> None:
    async with proxy_of(Proxy(REFUSALS["407"][0])) as proxy:
        entry = {"proxy-url": f"http://u:secret@127.0.0.1:{proxy.port}"}
        async with client_of(kubeconfig("https://127.0.0.1:6443", **entry)) as client:
            with pytest.raises(
                UnavailableError, match=r"through the proxy 127\S+: .*407.*proxy-url"
            ) as caught:
                await client.request("GET", "/version")
    assert "secret" not in str(caught.value)


async def test_proxy_that_cannot_be_reached_is_named(kubeconfig: Kubeconfig) -> None:
    for proxy in ("http://127.0.0.1:9", "http://proxy.invalid:9"):
        async with client_of(kubeconfig("https://127.0.0.1:6443", **{"proxy-url": proxy})) as client:
            with pytest.raises(UnavailableError, match=r"through the proxy \S+:9: .*proxy-url"):
                await bind(client)


async def test_line_is_first_come_first_served(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    monkeypatch.setattr(write_client, "MAX_CONNECTIONS", {"h2": 1, "http/1.1": 1})
    server = served(wire, settings={SettingCodes.MAX_CONCURRENT_STREAMS: 1})
    async with opened(server) as client:
        calls = [asyncio.ensure_future(bind(client, f"p{number}")) for number in range(5)]
        for count in range(1, 6):
            await until(lambda count=count: len(server.asked) == count)  # type: ignore[misc]
            server.asked[-1].answer(201)
        await asyncio.gather(*calls)
    assert [asked.path.split("/")[-2] for asked in server.asked] == [f"p{number}" for number in range(5)]
