"""The API server and etcd that the tests and the bench start."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from berth_bench.versus.real_servers import RealServers

pytestmark = pytest.mark.long


def test_servers_start_on_other_ports_if_one_was_taken(tmp_path: Path) -> None:
    servers = RealServers(tmp_path)
    port = servers.port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with servers:
            assert servers.port != port
            assert servers.request("GET", "/readyz") == "ok"
