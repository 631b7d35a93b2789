"""Frequent requests over HTTP/2: one connection for many, all ways in which it ends, nothing sent twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import hpack
import pytest
from berth_host.errors.cluster import (
    RepeatableError,
    UnavailableError,
)
from berth_host.model.clock import ManualClock
from berth_kube import http2, write_client
from berth_kube.client import KubeClient
from berth_kube.connection import Connection
from berth_kube.http2 import Http2Connection
from berth_kube.http2_heads import HeadEncoder, read_block, status_of
from berth_kube.write_connection import ConnectionLostError, NotActedOnError
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hypothesis import given, settings
from hypothesis import strategies as st
from support.certificates import Authority
from support.memory_transport import MemoryTransport
from support.tiers import examples
from support.waiting import PATIENCE_S, until
from support.wire_asked import Asked, WireServer
from support.wire_http1 import ServedHttp1
from support.wire_http2 import ServedHttp2
from support.wire_server import wire_server

BINDING = "/api/v1/namespaces/default/pods/web/binding"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def kubeconfig(authority: Authority, tmp_path: Path) -> Callable[..., str]:
    def write(server: WireServer, **user: Any) -> str:
        (tmp_path / "ca.crt").write_bytes(authority.pem)
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server.url, "certificate-authority": "ca.crt"}}],
            "users": [{"name": "u", "user": user or {"token": "t0"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(content))
        return str(path)

    return write


Opened = Callable[..., Any]


@pytest.fixture
def opened(authority: Authority, tmp_path: Path, kubeconfig: Callable[..., str]) -> Opened:
    """Return a function that starts a server and opens a client of it."""

    @asynccontextmanager
    async def open_both(
        server: WireServer, clock: ManualClock | None = None, **user: Any
    ) -> AsyncIterator[KubeClient]:
        async with wire_server(authority, tmp_path, server):
            connection = Connection(kubeconfig=kubeconfig(server, **user), qps=-1)
            client = await KubeClient.open(connection, clock=clock)
            try:
                yield client
            finally:
                await client.close()

    return open_both


async def bind(client: KubeClient, body: bytes = b'{"kind":"Binding"}', **more: Any) -> bytes:
    return await client.send("POST", BINDING, body=body, resource="pods", key="web", frequent=True, **more)


async def created(asked: Asked) -> None:
    asked.answer(201, asked.body)


# --- what goes well --------------------------------------------------------------------------------


async def test_patch_has_its_content_type_and_query(opened: Opened) -> None:
    server = WireServer(created)
    async with opened(server) as client:
        answer = await client.request(
            "PATCH",
            "/api/v1/namespaces/default/pods/web/status",
            query={"fieldManager": "a b&c"},
            body={"status": {}},
            content_type="application/strategic-merge-patch+json",
            frequent=True,
        )
    assert answer == {"status": {}}
    [asked] = server.asked
    assert asked.headers[":method"] == "PATCH"
    assert asked.path == "/api/v1/namespaces/default/pods/web/status?fieldManager=a%20b%26c"
    assert asked.headers["content-type"] == "application/strategic-merge-patch+json"


async def test_requests_of_one_turn_share_a_connection_and_a_write(opened: Opened) -> None:
    server = WireServer()
    async with opened(server) as client:
        first = asyncio.ensure_future(bind(client))
        await until(lambda: len(server.asked) == 1)
        [connection] = server.connections
        reads = connection.reads
        others = [asyncio.ensure_future(bind(client)) for _ in range(40)]
        await until(lambda: len(server.asked) == 41)
        assert connection.reads == reads + 1
        for asked in reversed(server.asked):  # In another order than they were sent.
            asked.answer(201)
        await asyncio.gather(first, *others)
    assert len(server.connections) == 1


async def test_other_requests_take_the_session(opened: Opened) -> None:
    server = WireServer(created)
    async with opened(server) as client:
        # The server speaks HTTP/2 with those that offer it, and the session offers HTTP/1.1 alone.
        with pytest.raises(UnavailableError, match="no JSON"):
            await client.request("GET", "/api/v1/nodes/n1", body=b"no JSON")
        await bind(client)
        assert [type(asked.of) for asked in server.asked] == [ServedHttp1, ServedHttp2]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("window_bytes", [1, 100, 65_535])
async def test_body_larger_than_the_servers_window_arrives(opened: Opened, window_bytes: int) -> None:
    server = WireServer(created, {SettingCodes.INITIAL_WINDOW_SIZE: window_bytes})
    body = bytes(range(256)) * (2 if window_bytes < 100 else 400)
    async with opened(server) as client:
        assert await asyncio.gather(*(bind(client, body) for _ in range(3))) == [body] * 3


async def test_answer_larger_than_the_windows_arrives(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2, "WINDOW", 70_000)
    monkeypatch.setattr(http2, "CONNECTION_WINDOW", 140_000)
    large = bytes(range(256)) * 2000

    async def answer(asked: Asked) -> None:
        asked.answer(200, large)

    async with opened(WireServer(answer)) as client:
        assert await asyncio.gather(*(bind(client) for _ in range(3))) == [large] * 3


@pytest.mark.parametrize("table_bytes", [0, 100, 4096, 65_536])
async def test_any_size_of_the_servers_table_of_headers(opened: Opened, table_bytes: int) -> None:
    server = WireServer(created, {SettingCodes.HEADER_TABLE_SIZE: table_bytes})
    async with opened(server) as client:
        for _ in range(3):
            await bind(client)
    assert len({tuple(asked.headers.items()) for asked in server.asked}) == 1


async def test_token_of_twenty_kilobytes(opened: Opened) -> None:
    server = WireServer(created, {SettingCodes.MAX_HEADER_LIST_SIZE: 2**17})
    token = "x" * 20_000
    async with opened(server, token=token) as client:
        for connection in server.connections:
            connection.h2.decoder.max_header_list_size = 2**17
        await bind(client)
        await bind(client)
    assert [asked.headers["authorization"] for asked in server.asked] == [f"Bearer {token}"] * 2


async def test_more_requests_than_the_server_takes_at_once(opened: Opened) -> None:
    server = WireServer(None, {SettingCodes.MAX_CONCURRENT_STREAMS: 3})
    async with opened(server) as client:
        calls = [asyncio.ensure_future(bind(client)) for _ in range(8)]
        await until(lambda: len(server.asked) == 8)
        assert len(server.connections) == 3
        for asked in server.asked:
            asked.answer(201)
        await asyncio.gather(*calls)


async def test_answer_that_comes_byte_by_byte(opened: Opened) -> None:
    server = WireServer()
    async with opened(server) as client:
        calls = [asyncio.ensure_future(bind(client)) for _ in range(2)]
        await until(lambda: len(server.asked) == 2)
        [connection] = server.connections
        connection.held = raw = bytearray()
        for asked in server.asked:
            asked.answer(201, b'{"whole": true}')
        for byte in raw:
            connection.write(bytes((byte,)))
            await asyncio.sleep(0)
        assert await asyncio.gather(*calls) == [b'{"whole": true}'] * 2


# --- answers that are errors -----------------------------------------------------------------------


# --- connections that end --------------------------------------------------------------------------


async def test_request_on_a_connection_that_was_cut_meanwhile_opens_another(opened: Opened) -> None:
    server = WireServer(created)
    async with opened(server) as client:
        for _ in range(3):
            await bind(client)
            server.connections[-1].cut()
            await until(lambda: not client.lane.connection_count)
        assert len(server.asked) == len(server.connections) == 3


async def test_goaway_ends_the_requests_under_way_and_sends_again_those_it_leaves_out(opened: Opened) -> None:
    server = WireServer()
    async with opened(server) as client:
        calls = [asyncio.ensure_future(bind(client)) for _ in range(3)]
        await until(lambda: len(server.asked) == 3)
        first, second, _ = server.asked
        first.of.h2.close_connection(ErrorCodes.NO_ERROR, b"bye", last_stream_id=second.stream)
        first.of.flush()
        await until(lambda: len(server.asked) == 4)
        again = server.asked[3]
        assert again.of is not first.of
        again.answer(201, b"again")
        assert await calls[2] == b"again"
        assert not calls[0].done()
        assert not calls[1].done()
        # The library sends nothing more after a GOAWAY: the answers are written by hand.
        for asked, call in ((first, calls[0]), (second, calls[1])):
            asked.of.write(
                b"\0\0\1\1\4" + asked.stream.to_bytes(4, "big") + b"\x88"
                b"\0\0\2\0\1" + asked.stream.to_bytes(4, "big") + b"{}"
            )
            assert await call == b"{}"
        await until(lambda: client.lane.connection_count == 1)


async def test_refused_stream_is_sent_again_and_a_reset_one_is_not(opened: Opened) -> None:
    async def refuse(asked: Asked) -> None:
        code = codes.pop(0) if codes else None
        if code is None:
            asked.answer(201)
            return
        asked.of.h2.reset_stream(asked.stream, code)
        asked.of.flush()

    codes = [ErrorCodes.REFUSED_STREAM, ErrorCodes.REFUSED_STREAM]
    server = WireServer(refuse)
    async with opened(server) as client:
        await bind(client)
        assert len(server.asked) == 3
        codes.append(ErrorCodes.INTERNAL_ERROR)
        with pytest.raises(UnavailableError, match="reset the request's stream: INTERNAL_ERROR") as caught:
            await bind(client)
        assert not isinstance(caught.value, RepeatableError)
        assert len(server.asked) == 4
        codes += [ErrorCodes.REFUSED_STREAM] * 9
        with pytest.raises(RepeatableError, match="stream: REFUSED_STREAM"):
            await bind(client)
        assert len(server.asked) == 8


@pytest.mark.parametrize("way", ["stream", "goaway"])
async def test_server_that_asks_for_http1_gets_every_request_over_http1(opened: Opened, way: str) -> None:
    async def demand(asked: Asked) -> None:
        if isinstance(asked.of, ServedHttp1):
            asked.answer(201, asked.body)
            return
        if way == "stream":
            asked.of.h2.reset_stream(asked.stream, ErrorCodes.HTTP_1_1_REQUIRED)
        else:
            asked.of.h2.close_connection(ErrorCodes.HTTP_1_1_REQUIRED, last_stream_id=0)
        asked.of.flush()

    server = WireServer(demand)
    async with opened(server) as client:
        bodies = [b'{"number": %d}' % number for number in range(3)]
        assert await asyncio.gather(*(bind(client, body) for body in bodies)) == bodies
        assert await bind(client) == b'{"kind":"Binding"}'
        over_http2 = [one for one in server.connections if isinstance(one, ServedHttp2)]
        assert len(over_http2) == 1
        over_http1 = [asked for asked in server.asked if isinstance(asked.of, ServedHttp1)]
        assert sorted(asked.body for asked in over_http1) == [b'{"kind":"Binding"}', *bodies]


async def test_request_whose_answer_began_is_not_sent_again_over_http1(opened: Opened) -> None:
    async def begin(asked: Asked) -> None:
        if isinstance(asked.of, ServedHttp1):
            asked.answer(201, b"over HTTP/1.1")
            return
        asked.of.h2.send_headers(asked.stream, [(":status", "201")])
        asked.of.h2.reset_stream(asked.stream, ErrorCodes.HTTP_1_1_REQUIRED)
        asked.of.flush()

    server = WireServer(begin)
    async with opened(server) as client:
        with pytest.raises(UnavailableError, match="stream: HTTP_1_1_REQUIRED") as caught:
            await bind(client)
        assert not isinstance(caught.value, RepeatableError)
        assert await bind(client) == b"over HTTP/1.1"
        assert len(server.asked) == 2


async def test_silent_server_is_pinged_and_then_left(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_client, "TICK_S", 0.01)
    for name, seconds in (("PING_AFTER_S", 0.02), ("PING_TIMEOUT_S", PATIENCE_S)):
        monkeypatch.setattr(http2, name, seconds)
    server = WireServer()
    async with opened(server) as client:
        call = asyncio.ensure_future(bind(client))
        await until(lambda: len(server.asked) == 1)
        await asyncio.sleep(0.2)  # Answers to PING keep the connection.
        assert not call.done()
        monkeypatch.setattr(http2, "PING_TIMEOUT_S", 0.05)
        server.acknowledges = False
        with pytest.raises(UnavailableError, match="no answer to a PING"):
            await call


async def test_silent_server_is_left_although_each_request_times_out_before_it_is_pinged(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few requests, one after the other, over a connection that a firewall has forgotten."""
    for name, seconds in (("TICK_S", 0.01), ("RESTED_S", 0.01)):
        monkeypatch.setattr(write_client, name, seconds)
    for name, seconds in (("PING_AFTER_S", 0.3), ("PING_TIMEOUT_S", 0.15)):
        monkeypatch.setattr(http2, name, seconds)
    server = WireServer(acknowledges=False)
    async with opened(server) as client:
        for _ in range(20):
            with pytest.raises(UnavailableError):
                await bind(client, timeout_s=0.1)
            await asyncio.sleep(0.02)  # The connection rests.
    assert len(server.connections) > 1


async def test_server_that_takes_no_request_is_an_error(opened: Opened) -> None:
    async with opened(WireServer(None, {SettingCodes.MAX_CONCURRENT_STREAMS: 0})) as client:
        with pytest.raises(RepeatableError, match="MAX_CONCURRENT_STREAMS 0"):
            await bind(client)


async def test_server_that_ends_before_its_settings_has_acted_on_nothing(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServedHttp2, "connection_made", lambda _, transport: transport.abort())
    async with opened(WireServer(created)) as client:
        with pytest.raises(RepeatableError, match="was lost"):
            await bind(client)


# --- a peer that sends anything ----------------------------------------------------------------------


def frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + number.to_bytes(4, "big") + payload


@asynccontextmanager
async def three_requests(
    transport: MemoryTransport | None = None,
) -> AsyncIterator[tuple[Http2Connection, list[asyncio.Future[None]]]]:
    connection = Http2Connection([(":authority", "x")], lambda _: None)
    connection.connection_made(transport or MemoryTransport())
    connection.data_received(frame(4, 0, 0, b""))
    ends_s = asyncio.get_running_loop().time() + 30.0
    calls = [connection.begin("POST", "/x", b"{}", "a/b", ends_s).answer for _ in range(3)]
    await asyncio.sleep(0)
    yield connection, calls
    connection.close()
    await asyncio.gather(*calls, return_exceptions=True)


WRONG = {
    "no SETTINGS first": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "bytes"),
    "frame too long": (b"\xff\xff\xff\0\0\0\0\0\0", "a frame of 16777215 bytes"),
    "data before headers": (frame(0, 0, 1, b"x"), "an answer without headers"),
    "answer to nothing": (frame(1, 4, 99, b"\x88"), "request 99, which was not made"),
    "headers unreadable": (frame(1, 4, 1, b"\xff\xff\xff\xff\xff\xff"), "headers that cannot be read"),
    "headers without status": (frame(1, 4, 1, b"\x90"), "without a status"),
    "interrupted headers": (frame(1, 0, 1, b"\x88") + frame(6, 0, 0, bytes(8)), "interrupts"),
    "continuation of nothing": (frame(9, 4, 1, b"\x88"), "CONTINUATION"),
    "two heads": (frame(1, 4, 1, b"\x88") * 2, "two blocks"),
    "too much padding": (frame(0x1, 0x4 | 0x8, 1, b"\x09\x88"), "padding"),
    "push": (frame(5, 4, 1, bytes(4)), "PUSH_PROMISE"),
    "window": (frame(8, 0, 0, b"\x7f\xff\xff\xff") * 2, "window"),
    "cut settings": (frame(4, 0, 0, b"\0"), "SETTINGS"),
    "window of a stream": (frame(8, 0, 1, b"\x7f\xff\xff\xff") * 2, "window"),
    "initial window": (frame(4, 0, 0, b"\0\x04\xff\xff\xff\xff"), "window"),
    "endless headers": (frame(1, 0, 1, b"\x88") + frame(9, 0, 1, b"") * 2000, "headers of more than"),
    "large headers": (frame(1, 0, 1, b"\x88") + frame(9, 0, 1, bytes(16_000)) * 20, "headers of more than"),
    "status": (frame(1, 4, 1, b"\x08\x03\xb2\xb2\xb2"), "the status|cannot be read"),
    "end with an interim status": (frame(1, 5, 1, b"\x08\x03103"), "ends with 103"),
    "short priority": (frame(1, 0x24, 1, b"\x88"), "without a status"),
    "short reset": (frame(3, 0, 1, b""), "RST_STREAM"),
    "short window": (frame(8, 0, 0, b""), "WINDOW_UPDATE"),
    "padded data": (frame(1, 4, 1, b"\x88") + frame(0, 8, 1, b"\x05abc"), "padding"),
    "short ping": (frame(6, 0, 0, b""), "PING"),
    "short goaway": (frame(7, 0, 0, b""), "GOAWAY"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_what_is_no_http2_ends_all_requests_and_says_what_it_was(name: str) -> None:
    raw, said = WRONG[name]
    async with three_requests() as (connection, calls):
        connection.data_received(raw)
        assert connection.is_closed
        for call in calls:
            with pytest.raises(ConnectionLostError, match=said):
                await call


async def test_padding_priority_interim_answers_and_trailers_are_read() -> None:
    async with three_requests() as (connection, calls):
        first = next(iter(connection.asked))
        connection.data_received(
            frame(1, 4, 1, b"\x08\x03103")
            + frame(1, 0x8 | 0x20, 1, b"\x03" + bytes(5) + b"\x08" + bytes(3))
            + frame(9, 4, 1, b"\x03201")
            + frame(0, 8, 1, b"\x02ab" + bytes(2))
            + frame(0, 0, 1, b"")
            + frame(0, 0, 1, b"c")
            + frame(11, 255, 7, b"a frame of an unknown kind")
            + frame(1, 5, 1, b"\x0f\x0d\x01x")
        )
        await calls[0]
        assert (first.status, b"".join(first.parts)) == (201, b"abc")
        assert not connection.is_closed


@pytest.mark.parametrize("code", range(15))
async def test_reset_stream_is_repeatable_only_if_the_server_refused_it(code: int) -> None:
    """Also NO_ERROR: without END_STREAM the answer is cut off."""
    async with three_requests() as (connection, calls):
        connection.data_received(
            frame(1, 4, 1, b"\x88") + frame(0, 0, 1, b"{") + frame(3, 0, 1, code.to_bytes(4, "big"))
        )
        with pytest.raises(ConnectionLostError) as caught:
            await calls[0]
        assert isinstance(caught.value, NotActedOnError) == (code == ErrorCodes.REFUSED_STREAM)
        assert connection.wants_http1 == (code == ErrorCodes.HTTP_1_1_REQUIRED)
        assert not calls[1].done()


async def test_second_goaway_leaves_out_more() -> None:
    async with three_requests() as (connection, calls):
        connection.data_received(frame(7, 0, 0, b"\x7f\xff\xff\xff" + bytes(4)))
        assert connection.is_retired
        assert not any(call.done() for call in calls)
        connection.data_received(frame(7, 0, 0, (1).to_bytes(4, "big") + (2).to_bytes(4, "big")))
        for call in calls[1:]:
            with pytest.raises(NotActedOnError, match="GOAWAY: INTERNAL_ERROR"):
                await call
        connection.data_received(frame(1, 5, 1, b"\x88"))
        await calls[0]
        assert connection.is_closed


async def test_request_that_was_not_written_yet_may_be_sent_again_when_the_connection_ends() -> None:
    for end in ("lost", "garbage", "closed here"):
        transport = MemoryTransport()
        async with three_requests(transport) as (connection, calls):
            late = connection.begin("POST", "/late", b"{}", "a/b", 1e9).answer
            if end == "lost":
                connection.connection_lost(ConnectionResetError())
            elif end == "garbage":
                connection.data_received(b"x" * 20)
            else:
                connection.close()
            with pytest.raises(NotActedOnError):
                await late
            for call in calls:
                with pytest.raises(ConnectionLostError) as caught:
                    await call
                assert not isinstance(caught.value, NotActedOnError)
            assert b"/late" not in transport.written


async def test_request_on_a_transport_that_closes_was_not_acted_on() -> None:
    transport = MemoryTransport()
    async with three_requests(transport) as (connection, _):
        transport.is_aborted = True
        late = connection.begin("POST", "/late", b"{}", "a/b", 1e9).answer
        await asyncio.sleep(0)
        connection.connection_lost(None)
        with pytest.raises(NotActedOnError):
            await late


@pytest.mark.parametrize("raw", [frame(6, 0, 0, bytes(8)), frame(4, 0, 0, b"")], ids=["PING", "SETTINGS"])
async def test_server_that_floods_and_does_not_read_is_left(raw: bytes) -> None:
    async with three_requests() as (connection, calls):
        for _ in range(30):  # It may send many, as long as it reads.
            connection.data_received(raw * 1000)
            await asyncio.sleep(0)
        assert not connection.is_closed
        connection.pause_writing()
        for _ in range(30):
            if not connection.is_closed:
                connection.data_received(raw * 1000)
                await asyncio.sleep(0)
        assert connection.is_closed
        with pytest.raises(ConnectionLostError, match="without reading"):
            await calls[0]


async def test_last_stream_numbers_retire_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with three_requests() as (connection, calls):
        monkeypatch.setattr(connection, "_next_number", 2**31 - 2**20 + 1)
        connection.check(0.0)
        assert connection.is_retired
        assert not connection.has_room
        connection.data_received(frame(1, 5, 1, b"\x88"))
        await calls[0]


async def test_window_of_a_stream_may_become_negative(opened: Opened) -> None:
    server = WireServer(created, {SettingCodes.INITIAL_WINDOW_SIZE: 1000})
    body = bytes(range(256)) * 20
    async with opened(server) as client:
        await bind(client)
        [connection] = server.connections
        call = asyncio.ensure_future(bind(client, body))
        await until(lambda: len(server.asked) == 2 or connection.body_bytes >= 1000)
        connection.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        connection.flush()
        assert await call == body


async def test_server_that_takes_no_more_requests_for_a_while_gets_them_later(opened: Opened) -> None:
    server = WireServer(created, {SettingCodes.MAX_CONCURRENT_STREAMS: 5})
    async with opened(server) as client:
        await bind(client)
        [connection] = server.connections
        server.settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 0}  # For new connections.
        connection.h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: 0})
        connection.flush()
        await until(lambda: connection.acknowledged >= 2)
        calls = [asyncio.ensure_future(bind(client)) for _ in range(3)]
        # The client looks for another connection, and finds that it would take no request either.
        await until(lambda: len(server.connections) == 2)
        assert len(server.asked) == 1
        connection.h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: 5})
        connection.flush()
        await asyncio.gather(*calls)
    assert [asked.of for asked in server.asked] == [connection] * 4


ANY_FRAMES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.builds(
            frame,
            st.integers(0, 12),
            st.integers(0, 255),
            st.sampled_from((0, 1, 2, 3, 5, 7, 2**31 - 1)),
            st.one_of(st.binary(max_size=20), st.sampled_from((b"\x88", b"\x08\x03201", bytes(4)))),
        ),
    ),
    max_size=12,
)


def feed(pieces: list[bytes]) -> None:
    """Feed what a peer sends: each request ends at the latest with the connection, and in one way."""

    async def run() -> None:
        async with three_requests() as (connection, calls):
            for piece in pieces:
                connection.data_received(piece)
                await asyncio.sleep(0)
                if connection.is_closed:
                    break
            open_count = sum(not call.done() for call in calls)
            await asyncio.sleep(0)
            assert len(connection.asked) == open_count or connection.is_closed
        assert all(call.done() for call in calls)
        for call in calls:
            error = call.exception()
            assert error is None or isinstance(error, ConnectionLostError | TimeoutError)

    asyncio.run(run())


@settings(max_examples=examples(150), deadline=None)
@given(ANY_FRAMES)
def test_any_bytes_of_a_peer_end_or_keep_the_connection(pieces: list[bytes]) -> None:
    feed(pieces)


@pytest.mark.long
@settings(max_examples=examples(1_500), deadline=None)
@given(ANY_FRAMES)
def test_any_bytes_of_a_peer_end_or_keep_the_connection_at_length(pieces: list[bytes]) -> None:
    feed(pieces)


def test_blocks_of_headers_are_read_by_another_implementation() -> None:
    constant = [(":authority", "a:1"), ("accept", "x" * 200), ("odd-name", "v" * 5000), ("user-agent", "b")]
    for table_bytes in (0, 60, 300, 4096):
        encoder = HeadEncoder(table_bytes, constant)
        decoder = hpack.Decoder()
        for length in (0, 17, 10**6):
            block = encoder.block("DELETE", "/" + "p" * 300, "t" * 130, length)
            assert [tuple(map(str, header)) for header in decoder.decode(block)] == [
                (":method", "DELETE"),
                (":scheme", "https"),
                constant[0],
                (":path", "/" + "p" * 300),
                *constant[1:],
                ("content-type", "t" * 130),
                ("content-length", str(length)),
            ]


@pytest.mark.parametrize("name", range(8, 15))
def test_status_that_was_read_once_is_known_by_its_first_bytes(name: int) -> None:
    """A server may name the status by each of its places in the static table (RFC 7541, appendix A)."""
    value = f"{230 + name}".encode()
    block = bytes([name, len(value)]) + value
    assert status_of(block) is None
    assert read_block(block) == (230 + name, "")
    assert status_of(block + b"\x88") == 230 + name
