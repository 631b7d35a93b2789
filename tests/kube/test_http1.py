"""HTTP/1.1 of the frequent requests: answers in every form, and what is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from berth_host.errors.cluster import RepeatableError, TooManyRequestsError, UnavailableError
from berth_kube import http1
from berth_kube.client import KubeClient
from berth_kube.connection import Connection
from berth_kube.http1 import Http1Connection, Http1Heads
from berth_kube.write_connection import ConnectionLostError, NotActedOnError, WriteConnection
from hypothesis import given, settings
from hypothesis import strategies as st
from support.certificates import Authority
from support.memory_transport import MemoryTransport
from support.tiers import examples
from support.waiting import until
from support.wire_asked import Asked, WireServer
from support.wire_server import wire_server


@asynccontextmanager
async def served(
    folder: Path, handler: Callable[[Asked], Awaitable[None]]
) -> AsyncIterator[tuple[WireServer, KubeClient]]:
    """Serve over plain HTTP/1.1, and open a client."""
    server = WireServer(handler, protocol="http/1.1", is_tls=False)
    async with wire_server(Authority(), folder, server):
        client = await KubeClient.open(Connection(master=server.url, qps=-1))
        try:
            yield server, client
        finally:
            await client.close()


async def post(client: KubeClient, body: bytes = b"{}", **more: float) -> bytes:
    return await client.send("POST", "/x", body=body, resource="pods", key="web", frequent=True, **more)  # type: ignore[arg-type]  # keywords of the tests


OK = b"HTTP/1.1 200 OK\r\n"
GOOD = {
    "length": (OK + b"Content-Length: 2\r\n\r\nab", b"ab", True),
    "empty": (OK + b"content-length:0\r\n\r\n", b"", True),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "chunks": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n1;x=y\r\na\r\n2\r\nbc\r\n0\r\nT: 1\r\n\r\n",
        b"abc",
        True,
    ),
    "interim": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n"
        + OK
        + b"Content-Length: 1\r\n\r\na",
        b"a",
        True,
    ),
    "last one": (OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nab", b"ab", False),
    "old version": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab", b"ab", False),
}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("piece", [1, 10_000], ids=["byte by byte", "at once"])
async def test_answer_in_any_form(tmp_path: Path, name: str, piece: int) -> None:
    raw, body, is_kept = GOOD[name]

    async def answer(asked: Asked) -> None:
        for place in range(0, len(raw), piece):
            asked.of.write(raw[place : place + piece])
            await asyncio.sleep(0)

    async with served(tmp_path, answer) as (server, client):
        for _ in range(3):
            assert await post(client) == body
    assert len(server.connections) == (1 if is_kept else 3)


async def test_end_of_the_connection_ends_an_answer_without_length(tmp_path: Path) -> None:
    async def answer(asked: Asked) -> None:
        asked.of.write(OK + b"\r\nabc")
        asked.of.transport.close()

    async with served(tmp_path, answer) as (server, client):
        assert [await post(client) for _ in range(2)] == [b"abc"] * 2
    assert len(server.connections) == 2


CUT_OFF = {
    "nothing": b"",
    "head": OK + b"Content-Le",
    "body": OK + b"Content-Length: 10\r\n\r\nabc",
    "chunks": OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\n",
}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("name", CUT_OFF)
async def test_answer_that_is_cut_off_is_lost_and_not_asked_for_again(tmp_path: Path, name: str) -> None:
    async def answer(asked: Asked) -> None:
        asked.of.write(CUT_OFF[name])
        asked.of.transport.close()

    async with served(tmp_path, answer) as (server, client):
        with pytest.raises(UnavailableError, match="was lost: the server closed it") as caught:
            await post(client)
        assert not isinstance(caught.value, RepeatableError)
    assert len(server.asked) == 1


WRONG = {
    "no HTTP": b"SSH-2.0-OpenSSH_9\r\n",
    "HTTP/2": b"\0\0\0\x04\0\0\0\0\0",
    "status": b"HTTP/1.1 abc OK\r\n\r\n",
    "two lengths": OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nab",
    "length and chunks": OK + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\nab",
    "no number": OK + b"Content-Length: two\r\n\r\nab",
    "chunk": OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "other protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "endless head": OK + b"a: b\r\n" * 20_000,
    "endless interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000,
    "endless field": OK + b"a: " + b"x" * 100_000,
}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("name", WRONG)
async def test_what_is_no_answer_is_named_and_not_asked_for_again(tmp_path: Path, name: str) -> None:
    async def answer(asked: Asked) -> None:
        asked.of.write(WRONG[name])

    async with served(tmp_path, answer) as (server, client):
        with pytest.raises(UnavailableError, match=r"was lost: it sent what is no HTTP/1.1: \S") as caught:
            await post(client)
        assert not isinstance(caught.value, RepeatableError)
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    "more",
    [OK + b"Content-Length: 5\r\n\r\nwrong", b"xyz", b"\0"],
    ids=["another answer", "text", "zero"],
)
async def test_bytes_behind_an_answer_answer_no_other_request(tmp_path: Path, more: bytes) -> None:
    async def answer(asked: Asked) -> None:
        asked.of.write(OK + b"Content-Length: %d\r\n\r\n%b" % (len(asked.body), asked.body) + more)

    async with served(tmp_path, answer) as (server, client):
        for body in (b"a", b"bb", b"ccc"):
            assert await post(client, body) == body
    assert len(server.connections) == 3


async def test_connection_that_receives_anything_while_idle_is_not_used_again(tmp_path: Path) -> None:
    """A load balancer may send a 408 before it closes an idle connection."""

    async def answer(asked: Asked) -> None:
        asked.answer(200, asked.body)

    async with served(tmp_path, answer) as (server, client):
        assert await post(client, b"a") == b"a"
        server.connections[0].write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await until(lambda: client.lane.connection_count == 0)
        assert await post(client, b"b") == b"b"


async def test_answer_before_the_whole_request_was_read_is_taken(tmp_path: Path) -> None:
    body = b'{"kind": "Status", "message": "slow down"}'
    transports: list[asyncio.Transport] = []

    class Hasty(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transports.append(cast("asyncio.Transport", transport))

        def data_received(self, data: bytes) -> None:
            transports[-1].pause_reading()
            transports[-1].write(
                b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 60\r\nConnection: close\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )

    listening = await asyncio.get_running_loop().create_server(Hasty, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    client = await KubeClient.open(Connection(master=url, qps=-1))
    with pytest.raises(TooManyRequestsError, match="slow down") as caught:
        await post(client, b"x" * 20_000_000)
    assert caught.value.retry_after_s == 60
    await client.close()
    listening.close()
    for transport in transports:
        transport.abort()


# --- without a socket --------------------------------------------------------------------------------


def connection_in_memory(changes: list[WriteConnection]) -> tuple[Http1Connection, MemoryTransport]:
    transport = MemoryTransport()
    connection = Http1Connection(Http1Heads("", [("Host", "x")]), changes.append)
    connection.connection_made(transport)
    return connection, transport


async def test_request_on_a_transport_that_closes_was_not_acted_on() -> None:
    connection, transport = connection_in_memory([])
    transport.is_aborted = True
    asked = connection.begin("POST", "/x", b"{}", "a/b", 1e9)
    connection.connection_lost(None)
    with pytest.raises(NotActedOnError):
        await asked.answer
    assert not transport.written


async def test_idle_connection_closes_after_its_time_and_a_busy_one_does_not() -> None:
    connection, _ = connection_in_memory([])
    now_s = asyncio.get_running_loop().time() + http1.KEEP_ALIVE_S
    asked = connection.begin("POST", "/x", b"{}", "a/b", 1e9)
    connection.check(now_s)
    assert not connection.is_closed
    connection.data_received(GOOD["length"][0])
    await asked.answer
    connection.check(now_s + 1)
    assert connection.is_closed


PIECES = [raw for raw, _, _ in GOOD.values()] + list(CUT_OFF.values()) + list(WRONG.values())


def feed(pieces: list[bytes]) -> None:
    """Feed an answer in pieces; the request ends at the latest with the connection, and in one way."""

    async def run() -> None:
        changes: list[WriteConnection] = []
        connection, _ = connection_in_memory(changes)
        asked = connection.begin("POST", "/x", b"{}", "a/b", 1e9)
        for piece in pieces:
            was_done = asked.answer.done()
            connection.data_received(piece)
            assert not (was_done and piece) or connection.is_closed
            if connection.is_closed:
                break
            assert connection.has_room == asked.answer.done() == (not connection.asked)
        connection.connection_lost(None)
        assert asked.answer.done()
        error = asked.answer.exception()
        assert error is None or type(error) is ConnectionLostError
        assert (error is not None) or asked.status >= 200
        assert changes[-1] is connection
        assert not connection.has_room

    asyncio.run(run())


ANY_PIECES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from([b"\r\n", b"HTTP/1.1 200 OK\r\n", b"Content-Length: 3\r\n", b"0\r\n\r\n", b"abc"]),
        st.sampled_from(PIECES).flatmap(
            lambda raw: st.integers(0, len(raw)).map(lambda end: raw[: min(end, 300)])
        ),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(100), deadline=None)
@given(ANY_PIECES)
def test_any_bytes_end_the_request_or_wait_for_more(pieces: list[bytes]) -> None:
    feed(pieces)


@pytest.mark.long
@settings(max_examples=examples(1_500), deadline=None)
@given(ANY_PIECES)
def test_any_bytes_end_the_request_or_wait_for_more_at_length(pieces: list[bytes]) -> None:
    feed(pieces)
