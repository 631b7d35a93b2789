"""The end of a session: no connection outlasts it."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from berth_kube.connection import Connection
from berth_kube.credentials import Credentials
from berth_kube.session import Session
from support.certificates import Authority
from support.waiting import until
from support.wire_server import server_context


class SilentServer:
    """A TLS server that shakes hands, and then neither answers nor ends a connection."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.accepted: list[ssl.SSLSocket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        raw, _ = self._listening.accept()
        self.accepted.append(self._tls.wrap_socket(raw, server_side=True))

    def close(self) -> None:
        """End the server. One connection must have come."""
        self._thread.join()
        self._listening.close()
        for connected in self.accepted:
            connected.close()


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def server(authority: Authority, tmp_path: Path) -> Iterator[SilentServer]:
    running = SilentServer(server_context(authority, tmp_path, "http/1.1"))
    yield running
    running.close()


@pytest.fixture
def kubeconfig(authority: Authority, server: SilentServer, tmp_path: Path) -> str:
    """The path of a kubeconfig for the server."""
    cluster = {"server": f"https://127.0.0.1:{server.port}"}
    cluster["certificate-authority-data"] = b64encode(authority.pem).decode()
    config = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "current-context": "x",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    return str(path)


async def test_connection_of_a_cancelled_request_does_not_outlast_the_session(
    server: SilentServer, kubeconfig: str
) -> None:
    session = Session(await Credentials.open(Connection(kubeconfig=kubeconfig)), "test")
    request = asyncio.ensure_future(session.exchange("GET", "/api", None, "", 60))
    await until(lambda: bool(server.accepted))
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    assert session.sockets.open_count() == 1  # aiohttp left it.
    await session.close()
    assert session.sockets.open_count() == 0
