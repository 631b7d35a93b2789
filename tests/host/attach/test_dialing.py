"""Endpoints: the check of the socket file, the peer behind it, the channel, and the carrier of calls."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from berth_host.attach.configured_places import Place
from berth_host.attach.dialing import check_socket, dial, offered, peer_at, socket_path
from berth_host.attach.peer import DialError, Peer
from berth_host.config.berth.configuration import TlsFiles, Transport
from berth_host.rpc.served.frames import FramedConnections, FramedSocket
from berth_sdk.serve.server import PluginServer
from berth_sdk.wire.frames import framed_path
from support.attached import AttachedHost, at_socket, attached_host, launched, wanted
from support.echo_plugin import Echo
from support.plugin_processes import plugin_environment, serve_command
from support.strangers import another_user, foreign_listener, give


def listening(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    return server


def place(endpoint: str, tls: TlsFiles | None = None) -> Place:
    return Place(endpoint=endpoint, tls=tls, plugins=(wanted("Demo"),))


def test_own_socket_in_an_own_folder_is_good(tmp_path: Path) -> None:
    with listening(tmp_path / "p.sock"):
        check_socket(tmp_path / "p.sock")


def test_missing_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(DialError, match=r"p.sock: No such file"):
        check_socket(tmp_path / "p.sock")


def test_file_that_is_no_socket_is_refused_and_so_is_a_link_to_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with listening(tmp_path / "p.sock"):
        (tmp_path / "link").symlink_to(tmp_path / "p.sock")
        for name in ("file", "link"):
            with pytest.raises(DialError, match="is not a socket"):
                check_socket(tmp_path / name)


def test_folder_in_which_everybody_may_replace_the_socket_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    with listening(folder / "p.sock"):
        folder.chmod(0o777)
        with pytest.raises(DialError, match=f"any user may replace .*: chmod 700 {folder}"):
            check_socket(folder / "p.sock")
        folder.chmod(0o1777)
        check_socket(folder / "p.sock")


async def test_plaintext_is_dialled_on_loopback_only(tmp_path: Path) -> None:
    with pytest.raises(DialError, match="not a loopback address"):
        dial("192.0.2.7:7001", place("192.0.2.7:7001"))
    channel = dial("127.0.0.1:7001", place("127.0.0.1:7001"))
    await channel.close()


@pytest.mark.parametrize("address", ["127.0.0.1:7001", "10.0.0.1:7001"])
def test_tls_that_fails_never_becomes_plaintext(address: str) -> None:
    files = TlsFiles(ca_file="a", cert_file="b", key_file="c", server_name="")
    with pytest.raises(DialError, match="caFile a cannot be read"):
        dial(address, place(address, files))


@pytest.mark.parametrize("what", ["file", "folder"])
def test_socket_of_another_user_is_refused_unless_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    with listening(folder / "p.sock"):
        stranger = another_user(monkeypatch)
        owned = folder if what == "folder" else folder / "p.sock"
        kept = folder / "p.sock" if what == "folder" else folder
        give(owned, stranger)
        give(kept, os.getuid())
        with pytest.raises(DialError, match=rf"allow that user with allowedUIDs: \[{stranger}\]"):
            check_socket(folder / "p.sock")
        check_socket(folder / "p.sock", [stranger])


@pytest.mark.parametrize("endpoint", ["unix:/run/p.sock", "unix:///run/p.sock"])
def test_both_spellings_name_the_same_path(endpoint: str) -> None:
    assert socket_path(endpoint) == Path("/run/p.sock")


def socket_place(path: Path, *allowed: int) -> Place:
    return Place(endpoint=f"unix://{path}", allowed_uids=allowed, plugins=(wanted("Demo"),))


async def test_own_process_is_known_by_user_and_pid(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    with foreign_listener(path, os.getuid()) as pid:
        found = await peer_at(f"unix://{path}", socket_place(path))
    assert found == Peer(uid=os.getuid(), pid=pid)
    assert found.to_log() == {"peer_uid": os.getuid(), "peer_pid": pid}


async def test_process_of_another_user_is_refused_unless_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.sock"
    stranger = another_user(monkeypatch)
    with foreign_listener(path, stranger) as pid:
        with pytest.raises(DialError, match=rf"allow that user with allowedUIDs: \[{stranger}\]") as caught:
            await peer_at(f"unix://{path}", socket_place(path))
        if os.geteuid() == 0:  # the socket itself is the host's own
            assert f"is served by the user {stranger} (process {pid})" in str(caught.value)
        assert await peer_at(f"unix://{path}", socket_place(path, stranger)) == Peer(uid=stranger, pid=pid)


async def test_frames_do_not_go_to_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.sock"
    stranger = another_user(monkeypatch)
    with foreign_listener(path, stranger):
        line = FramedConnections(FramedSocket(path), 1024).free("Demo")
        assert line is not None
        assert await line.ask(1, b"", 1.0) is None
        assert not line.is_connected
        allowed = FramedConnections(FramedSocket(path, [stranger]), 1024).free("Demo")
        assert allowed is not None
        with pytest.raises(Exception, match="Deadline Exceeded"):
            await allowed.ask(1, b"", 0.05)  # connected, and asked: it just does not answer


async def test_a_socket_without_a_process_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
    with pytest.raises(DialError, match=f"{re.escape(str(path))}: Connection refused"):
        await peer_at(f"unix://{path}", socket_place(path))


async def test_a_process_that_accepts_no_connections_does_not_block_the_host(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as first:
        listening.bind(str(path))
        listening.listen(0)
        first.connect(str(path))
        with pytest.raises(DialError, match="accepts no connections"):
            await peer_at(f"unix://{path}", socket_place(path))


async def test_plaintext_tcp_gives_an_empty_peer() -> None:
    tcp = Place(endpoint="127.0.0.1:1", plugins=(wanted("Demo"),))
    assert await peer_at(tcp.endpoint, tcp) == Peer()
    assert Peer().to_log() == {}


ECHO = "support.echo_plugin:Echo"


def told(host: AttachedHost) -> tuple[str, tuple[str, ...]]:
    (condition,) = host.attachments.conditions()
    return condition.carrier, condition.warnings


def test_frames_are_offered_over_a_unix_socket_alone() -> None:
    place = at_socket(Path("/p.sock"), "Echo")
    assert offered(place, "unix:///p.sock") == {"frames"}
    assert offered(place, "127.0.0.1:7001") == frozenset()
    assert offered(replace(place, transport=Transport.UNARY), "unix:///p.sock") == frozenset()


@pytest.mark.parametrize("transport", list(Transport))
async def test_a_served_class_is_asked_as_the_configuration_says(
    tmp_path: Path, transport: Transport
) -> None:
    path = tmp_path / "p.sock"
    with PluginServer({"Echo": Echo}) as server:
        server.listen(f"unix:{path}")
        async with attached_host(replace(at_socket(path, "Echo"), transport=transport)) as host:
            assert told(host) == (transport.value, ())
            assert len(await host.client.filter(host.cycle(), host.nodes)) == 3
            assert server.framed.connection_count == (transport is Transport.FRAMED)


@pytest.mark.slow
async def test_a_child_is_asked_in_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", plugin_environment()["PYTHONPATH"])
    async with attached_host(launched(serve_command(ECHO), "Echo")) as host:
        assert told(host) == ("framed", ())
        assert len(await host.client.filter(host.cycle(), host.nodes)) == 3


async def test_calls_over_tcp_are_unary() -> None:
    with PluginServer({"Echo": Echo}) as server:
        endpoint = server.listen("127.0.0.1:0")
        async with attached_host(replace(at_socket(Path(), "Echo"), endpoint=endpoint)) as host:
            assert told(host) == ("unary", ())
            assert len(await host.client.filter(host.cycle(), host.nodes)) == 3


@pytest.mark.parametrize("lies", ["nothing", "a link"])
async def test_a_framed_socket_that_may_not_be_used_is_named_and_left(tmp_path: Path, lies: str) -> None:
    path = tmp_path / "p.sock"
    with PluginServer({"Echo": Echo}) as server:
        server.listen(f"unix:{path}")
        framed = framed_path(path).rename(tmp_path / "elsewhere")
        if lies == "a link":
            framed_path(path).symlink_to(framed)
        async with attached_host(at_socket(path, "Echo")) as host:
            carrier, (warning,) = told(host)
            assert carrier == "unary"
            assert warning.startswith("the frames that the plugin offers cannot be used: ")
            assert ("is not a socket" if lies == "a link" else "No such file") in warning
            assert len(await host.client.filter(host.cycle(), host.nodes)) == 3


async def test_calls_go_on_where_the_framed_socket_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(PluginServer({"Echo": Echo}))
        server.listen(f"unix:{path}")
        async with attached_host(at_socket(path, "Echo")) as host:
            assert len(await host.client.filter(host.cycle(), host.nodes)) == 3
            server.framed.stop()
            for _ in range(3):
                assert len(await host.client.filter(host.cycle(), host.nodes)) == 3
            assert host.client.stats.of("Filter").failures == {}
