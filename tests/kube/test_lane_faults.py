"""Frequent requests through a TCP proxy that cuts, holds, splits and garbles: nothing is sent twice.

Each request has a path of its own, so the server's list says how often it was acted on.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from berth_host.errors.cluster import ClusterError, RepeatableError, TimedOutError, UnavailableError
from berth_kube import write_client
from berth_kube.client import KubeClient
from berth_kube.connection import Connection
from berth_sdk.wire.verification import verify_as_go
from h2.errors import ErrorCodes
from support.certificates import Authority
from support.tcp_relay import Link, Relay, tcp_relay
from support.waiting import PATIENCE_S, until
from support.wire_asked import Asked, WireServer
from support.wire_server import server_context, wire_server

WIRES = {"h2": ("h2", True), "http/1.1": ("http/1.1", True), "plain": ("http/1.1", False)}


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """The protocol of the server."""
    return str(request.param)


@asynccontextmanager
async def behind(
    relay: Relay, authority: Authority, folder: Path, server: WireServer
) -> AsyncIterator[KubeClient]:
    """Start the server and the relay before it; yield a client of the relay."""
    async with wire_server(authority, folder, server):
        tls = None
        if server.is_tls:
            there = verify_as_go(ssl.create_default_context(cadata=authority.pem.decode()))
            there.set_alpn_protocols([server.protocol])
            tls = server_context(authority, folder, server.protocol), there
        async with tcp_relay(relay, server.port, tls=tls):
            ca, config = folder / "ca.crt", folder / "kubeconfig"
            ca.write_bytes(authority.pem)
            trust = f"certificate-authority: {ca}, " if server.is_tls else ""
            address = f"{'https' if server.is_tls else 'http'}://127.0.0.1:{relay.port}"
            config.write_text(
                "{apiVersion: v1, kind: Config, current-context: x,"
                " contexts: [{name: x, context: {cluster: c, user: u}}],"
                f" clusters: [{{name: c, cluster: {{{trust}server: '{address}'}}}}],"
                " users: [{name: u, user: {token: t0}}]}"
            )
            client = await KubeClient.open(Connection(kubeconfig=str(config), qps=-1))
            try:
                yield client
            finally:
                await client.close()


def made(wire: str, handler: object = None) -> WireServer:
    protocol, is_tls = WIRES[wire]
    return WireServer(handler, protocol=protocol, is_tls=is_tls)  # type: ignore[arg-type]  # the tests' handlers


async def bind(client: KubeClient, name: str, **more: float) -> bytes:
    return await client.send(
        *("POST", f"/pods/{name}"),
        body=name.encode(),
        resource="pods",
        key=name,
        frequent=True,
        **more,  # type: ignore[arg-type]  # keywords of the tests
    )


async def outcome(client: KubeClient, name: str, **more: float) -> ClusterError | None:
    """Send one request; return its error, or None for its own answer."""
    try:
        answer = await bind(client, name, **more)
    except ClusterError as err:
        return err
    assert answer == name.encode()
    return None


def acted_on(asked: list[Asked]) -> Counter[str]:
    return Counter(one.path.removeprefix("/pods/") for one in asked)


def check_law(outcomes: dict[str, ClusterError | None], acted: Counter[str]) -> None:
    """Check that no request was acted on twice, nor otherwise than its outcome says."""
    for name, error in outcomes.items():
        assert acted[name] <= 1, (name, error)
        if error is None:
            assert acted[name] == 1, name
        elif isinstance(error, RepeatableError):
            assert acted[name] == 0, (name, error)


async def leave(client: KubeClient, server: WireServer) -> None:
    """Cut all connections, and wait until the client has seen it."""
    for connection in server.connections:
        connection.cut()
    await until(lambda: client.lane.connection_count == 0)


async def created(asked: Asked) -> None:
    asked.answer(201, asked.body)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("way", ["up", "down"])
async def test_connection_that_is_cut_at_any_place(
    authority: Authority, tmp_path: Path, wire: str, way: str
) -> None:
    server, relay = made(wire, created), Relay()
    async with behind(relay, authority, tmp_path, server) as client:
        assert await outcome(client, "whole") is None
        whole = getattr(relay.links[0], way).passed
        outcomes: dict[str, ClusterError | None] = {}
        places = {1, *(whole * part // 12 for part in range(1, 13)), whole - 1, whole * 10}
        for place in sorted(places):

            def cut(link: Link, place: int = place) -> None:
                getattr(link, way).left = place

            await leave(client, server)
            relay.made = cut
            names = [f"{place}-{number}" for number in range(2)]
            results = await asyncio.gather(*(outcome(client, name) for name in names))
            outcomes |= dict(zip(names, results, strict=True))
            await leave(client, server)
            relay.made = None
            assert await outcome(client, f"{place}-after") is None
        check_law(outcomes, acted_on(server.asked))
    assert any(error is not None for error in outcomes.values())
    assert any(error is None for error in outcomes.values())


async def test_answer_that_is_held_back_is_not_taken_for_another_one(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    monkeypatch.setattr(write_client, "TICK_S", 0.01)
    server, relay = made(wire, created), Relay()
    async with behind(relay, authority, tmp_path, server) as client:
        assert await outcome(client, "first") is None
        link = relay.links[0]
        link.down.is_open.clear()
        assert isinstance(await outcome(client, "held", timeout_s=0.2), TimedOutError)
        link.down.is_open.set()
        for number in range(3):
            assert await outcome(client, f"after-{number}") is None
    assert acted_on(server.asked) == Counter(["first", "held", "after-0", "after-1", "after-2"])


async def test_request_that_is_held_back_until_its_caller_is_gone_is_sent_once(
    authority: Authority, tmp_path: Path, wire: str
) -> None:
    server, relay = made(wire, created), Relay()
    async with behind(relay, authority, tmp_path, server) as client:
        assert await outcome(client, "first") is None
        relay.links[0].up.is_open.clear()
        call = asyncio.ensure_future(outcome(client, "held"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        relay.links[0].up.is_open.set()
        assert await outcome(client, "after") is None
    acted = acted_on(server.asked)
    assert acted["held"] <= 1
    assert acted["after"] == 1


async def test_pieces_of_any_size_are_put_together(authority: Authority, tmp_path: Path, wire: str) -> None:
    def in_small_pieces(link: Link) -> None:
        link.up.piece, link.down.piece = 7, 3

    server, relay = made(wire, created), Relay(in_small_pieces)
    async with behind(relay, authority, tmp_path, server) as client:
        outcomes = await asyncio.gather(*(outcome(client, f"p{number}") for number in range(5)))
    assert outcomes == [None] * 5
    assert acted_on(server.asked) == Counter(f"p{number}" for number in range(5))


async def test_bytes_that_change_on_the_way_end_requests_and_repeat_none(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    monkeypatch.setattr(write_client, "TICK_S", 0.01)
    rng = random.Random(31)

    def garble(data: bytes) -> bytes:
        if rng.random() < 0.5:
            return data
        place = rng.randrange(len(data))
        return data[:place] + bytes((data[place] ^ rng.randrange(1, 256),)) + data[place + 1 :]

    def garbles(link: Link) -> None:
        link.down.change = garble

    server, relay = made(wire, created), Relay(garbles)
    ended = 0
    async with behind(relay, authority, tmp_path, server) as client:
        for number in range(25):
            try:
                await bind(client, f"p{number}", timeout_s=0.3)
            except ClusterError:
                ended += 1
        relay.made = None
        for link in relay.links:
            link.down.change = None
        await asyncio.gather(*(outcome(client, f"last-{number}", timeout_s=0.3) for number in range(3)))
        assert await outcome(client, "healthy") is None
    assert ended
    assert max(acted_on(server.asked).values()) == 1


class Saboteur:
    """A handler that answers, or sabotages its connection, by chance. `acted`: what it acted on."""

    def __init__(self, seed: int, wire: str) -> None:
        self.acted: list[Asked] = []
        self._rng = random.Random(seed)
        self._wire = wire
        self._leaving: set[object] = set()

    async def __call__(self, asked: Asked) -> None:
        for _ in range(self._rng.randrange(4)):
            await asyncio.sleep(0)
        chance = self._rng.random()
        if self._wire == "h2":
            self._over_http2(asked, chance)
        else:
            self._over_http1(asked, chance)

    def _over_http2(self, asked: Asked, chance: float) -> None:
        connection = asked.of
        if connection in self._leaving or connection.transport.is_closing():
            return
        if chance < 0.1:
            connection.h2.reset_stream(asked.stream, ErrorCodes.REFUSED_STREAM)
        elif chance < 0.15:
            last = max((one.stream for one in self.acted if one.of is connection), default=0)
            self._leaving.add(connection)
            connection.h2.close_connection(ErrorCodes.NO_ERROR, b"bye", last_stream_id=last)
        else:
            self.acted.append(asked)
            if chance < 0.2:
                connection.cut()
                return
            if chance < 0.3:
                connection.h2.reset_stream(asked.stream, ErrorCodes.INTERNAL_ERROR)
            else:
                asked.answer(201, asked.body)
        connection.flush()
        if connection in self._leaving:
            connection.transport.close()

    def _over_http1(self, asked: Asked, chance: float) -> None:
        connection = asked.of
        self.acted.append(asked)
        if chance < 0.05:
            connection.cut()
        elif chance < 0.1:
            connection.transport.close()
        elif chance < 0.15:
            connection.write(b"HTTP/1.1 201 Created\r\nContent-Length: 50\r\n\r\nhalf")
            connection.transport.close()
        else:
            asked.answer(201, asked.body)
            if chance < 0.2:
                connection.transport.close()


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 20), marks=pytest.mark.long)], ids=str)
async def test_law_holds_through_any_accidents(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wire: str, seeds: range
) -> None:
    monkeypatch.setattr(write_client, "TICK_S", 0.01)
    for seed in seeds:
        rng = random.Random(seed)

        def accident(link: Link, rng: random.Random = rng) -> None:
            if rng.random() < 0.3:
                link.up.left = rng.randrange(1, 4000)
            if rng.random() < 0.3:
                link.down.left = rng.randrange(1, 2000)
            if rng.random() < 0.3:
                link.up.piece = link.down.piece = rng.randrange(1, 100)

        saboteur = Saboteur(seed, wire)
        server, relay = made(wire, saboteur), Relay(accident)
        outcomes: dict[str, ClusterError | None] = {}
        async with behind(relay, authority, tmp_path, server) as client:
            for turn in range(10):
                names = [f"p{turn}-{number}" for number in range(rng.randrange(1, 9))]
                results = await asyncio.gather(
                    *(outcome(client, name, timeout_s=PATIENCE_S) for name in names)
                )
                outcomes |= dict(zip(names, results, strict=True))
        assert not [
            error
            for error in outcomes.values()
            if type(error) not in (type(None), UnavailableError, RepeatableError)
        ]
        check_law(outcomes, acted_on(saboteur.acted))
