"""HandleService over TLS on a real port: who gets in, with which token, and what keeps it closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_bench.versus.free_ports import free_port
from berth_host.attach.interfaces import WayBack
from berth_host.attach.peer import DialError
from berth_host.config.berth.configuration import HandleListener, TlsFiles
from berth_host.errors.state import InvariantError
from berth_host.handle import tls_port
from berth_host.handle.calls import HandleSeams
from berth_host.handle.server import HandleServer
from berth_host.handle.tls_port import TlsPort
from berth_host.listening.connections import MOST_OF_PEER
from berth_host.metrics.connection_metrics import ConnectionMetrics
from berth_sdk.plugin.v1 import handle_pb2, handle_pb2_grpc
from berth_sdk.results import WaitingPod
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs
from support.attached import ClusterState
from support.certificates import Authority, Pair, PairFiles, pair_files
from support.waiting import PATIENCE_S, until

PLUGIN, HOST = "gpu.example", "host.example"


class Backend:
    """Counts the questions that reach it."""

    def __init__(self) -> None:
        self.asked = 0

    def waiting_pods(self, plugin: str, only_mine: bool) -> list[WaitingPod]:
        self.asked += 1
        return []


class Side:
    """The host's side: its files, its port, what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority()
        self.files = pair_files(folder, "host", self.authority.issue("h", dns=HOST), self.authority)
        self.listener = listener(self.files, free_port())
        self.backend = Backend()
        self.server: HandleServer

    def plugin(self, **more: Any) -> Pair:
        """Return a certificate of the plugin."""
        return self.authority.issue("p", **{"dns": PLUGIN, **more})

    async def granted(self, tls_name: str = PLUGIN) -> WayBack:
        """For one attachment of `Demo`."""
        return await self.server.grant("a", frozenset({"Demo"}), tls_name=tls_name)

    @asynccontextmanager
    async def serving(
        self, own_address: str = "", metrics: ConnectionMetrics | None = None
    ) -> AsyncIterator[HandleServer]:
        backend: Any = self.backend
        nobody: Any = None
        seams = HandleSeams(
            backend=backend, state=ClusterState(), filters=nobody, descriptor_of=lambda name: None
        )
        self.server = HandleServer(seams, tls=TlsPort(self.listener, own_address, metrics))
        await self.server.start()
        try:
            yield self.server
        finally:
            await self.server.stop()


def listener(files: PairFiles, port: int, advertised: str = "") -> HandleListener:
    tls = TlsFiles(
        ca_file=str(files.authority),
        cert_file=str(files.certificate),
        key_file=str(files.key),
        server_name=HOST,
    )
    return HandleListener(bind_address=f"127.0.0.1:{port}", advertise_address=advertised, tls=tls)


@pytest.fixture
def side(tmp_path: Path) -> Side:
    return Side(tmp_path)


@asynccontextmanager
async def connected(way: WayBack, authority: Authority, pair: Pair | None) -> AsyncIterator[grpc.aio.Channel]:
    """Yield a new connection. `pair` None: without a certificate."""
    shown = (None, None) if pair is None else (pair.key, pair.certificate)
    options = [
        ("grpc.ssl_target_name_override", way.server_name or HOST),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    credentials = grpc.ssl_channel_credentials(authority.pem, *shown)
    async with grpc.aio.secure_channel(way.target, credentials, options=options) as channel:
        yield channel


async def ask(channel: grpc.aio.Channel, token: str) -> grpc.StatusCode:
    """OK, or the code of the refusal."""
    try:
        async for _ in handle_pb2_grpc.HandleServiceStub(channel).ListWaitingPods(
            handle_pb2.ListWaitingPodsRequest(plugin="Demo"),
            metadata=(("authorization", f"Bearer {token}"),),
            timeout=PATIENCE_S,
        ):
            pass
    except grpc.aio.AioRpcError as err:
        return err.code()
    return grpc.StatusCode.OK


async def asked_by(way: WayBack, authority: Authority, pair: Pair | None, token: str = "") -> grpc.StatusCode:
    async with connected(way, authority, pair) as channel:
        return await ask(channel, token or way.token)


async def test_the_plugin_with_its_certificate_and_its_token_is_answered(side: Side) -> None:
    async with side.serving():
        way = await side.granted()
        assert (way.target, way.server_name) == (side.listener.bind_address, HOST)
        assert way.token not in repr(way)
        assert await asked_by(way, side.authority, side.plugin()) is grpc.StatusCode.OK
        assert side.backend.asked == 1


async def test_nobody_without_a_certificate_of_the_authority_reaches_a_call(side: Side) -> None:
    strangers = {
        "none": None,
        "another authority": Authority("other").issue("p", dns=PLUGIN),
        "expired": side.plugin(expired=True),
        "not yet valid": side.plugin(early=True),
    }
    async with side.serving():
        way = await side.granted()
        for pair in strangers.values():
            assert await asked_by(way, side.authority, pair) is grpc.StatusCode.UNAVAILABLE
        async with grpc.aio.insecure_channel(way.target) as channel:
            assert await ask(channel, way.token) is grpc.StatusCode.UNAVAILABLE
        # Health asks for no token, but for a certificate.
        async with connected(way, side.authority, None) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(), timeout=PATIENCE_S
                )
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert side.backend.asked == 0


async def test_token_is_refused_with_another_certificate(side: Side) -> None:
    async with side.serving():
        way = await side.granted()
        with capture_logs() as lines:
            code = await asked_by(way, side.authority, side.plugin(dns="other.example"))
            assert code is grpc.StatusCode.UNAUTHENTICATED
            assert await asked_by(way, side.authority, side.plugin(), "0" * 64) is code
            way_here = await side.granted("")
            over_tls = replace(way_here, target=way.target)
            assert await asked_by(over_tls, side.authority, side.plugin()) is code
            async with grpc.aio.insecure_channel(way_here.target) as channel:
                assert await ask(channel, way.token) is code  # ended by the newer one
                way = await side.granted()
                assert await ask(channel, way.token) is code
    assert side.backend.asked == 0
    assert [line["reason"] for line in lines if line["event"] == "audit.call_refused"] == [
        f"the token is for a certificate that names {PLUGIN}, and this call shows one that names p,"
        " other.example",
        "no token of an attachment",
        "the token is for this machine",
        "no token of an attachment",
        f"the token is for a certificate that names {PLUGIN}, and this call shows none",
    ]


async def test_replaced_files_take_effect_with_the_next_connection(side: Side) -> None:
    old, new = side.authority, Authority("new")
    async with side.serving():
        way = await side.granted()
        async with connected(way, old, side.plugin()) as standing:
            assert await ask(standing, way.token) is grpc.StatusCode.OK
            side.files.put(new.issue("h", dns=HOST), new)
            assert await asked_by(way, new, new.issue("p", dns=PLUGIN)) is grpc.StatusCode.OK
            assert await asked_by(way, old, side.plugin()) is grpc.StatusCode.UNAVAILABLE
            assert await ask(standing, way.token) is grpc.StatusCode.OK  # it outlives its certificates
        with capture_logs() as lines:
            side.files.key.write_text("no PEM")
            assert await asked_by(way, new, new.issue("p", dns=PLUGIN)) is grpc.StatusCode.OK
        (line,) = lines
        assert line["event"] == "handle.certificate_kept"
        assert str(side.files.key) in line["error"]


async def test_reason_of_a_closed_tls_port_is_reported_until_it_is_corrected(side: Side) -> None:
    async with side.serving():
        side.files.key.write_text("no PEM")
        with pytest.raises(DialError, match=r"whose handle\.tls cannot be used: .*host\.key"):
            await side.granted()
        side.files.put(side.authority.issue("h", dns=HOST), side.authority)
        nobody = asyncio.start_server(lambda reader, writer: None, *side.listener.bind_address.split(":"))
        async with await nobody:
            with pytest.raises(DialError, match=r"cannot listen at handle\.bindAddress .*the port free\?"):
                await side.granted()
        way = await side.granted()
        assert await asked_by(way, side.authority, side.plugin()) is grpc.StatusCode.OK


async def test_tls_port_is_opened_once_for_concurrent_attachments(side: Side) -> None:
    async with side.serving() as server:
        grants = [server.grant(f"a{number}", frozenset({"Demo"}), tls_name=PLUGIN) for number in range(8)]
        ways = await asyncio.gather(*grants)
        assert len({way.token for way in ways}) == 8
        for way in ways:
            assert await asked_by(way, side.authority, side.plugin()) is grpc.StatusCode.OK
    async with side.serving():  # the port is free again
        await side.granted()


@pytest.mark.parametrize(
    ("bind", "advertised", "own", "target"),
    [
        pytest.param("0.0.0.0", "host.example:443", "10.1.2.3", "host.example:443", id="as it is told"),
        pytest.param("0.0.0.0", "", "10.1.2.3", "10.1.2.3:PORT", id="its pod's"),
        pytest.param("[::]", "", "fd00::1", "[fd00::1]:PORT", id="its pod's, version six"),
        pytest.param("127.0.0.1", "", "10.1.2.3", "127.0.0.1:PORT", id="the one it listens at"),
    ],
)
async def test_grants_over_tls_have_the_address_of_the_host(
    side: Side, bind: str, advertised: str, own: str, target: str
) -> None:
    port = side.listener.bind_address.rpartition(":")[2]
    side.listener = replace(side.listener, bind_address=f"{bind}:{port}", advertise_address=advertised)
    async with side.serving(own):
        assert (await side.granted()).target == target.replace("PORT", port)


async def test_host_without_a_known_address_reports_that(side: Side) -> None:
    port = side.listener.bind_address.rpartition(":")[2]
    side.listener = replace(side.listener, bind_address=f"0.0.0.0:{port}")
    async with side.serving():
        with pytest.raises(DialError, match=r"set handle\.advertiseAddress, or POD_IP"):
            await side.granted()


async def test_server_name_defaults_to_the_host_of_the_address(side: Side) -> None:
    side.listener = replace(side.listener, tls=replace(side.listener.tls, server_name=""))
    async with side.serving():
        assert (await side.granted()).server_name == "127.0.0.1"


async def test_server_without_tls_grants_no_endpoint_over_tls() -> None:
    nobody: Any = None
    seams = HandleSeams(backend=nobody, state=ClusterState(), filters=nobody, descriptor_of=lambda name: None)
    server = HandleServer(seams)
    assert not server.over_tls
    await server.start()
    try:
        with pytest.raises(InvariantError):
            await server.grant("a", frozenset({"Demo"}), tls_name=PLUGIN)
    finally:
        await server.stop()


async def test_idle_connections_of_strangers_leave_room_for_the_plugin(side: Side) -> None:
    metrics = ConnectionMetrics()
    async with side.serving(metrics=metrics):
        way = await side.granted()
        host, _, port = way.target.rpartition(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(200)]
        try:
            assert await asked_by(way, side.authority, side.plugin()) is grpc.StatusCode.OK
            families = [family for source in metrics.sources if (family := source.collect()) is not None]
            shown = [sample for family in families for sample in family.samples]
            open_now = [one.value for one in shown if one.name == "berth_open_connections"]
            assert 0 < sum(open_now) <= MOST_OF_PEER
        finally:
            for _, writer in opened:
                writer.close()


async def test_connections_are_closed_when_the_authority_is_another_one(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_port, "LOOK_S", 0.02)
    other = Authority("other")
    async with side.serving():
        way = await side.granted()
        async with connected(way, side.authority, side.plugin()) as channel:
            assert await ask(channel, way.token) is grpc.StatusCode.OK
            # The host's own certificate stays: only who may connect is another one.
            side.files.authority.write_bytes(other.pem)
            await until(lambda: channel.get_state() is not grpc.ChannelConnectivity.READY)
            assert await ask(channel, way.token) is grpc.StatusCode.UNAVAILABLE
        assert await asked_by(way, side.authority, other.issue("p", dns=PLUGIN)) is grpc.StatusCode.OK


async def test_new_certificate_of_the_same_authority_closes_no_connection(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_port, "LOOK_S", 0.02)
    with capture_logs() as lines:
        async with side.serving():
            way = await side.granted()
            async with connected(way, side.authority, side.plugin()) as channel:
                assert await ask(channel, way.token) is grpc.StatusCode.OK
                side.files.put(side.authority.issue("h", dns=HOST), side.authority)
                await until(lambda: any(line["event"] == "handle.certificate_replaced" for line in lines))
                await asyncio.sleep(0.1)  # nothing happens, which no event tells
                assert channel.get_state() is grpc.ChannelConnectivity.READY
                assert await ask(channel, way.token) is grpc.StatusCode.OK
