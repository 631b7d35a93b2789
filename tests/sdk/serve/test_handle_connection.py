"""The connection to the host: where the token of an attachment goes, and where it never goes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_sdk import HandleError
from berth_sdk.plugin.v1 import handle_pb2, identity_pb2
from berth_sdk.plugin.v1.handle_pb2_grpc import HandleServiceServicer, add_HandleServiceServicer_to_server
from berth_sdk.serve.handle_connection import HandleConnection
from berth_sdk.wire.certificate import Certificate, CertificateFiles
from support.certificates import Authority, Pair, PairFiles, pair_files
from support.waiting import PATIENCE_S

TOKEN = "a-token-that-goes-nowhere"
TIMEOUT_S = PATIENCE_S


def granted(target: str) -> HandleConnection:
    connection = HandleConnection()
    connection.use(identity_pb2.HandleEndpoint(target=target, token=TOKEN))
    return connection


def test_a_token_is_sent_to_no_other_machine_in_plaintext() -> None:
    for target in ("192.0.2.7:10270", "host.example:10270", "dns:///192.0.2.7:10270"):
        with pytest.raises(HandleError, match="in plaintext") as caught:
            granted(target).open()
        assert TOKEN not in str(caught.value)


@contextmanager
def proxy(heard: bytearray) -> Iterator[str]:
    """Take one connection, and agree to pass it on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def listen() -> None:
            try:
                asking, _ = listening.accept()
            except OSError:
                return
            with asking:
                heard.extend(asking.recv(4096))
                asking.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while more := asking.recv(65536):
                    heard.extend(more)

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_no_proxy_of_the_environment_hears_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = bytearray()
    with proxy(heard) as url, socket.create_server(("127.0.0.1", 0)) as nobody:
        target = f"127.0.0.1:{nobody.getsockname()[1]}"
        nobody.close()
        for name in ("grpc_proxy", "http_proxy", "https_proxy"):
            monkeypatch.setenv(name, url)
        for name in ("no_grpc_proxy", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        connection = granted(target)
        stub, metadata = connection.open()
        with pytest.raises(grpc.RpcError) as caught:
            list(
                stub.ListWaitingPods(
                    handle_pb2.ListWaitingPodsRequest(plugin="Demo"), metadata=metadata, timeout=TIMEOUT_S
                )
            )
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        connection.use(None)
    assert bytes(heard) == b""


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> PairFiles:
    return pair_files(tmp_path, "plugin", authority.issue("p", dns="gpu.example"), authority)


def over_tls(files: PairFiles, target: str, name: str = "host.example") -> HandleConnection:
    certificate = Certificate(
        CertificateFiles(
            cert_file=str(files.certificate), key_file=str(files.key), ca_file=str(files.authority)
        )
    )
    connection = HandleConnection(certificate)
    connection.use(identity_pb2.HandleEndpoint(target=target, token=TOKEN, server_name=name))
    return connection


class Host(HandleServiceServicer):
    """Notes the tokens that reach it."""

    def __init__(self) -> None:
        self.tokens: list[str] = []

    def ListWaitingPods(  # noqa: N802
        self, request: Any, context: Any
    ) -> Iterator[handle_pb2.ListWaitingPodsResponse]:
        self.tokens.append(dict(context.invocation_metadata())["authorization"])
        yield handle_pb2.ListWaitingPodsResponse()


@contextmanager
def host(authority: Authority, pair: Pair | None) -> Iterator[tuple[Host, str]]:
    """Yield a host that takes plugins of the authority. `pair` None: it serves in plaintext."""
    service, server = Host(), grpc.server(ThreadPoolExecutor(2))
    add_HandleServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call, unused-ignore]
    if pair is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        credentials = grpc.ssl_server_credentials([(pair.key, pair.certificate)], authority.pem, True)
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield service, f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def asked(connection: HandleConnection) -> grpc.StatusCode:
    """OK, or the code of the refusal."""
    stub, metadata = connection.open()
    try:
        list(
            stub.ListWaitingPods(
                handle_pb2.ListWaitingPodsRequest(plugin="Demo"), metadata=metadata, timeout=TIMEOUT_S
            )
        )
    except grpc.RpcError as err:
        failed: Any = err
        code: grpc.StatusCode = failed.code()
        return code
    return grpc.StatusCode.OK


def test_a_host_that_proves_its_name_hears_the_token(files: PairFiles, authority: Authority) -> None:
    with host(authority, authority.issue("h", dns="host.example")) as (service, target):
        assert asked(over_tls(files, target)) is grpc.StatusCode.OK
        assert service.tokens == [f"Bearer {TOKEN}"]


@pytest.mark.parametrize("what", ["name", "authority", "expired", "plaintext"])
def test_nobody_else_at_its_address_hears_it(files: PairFiles, authority: Authority, what: str) -> None:
    pairs = {
        "name": authority.issue("h", dns="another.example"),
        "authority": Authority("other").issue("h", dns="host.example"),
        "expired": authority.issue("h", dns="host.example", expired=True),
        "plaintext": None,
    }
    with host(authority, pairs[what]) as (service, target):
        assert asked(over_tls(files, target)) is grpc.StatusCode.UNAVAILABLE
        assert service.tokens == []


def test_without_a_certificate_there_is_no_way_back_over_tls() -> None:
    connection = HandleConnection()
    assert not connection.has_tls
    connection.use(identity_pb2.HandleEndpoint(target="127.0.0.1:1", token=TOKEN, server_name="host"))
    with pytest.raises(HandleError, match="this process has no certificate"):
        connection.open()


def test_replaced_files_make_another_connection_and_calls_under_way_end_on_theirs(
    files: PairFiles, authority: Authority
) -> None:
    with host(authority, authority.issue("h", dns="host.example")) as (service, target):
        connection = over_tls(files, target)
        first, metadata = connection.open()
        request = handle_pb2.ListWaitingPodsRequest(plugin="Demo")
        list(first.ListWaitingPods(request, metadata=metadata, timeout=TIMEOUT_S))
        files.put(Authority("stranger").issue("p", dns="gpu.example"), authority)
        assert asked(connection) is grpc.StatusCode.UNAVAILABLE
        list(first.ListWaitingPods(request, metadata=metadata, timeout=TIMEOUT_S))
        assert len(service.tokens) == 2
