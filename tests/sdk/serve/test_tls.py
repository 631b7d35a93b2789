"""A plugin server with TLS, asked by hosts with all kinds of certificates."""

from __future__ import annotations

import logging
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_sdk import Plugin
from berth_sdk.cycle_state import CycleState
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.plugin.v1.identity_pb2_grpc import IdentityServiceStub
from berth_sdk.pod import Pod
from berth_sdk.serve.server import ListenError, PluginServer
from berth_sdk.serve.tls import TlsServing
from berth_sdk.wire.certificate import TlsError
from berth_sdk.wire.peer_certificate import MOST_CONNECTIONS
from support.certificates import DAY_S, Authority, Pair, PairFiles, pair_files, self_signed
from support.later import later
from support.waiting import PATIENCE_S

HOST = "host.example"
TIMEOUT_S = PATIENCE_S


class Plain(Plugin):
    """Lets every node pass."""

    def filter(self, state: CycleState, pod: Pod, node: Any) -> None:
        return None


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> PairFiles:
    return pair_files(tmp_path, "plugin", authority.issue("plugin"), authority)


def serving(files: PairFiles, *names: str) -> TlsServing:
    return TlsServing(
        cert_file=str(files.certificate),
        key_file=str(files.key),
        client_ca_file=str(files.authority),
        client_names=names or (HOST,),
    )


@contextmanager
def served(tls: TlsServing) -> Iterator[tuple[PluginServer, str]]:
    with PluginServer({"Plain": Plain}, tls=tls) as server:
        yield server, server.listen("127.0.0.1:0")


def handshake(address: str, authority: Authority, pair: Pair | None) -> identity_pb2.HandshakeResponse:
    """On a connection of its own, by a host that trusts `authority`."""
    credentials = grpc.ssl_channel_credentials(
        authority.pem, *((None, None) if pair is None else (pair.key, pair.certificate))
    )
    with grpc.secure_channel(
        address, credentials, options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        stub = IdentityServiceStub(channel)
        return stub.Handshake(identity_pb2.HandshakeRequest(attachment_id="a1"), timeout=TIMEOUT_S)


def refusal(address: str, authority: Authority, pair: Pair | None) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        handshake(address, authority, pair)
    failed: Any = caught.value
    return failed.code(), failed.details()


def test_host_that_is_named_is_answered(files: PairFiles, authority: Authority) -> None:
    with served(serving(files)) as (server, address):
        reply = handshake(address, authority, authority.issue("x", dns=HOST))
        assert reply.instance_id == server.instance.instance_id


def test_there_are_no_frames_beside_tls(files: PairFiles, authority: Authority, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    with served(serving(files)) as (server, address):
        reply = handshake(address, authority, authority.issue("x", dns=HOST))
        assert [feature for feature in reply.features if "frames" in feature] == []
        assert not server.instance.framed
        assert not any(path.is_socket() for path in set(tmp_path.iterdir()) - before)


def test_the_way_back_over_tls_is_offered_by_those_that_have_a_certificate(
    files: PairFiles, authority: Authority
) -> None:
    with served(serving(files)) as (_, address):
        reply = handshake(address, authority, authority.issue("x", dns=HOST))
        assert list(reply.features) == ["configure-trial", "handle-tls"]


def test_hosts_without_a_good_certificate_do_not_reach_a_call(files: PairFiles, authority: Authority) -> None:
    strangers = {
        "none": None,
        "another authority": Authority("other").issue("x", dns=HOST),
        "expired": authority.issue("x", dns=HOST, expired=True),
        "not yet valid": authority.issue("x", dns=HOST, early=True),
        "self-signed": self_signed("x", dns=HOST),
    }
    with served(serving(files)) as (server, address):
        for pair in strangers.values():
            code, _ = refusal(address, authority, pair)
            assert code is grpc.StatusCode.UNAVAILABLE
        assert list(server.instance.introduced) == []


def test_plaintext_is_not_answered(files: PairFiles) -> None:
    with served(serving(files)) as (server, address):
        with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as caught:
            IdentityServiceStub(channel).Handshake(identity_pb2.HandshakeRequest(), timeout=TIMEOUT_S)
        failed: Any = caught.value
        assert failed.code() is grpc.StatusCode.UNAVAILABLE
        assert list(server.instance.introduced) == []


def test_replaced_files_take_effect_with_the_next_connection(files: PairFiles, authority: Authority) -> None:
    other = Authority("other")
    with served(serving(files)) as (_, address):
        handshake(address, authority, authority.issue("x", dns=HOST))
        files.put(other.issue("plugin"), other)
        handshake(address, other, other.issue("x", dns=HOST))
        assert refusal(address, authority, authority.issue("x", dns=HOST))[0] is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("broken", ["certificate", "key", "authority", "missing", "another key"])
def test_files_that_are_no_good_leave_the_last_good_ones(
    files: PairFiles, authority: Authority, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    with served(serving(files)) as (_, address):
        if broken == "missing":
            files.key.unlink()
        elif broken == "another key":
            files.key.write_bytes(authority.issue("plugin").key)
        else:
            getattr(files, broken).write_text("no PEM")
        with caplog.at_level(logging.WARNING, "berth_sdk.wire.certificate"):
            handshake(address, authority, authority.issue("x", dns=HOST))
        (line,) = {record.getMessage() for record in caplog.records}
        assert line.startswith("the previous certificate stays in use: ")
        assert str(files.authority.parent) in line


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("certificate", "no certificate with its key"),
        ("key", "no certificate with its key"),
        ("authority", "holds no authority"),
    ],
)
def test_files_are_tried_out_before_anything_listens(files: PairFiles, name: str, words: str) -> None:
    getattr(files, name).write_text("no PEM")
    with pytest.raises(TlsError, match=words):
        PluginServer({"Plain": Plain}, tls=serving(files))
    getattr(files, name).unlink()
    with pytest.raises(TlsError, match="No such file"):
        PluginServer({"Plain": Plain}, tls=serving(files))


def test_half_of_it_is_refused(files: PairFiles) -> None:
    with pytest.raises(TlsError, match="the name in the certificate"):
        TlsServing(cert_file="c", key_file="k", client_ca_file="a", client_names=())
    for lacking in ("cert_file", "key_file", "client_ca_file"):
        given: dict[str, Any] = {"cert_file": "c", "key_file": "k", "client_ca_file": "a"} | {lacking: ""}
        with pytest.raises(TlsError, match="takes a certificate, its key"):
            TlsServing(**given, client_names=(HOST,))


def test_a_unix_socket_has_none(files: PairFiles, tmp_path: Path) -> None:
    with (
        PluginServer({"Plain": Plain}, tls=serving(files)) as server,
        pytest.raises(ListenError, match="TLS is for TCP"),
    ):
        server.listen(f"unix:{tmp_path}/x.sock")


def test_kept_connection_of_a_host_does_not_outlive_its_certificate(
    files: PairFiles, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    pair = authority.issue("x", dns=HOST)
    credentials = grpc.ssl_channel_credentials(authority.pem, pair.key, pair.certificate)
    request = identity_pb2.HandshakeRequest(attachment_id="a1")
    with (
        served(serving(files)) as (_, address),
        grpc.secure_channel(address, credentials, options=[("grpc.use_local_subchannel_pool", 1)]) as channel,
    ):
        stub = IdentityServiceStub(channel)
        stub.Handshake(request, timeout=TIMEOUT_S)
        began_s = time.monotonic()
        for _ in range(20):
            with later(DAY_S), pytest.raises(grpc.RpcError) as caught:
                stub.Handshake(request, timeout=TIMEOUT_S)
            failed: Any = caught.value
            assert failed.code() is grpc.StatusCode.UNAUTHENTICATED
            assert "certificate has expired: connect again" in failed.details()
        took_s = time.monotonic() - began_s
    assert 1 <= caplog.text.count("refused a host") <= 1 + took_s


def test_connections_to_a_plugin_are_bounded(files: PairFiles) -> None:
    with served(serving(files)) as (_, address):
        host, _, port = address.rpartition(":")
        idle = [socket.create_connection((host, int(port)), TIMEOUT_S) for _ in range(MOST_CONNECTIONS + 40)]
        closed = 0
        ends_s = time.monotonic() + TIMEOUT_S
        while closed < 40 and time.monotonic() < ends_s:
            readable, _, _ = select.select(idle, [], [], 0.2)
            for sock in readable:
                with suppress(ConnectionError):
                    assert sock.recv(1) == b""
                idle.remove(sock)
                sock.close()
                closed += 1
        assert closed >= 40
        for sock in idle:
            sock.close()
