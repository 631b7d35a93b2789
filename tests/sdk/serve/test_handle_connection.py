"""The connection to the host: where the token of an attachment goes, and where it never goes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest
from berth_sdk import HandleError
from berth_sdk.plugin.v1 import handle_pb2, identity_pb2
from berth_sdk.serve.handle_connection import HandleConnection

TOKEN = "a-token-that-goes-nowhere"
TIMEOUT_S = 30.0


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
    """Takes one connection, and agrees to pass it on."""
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
            stub.ListWaitingPods(
                handle_pb2.ListWaitingPodsRequest(plugin="Demo"), metadata=metadata, timeout=TIMEOUT_S
            )
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        connection.use(None)
    assert bytes(heard) == b""
