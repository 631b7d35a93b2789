"""Strangers at the secure port: idle connections, handshakes, malformed and pipelined requests, long headers.

Every test reaches the port over real sockets with real TLS.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from berth_bench.versus.free_ports import free_port
from berth_host.config.loading import default_configuration
from berth_host.endpoints import front_door, server
from berth_host.endpoints.certificates import self_signed
from berth_host.endpoints.options import ServingOptions
from berth_host.listening import connections, listener
from berth_host.model import sparing_lines
from berth_host.model.user import ClientTrust
from berth_host.process import event_loop
from structlog.testing import capture_logs
from support.certificates import DAY_S, Authority, Pair
from support.later import later
from support.serving import FakeProcess, FakeSettings, KnownUsers, Served, client_context, served
from support.waiting import PATIENCE_S, until, wait_until

MASTERS = "system:masters"
BURST = int(sparing_lines.BURST_LINES)


@asynccontextmanager
async def port(users: KnownUsers | None = None, **serving: Any) -> AsyncIterator[Served]:
    settings = FakeSettings(serving=ServingOptions(**serving))
    async with served(FakeProcess(default_configuration()), users or KnownUsers(), settings) as found:
        yield found


def metric(found: Served, name: str, **labels: str) -> float:
    """Return the sum of the series of a family that have these labels."""
    metrics = vars(vars(found.endpoints.server)["_door"])["_metrics"]
    total = 0.0
    for source in metrics.sources:
        shown = source.collect()
        for sample in [] if shown is None else shown.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                total += sample.value
    return total


def counted(found: Served, event: str) -> float:
    return metric(found, "berth_connections_total", event=event)


def door_of(found: Served) -> front_door.FrontDoor:
    door: front_door.FrontDoor = vars(found.endpoints.server)["_door"]
    return door


def plain(context: ssl.SSLContext | None = None) -> ssl.SSLContext:
    context = context or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def files(folder: Path, pair: Pair) -> tuple[Path, Path]:
    paths = folder / "client.crt", folder / "client.key"
    for path, pem in zip(paths, pair, strict=True):
        path.write_bytes(pem)
    return paths


async def opened(
    found: Served, context: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", found.endpoints.server.port, ssl=context or plain())


async def idle_sockets(found: Served, count: int) -> list[socket.socket]:
    loop = asyncio.get_running_loop()
    made = []
    for _ in range(count):
        sock = socket.socket()
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", found.endpoints.server.port))
        made.append(sock)
    return made


async def is_ended(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while await reader.read(65536):
                pass
            return True
    except ConnectionError:
        return True


@pytest.fixture
def many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many handshakes as a test needs."""
    monkeypatch.setattr(server, "TURNS_PER_S", 1000.0)
    monkeypatch.setattr(listener, "BURST_TURNS", 1000.0)


# --- idle connections --------------------------------------------------------------------------------


async def test_idle_connections_of_a_peer_leave_room_for_a_probe_and_are_logged_and_counted() -> None:
    with capture_logs() as lines:
        async with port() as found:
            idle = await idle_sockets(found, 400)
            try:
                await until(lambda: counted(found, "accepted") + counted(found, "refused") >= 400)
                assert (await found.ask("GET", "/livez")).status == 200
                held = metric(found, "berth_open_connections")
                assert connections.MOST_OF_PEER // 2 < held <= connections.MOST_OF_PEER
                closed = counted(found, "closed_for_room") + counted(found, "refused")
                assert closed >= 400 - connections.MOST_OF_PEER
                left_out = metric(found, "berth_log_lines_left_out_total")
            finally:
                for sock in idle:
                    sock.close()
    said = [line for line in lines if line["event"] == "connection.closed"]
    assert 0 < len(said) <= BURST + 60
    assert len(said) + left_out == closed
    assert said[0]["port"] == "secure"
    assert said[0]["peer"] == "127.0.0.1"


async def test_oldest_silent_connection_is_closed_and_the_newest_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MOST_OF_PEER", 8)
    async with port() as found:
        first, *_ = idle = await idle_sockets(found, 9)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE_S):
            assert await loop.sock_recv(first, 1) == b""
        for sock in idle[1:]:
            with pytest.raises(BlockingIOError):
                sock.recv(1)
        for sock in idle:
            sock.close()


@pytest.mark.usefixtures("many_turns")
async def test_idle_connections_after_a_handshake_or_a_request_leave_room_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MOST_OF_PEER", 8)
    async with port() as found:
        idle = [await opened(found) for _ in range(8)]
        for _, writer in idle[::2]:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer nobody\r\n\r\n")
        for reader, _ in idle[::2]:
            assert b"401" in await reader.readline()
        assert (await found.ask("GET", "/livez")).status == 200
        # The one that was silent for longest has gone: it is the first that asked nothing.
        assert await is_ended(idle[1][0])
        for _, writer in idle:
            writer.close()


@pytest.mark.usefixtures("many_turns")
async def test_connection_of_a_caller_with_a_right_stays_while_strangers_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MOST_OPEN", 8)
    async with port() as found:
        reader, writer = await opened(found)
        asked = b"GET /flagz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer clusterAdmin\r\n\r\n"
        writer.write(asked)
        assert b"200" in await reader.readline()
        idle = await idle_sockets(found, 40)
        await until(lambda: metric(found, "berth_connections_total", event="accepted") >= 41)
        writer.write(asked)
        async with asyncio.timeout(PATIENCE_S):
            while not (await reader.readline()).startswith(b"HTTP/1.1 200"):
                pass
        assert metric(found, "berth_open_connections") <= 8
        for sock in idle:
            sock.close()
        writer.close()


def test_descriptors_run_out_for_nobody_on_a_process_with_few(tmp_path: Path) -> None:
    """A process with 128 descriptors has 400 idle connections, and answers a probe."""
    certificate, key = self_signed()
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "tls.key").write_bytes(key)
    script = tmp_path / "port.py"
    script.write_text(
        textwrap.dedent("""
        import asyncio, resource, sys
        from pathlib import Path
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))
        from berth_host import log
        from berth_host.endpoints.health import PING
        from berth_host.endpoints.options import ServingOptions
        from berth_host.endpoints.server import EndpointServer
        from berth_host.listening.descriptors import raise_descriptor_limit
        from berth_host.process import event_loop

        async def main():
            log.configure(output="json")
            print(raise_descriptor_limit(), flush=True)
            folder = Path(sys.argv[1])
            options = ServingOptions(
                bind_address="127.0.0.1", port=int(sys.argv[2]),
                cert_file=folder / "tls.crt", key_file=folder / "tls.key",
            )
            server = EndpointServer(options)
            server.add_checks("livez", [PING])
            await server.start()
            print(server.port, flush=True)
            await asyncio.sleep(120)

        event_loop.run(main())
        """)
    )
    number = free_port()
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), str(number)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    idle = []
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "128\n"
        assert process.stdout.readline() == f"{number}\n"
        for _ in range(400):
            idle.append(socket.create_connection(("127.0.0.1", number), timeout=PATIENCE_S))
        wait_until(lambda: probed(number), "a probe is answered")
        assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < 100
    finally:
        process.kill()
        _, said = process.communicate()
        for one in idle:
            one.close()
    assert "connection.closed" in said
    assert "Traceback" not in said


# --- handshakes ----------------------------------------------------------------------------------------


async def test_handshakes_are_made_at_a_bounded_rate_and_a_probe_gets_in() -> None:
    async with port() as found:
        door, is_answered = door_of(found), False
        began_s = time.monotonic()

        async def only_shakes_hands() -> None:
            while not is_answered or counted(found, "handshaken") <= 2 * listener.BURST_TURNS:
                with suppress(OSError):
                    _, writer = await opened(found)
                    writer.close()

        clients = [asyncio.ensure_future(only_shakes_hands()) for _ in range(8)]
        await asyncio.sleep(0.2)
        async with asyncio.timeout(PATIENCE_S):
            assert (await found.ask("GET", "/livez")).status == 200
            is_answered = True
            await asyncio.gather(*clients)
        took_s = time.monotonic() - began_s
        assert counted(found, "handshaken") <= listener.BURST_TURNS + listener.TURNS_PER_S * took_s + 1
        assert door.connections.limits.of_peer == connections.MOST_OF_PEER


async def test_client_that_sends_nothing_takes_no_turn_of_a_handshake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "BURST_TURNS", 1.0)
    async with port() as found:
        idle = await idle_sockets(found, 30)
        async with asyncio.timeout(PATIENCE_S):
            assert (await found.ask("GET", "/livez")).status == 200
            assert (await found.ask("GET", "/livez")).status == 200
        for sock in idle:
            sock.close()


def probed(number: int) -> bool:
    """Return True if /livez answers; else wait, as a probe does between two tries. While connections of this
    peer wait for their places, a further one of its is refused.
    """
    try:
        with (
            socket.create_connection(("127.0.0.1", number), timeout=PATIENCE_S) as raw,
            plain().wrap_socket(raw) as sock,
        ):
            sock.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            return sock.recv(15) == b"HTTP/1.1 200 OK"
    except ConnectionResetError:
        time.sleep(0.1)
        return False


@pytest.mark.parametrize("sent", [b"", b"\x16", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"])
async def test_client_that_leaves_a_handshake_half_done_leaves_nothing_behind(sent: bytes) -> None:
    with capture_logs() as lines:
        async with port() as found:
            for sock in await idle_sockets(found, 5):
                if sent:
                    sock.sendall(sent)
                sock.close()
            await until(
                lambda: (
                    metric(found, "berth_connections_total", event="accepted") >= 5
                    and metric(found, "berth_open_connections") == 0
                )
            )
            assert (await found.ask("GET", "/livez")).status == 200
    assert [line["event"] for line in lines] == ["endpoints.started"]


def test_resets_in_the_middle_of_handshakes_harm_nothing_on_uvloop(tmp_path: Path) -> None:
    pytest.importorskip("uvloop")

    async def main() -> None:
        async with port() as found:
            for sent in (b"", b"\x16\x03\x01\x02\x00\x01") * 20:
                for sock in await idle_sockets(found, 1):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    if sent:
                        sock.sendall(sent)
                        await asyncio.sleep(0.01)
                    sock.close()
            await until(lambda: metric(found, "berth_open_connections") == 0)
            assert (await found.ask("GET", "/livez")).status == 200

    event_loop.run(main())


# --- requests --------------------------------------------------------------------------------------------

MALFORMED = [
    pytest.param(b"\x00\x01\x02\x03\r\n\r\n", id="binary"),
    pytest.param(b"nonsense\r\n\r\n", id="no HTTP"),
    pytest.param(b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", id="version"),
    pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", id="length"),
    pytest.param(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", id="chunk"),
    pytest.param(b"GET / HTTP/1.1\r\n: x\r\n\r\n", id="no name"),
    pytest.param(b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n", id="long path"),
    pytest.param(b"GET / HTTP/1.1\r\nX: " + b"a" * 20000 + b"\r\n\r\n", id="long header"),
    pytest.param(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 2000 + b"\r\n", id="many headers"),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
]


@pytest.mark.sampled(every=3)
@pytest.mark.usefixtures("many_turns")
@pytest.mark.parametrize("sent", MALFORMED)
async def test_malformed_requests_are_answered_and_counted_and_write_few_lines(
    sent: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with capture_logs() as lines:
        async with port() as found:
            for _ in range(BURST + 8):
                reader, writer = await opened(found)
                writer.write(sent)
                with suppress(ConnectionError):
                    assert (await reader.readline()).startswith((b"HTTP/1.1 4", b"HTTP/1.0 4", b""))
                writer.close()
            assert (await found.ask("GET", "/livez")).status == 200
    said = [line for line in lines if line["event"] in ("endpoints.malformed", "endpoints.failed")]
    assert len(said) <= BURST + 4
    assert all("exc_info" not in line for line in said)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "headers",
    [
        b"Authorization: Bearer \xff\xfe\xfa",
        b"Authorization: Bearer \xed\xa0\x80",
        b"Authorization: Bearer abc\xc3",
        b"authorization: bearer \x80",
    ],
)
async def test_token_that_is_no_utf8_is_refused_as_an_unknown_one(headers: bytes) -> None:
    users = KnownUsers()
    async with port(users) as found:
        for path in (b"/metrics", b"/livez"):
            reader, writer = await opened(found)
            writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n\r\n")
            assert b"401" in await reader.readline()
            writer.close()
    assert not any(asked.startswith("token") for asked in users.asked)


@pytest.mark.parametrize(
    "path", [b"/%ff%fe", b"/\xff\xfe", b"/metrics?%ff=%ff", b"/berth/v1/pods/%ff/%ed%a0%80"]
)
@pytest.mark.parametrize("token", [b"", b"Authorization: Bearer authenticatedWithoutRights\r\n"])
async def test_path_that_is_no_utf8_is_no_error_of_the_server(path: bytes, token: bytes) -> None:
    async with port() as found:
        reader, writer = await opened(found)
        writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n" + token + b"\r\n")
        status = int((await reader.readline()).split()[1])
        assert 400 <= status < 500
        writer.close()


async def test_headers_of_a_front_proxy_that_are_no_utf8_are_refused(tmp_path: Path) -> None:
    proxies = Authority("proxies")
    users = KnownUsers(trust=ClientTrust(proxy_ca=proxies.pem.decode()))
    async with port(users) as found:
        context = plain()
        context.load_cert_chain(*files(tmp_path, proxies.issue("front")))
        reader, writer = await opened(found, context)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Remote-User: \xff\xfe\r\n\r\n")
        assert b"401" in await reader.readline()
        writer.close()


async def test_pipelined_requests_of_a_stranger_wait_outside_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front_door, "STRANGERS_PER_S", 20.0)
    monkeypatch.setattr(front_door, "BURST_STRANGERS", 1.0)
    async with port() as found:
        _, writer = await opened(found)
        request = b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 8000 + b"\r\n\r\n"
        taken = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while True:
                    writer.write(request)
                    await writer.drain()
                    taken += len(request)
        # The kernel's buffers of loopback hold some MiB; the process took less than that.
        assert taken < 64 * 1024 * 1024
        # A probe on a connection of its own has its turn before the requests behind the first.
        async with asyncio.timeout(PATIENCE_S):
            assert (await found.ask("GET", "/livez")).status == 200
        writer.transport.abort()


async def test_requests_without_a_right_are_answered_at_a_bounded_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front_door, "STRANGERS_PER_S", 40.0)
    monkeypatch.setattr(front_door, "BURST_STRANGERS", 5.0)
    async with port() as found:
        answered, are_served = 0, False

        async def floods(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal answered
            while not are_served or answered < 30:
                writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
                assert b"403" in head
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(size)
                answered += 1

        clients = [await opened(found) for _ in range(6)]
        began_s = time.monotonic()
        flooding = [asyncio.ensure_future(floods(*client)) for client in clients]
        async with asyncio.timeout(PATIENCE_S):
            assert (await found.ask("GET", "/livez")).status == 200
            # A caller with a right does not wait with them.
            assert (await found.ask("GET", "/flagz", token="clusterAdmin")).status == 200
            are_served = True
            await asyncio.gather(*flooding)
        took_s = time.monotonic() - began_s
        assert answered <= 5 + 40 * took_s + 1
        for _, writer in clients:
            writer.close()


# --- client certificates -----------------------------------------------------------------------------------


async def test_kept_connection_ends_with_its_client_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_door, "LOOK_AGAIN_S", 0.02)
    clients = Authority("clients")
    users = KnownUsers(trust=ClientTrust(client_ca=clients.pem.decode()))
    with capture_logs() as lines:
        async with port(users) as found:
            context = plain()
            context.load_cert_chain(*files(tmp_path, clients.issue("root", MASTERS)))
            reader, writer = await opened(found, context)
            writer.write(b"GET /flagz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200" in await reader.readline()
            with later(DAY_S):
                assert await is_ended(reader)
            assert metric(found, "berth_connections_total", event="closed_certificate") == 1
            writer.close()
    (line,) = [line for line in lines if line["event"] == "connection.closed"]
    assert line["reason"] == "the client's certificate: it has expired"


async def test_connection_ends_at_the_end_of_its_client_certificate_and_no_look_later(tmp_path: Path) -> None:
    clients = Authority("clients")
    users = KnownUsers(trust=ClientTrust(client_ca=clients.pem.decode()))
    async with port(users) as found:
        context = plain()
        context.load_cert_chain(*files(tmp_path, clients.issue("root", MASTERS)))
        with later(DAY_S - 1.0):
            reader, writer = await opened(found, context)
            assert await is_ended(reader)
        assert metric(found, "berth_connections_total", event="closed_certificate") == 1
        writer.close()


async def test_stream_ends_with_the_client_certificate_of_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_door, "LOOK_AGAIN_S", 0.02)
    clients = Authority("clients")
    users = KnownUsers(trust=ClientTrust(client_ca=clients.pem.decode()))
    async with port(users) as found:
        context = plain()
        context.load_cert_chain(*files(tmp_path, clients.issue("root", MASTERS)))
        reader, writer = await opened(found, context)
        writer.write(b"GET /debug/pprof/profile?seconds=50 HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: metric(found, "berth_open_connections", phase="answering") == 1)
        with later(DAY_S):
            assert await is_ended(reader)
        writer.close()


async def test_kept_connections_end_when_their_ca_is_replaced_and_others_stay(tmp_path: Path) -> None:
    old, both, new = (Authority(name) for name in ("old", "both", "new"))
    users = KnownUsers(trust=ClientTrust(client_ca=(old.pem + both.pem).decode()))
    async with port(users) as found:

        async def kept(authority: Authority | None, name: str) -> Any:
            context = plain()
            if authority is not None:
                context.load_cert_chain(*files(tmp_path, authority.issue(name, MASTERS)))
            reader, writer = await opened(found, context)
            writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200" in await reader.readuntil(b"ok")
            return reader, writer

        ended = await kept(old, "a")
        stays = [await kept(both, "b"), await kept(None, "")]
        users.found_trust = ClientTrust(client_ca=(both.pem + new.pem).decode())
        await found.endpoints.server.renew()
        assert await is_ended(ended[0])
        for reader, writer in stays:
            writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(PATIENCE_S):
                assert b"200" in await reader.readuntil(b"ok")
            writer.close()
        ended[1].close()


@pytest.mark.parametrize("skips", [False, True])
async def test_file_of_the_clients_ca_is_read_again_and_ends_connections_of_the_old_one(
    skips: bool, tmp_path: Path
) -> None:
    old, new = Authority("old"), Authority("new")
    path = tmp_path / "ca.crt"
    path.write_bytes(old.pem)
    trust = ClientTrust(client_ca=old.pem.decode())
    async with port(KnownUsers(), trust=trust, client_ca_file=path, skip_lookup=skips) as found:

        async def asked(authority: Authority) -> tuple[bytes, Any]:
            context = plain()
            context.load_cert_chain(*files(tmp_path, authority.issue("root", MASTERS)))
            reader, writer = await opened(found, context)
            writer.write(b"GET /flagz HTTP/1.1\r\nHost: x\r\n\r\n")
            return (await reader.readline())[:12], (reader, writer)

        status, kept = await asked(old)
        assert status == b"HTTP/1.1 200"
        path.write_bytes(b"")  # it is being written
        await found.endpoints.server.renew()
        status, other = await asked(old)
        assert status == b"HTTP/1.1 200"
        path.write_bytes(new.pem)
        await found.endpoints.server.renew()
        for reader, writer in (kept, other):
            assert await is_ended(reader)
            writer.close()
        status, (_, writer) = await asked(new)
        assert status == b"HTTP/1.1 200"
        writer.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_resumed_session_does_not_outlive_the_client_certificate(
    version: ssl.TLSVersion, tmp_path: Path
) -> None:
    clients = Authority("clients")
    users = KnownUsers(trust=ClientTrust(client_ca=clients.pem.decode()))
    context = plain()
    context.maximum_version = version
    context.load_cert_chain(*files(tmp_path, clients.issue("root", MASTERS)))
    async with port(users) as found:
        number = found.endpoints.server.port

        def asked(session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None, bool]:
            with (
                socket.create_connection(("127.0.0.1", number), timeout=PATIENCE_S) as raw,
                context.wrap_socket(raw, session=session) as sock,
            ):
                answer = b""
                with suppress(OSError):
                    sock.sendall(b"GET /flagz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    while found := sock.recv(4096):
                        answer += found
                return answer[:12], sock.session, bool(sock.session_reused)

        answer, session, _ = await asyncio.to_thread(asked, None)
        assert answer == b"HTTP/1.1 200"
        with later(DAY_S):
            answer, _, is_resumed = await asyncio.to_thread(asked, session)
        assert (answer, is_resumed) == (b"", True)


async def test_certificate_is_named_by_the_ca_that_issued_it_after_a_change(tmp_path: Path) -> None:
    certificate, key = self_signed()
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "tls.key").write_bytes(key)
    clients, proxies = Authority("clients"), Authority("proxies")
    users = KnownUsers(trust=ClientTrust(client_ca=clients.pem.decode()))
    async with port(users, cert_file=tmp_path / "tls.crt", key_file=tmp_path / "tls.key") as found:
        context = client_context(tmp_path / "tls.crt", *files(tmp_path, clients.issue("front")))
        reader, writer = await opened(found, context)
        request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Remote-User: bob\r\n\r\n"
        writer.write(request)
        assert b'User \\"front\\"' in await reader.readuntil(b"403}")
        # The same CA is a front proxy's from now on.
        users.found_trust = ClientTrust(client_ca=proxies.pem.decode(), proxy_ca=clients.pem.decode())
        await found.endpoints.server.renew()
        writer.write(request)
        async with asyncio.timeout(PATIENCE_S):
            assert b'User \\"bob\\"' in await reader.readuntil(b"403}")
        writer.close()
