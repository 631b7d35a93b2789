"""The names of what a process holds open."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from berth_bench.soak.descriptors import connections_of, descriptors, more


def test_file_pipe_and_sockets_have_names(tmp_path: Path) -> None:
    before = descriptors(os.getpid())
    path = str(tmp_path / "listens.sock")
    with (
        (tmp_path / "file").open("w"),
        socket.socket(socket.AF_UNIX) as listening,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
        socket.socket() as silent,
    ):
        silent.bind(("127.0.0.1", 0))
        listening.bind(path)
        reading, writing = os.pipe()
        new = more(before, descriptors(os.getpid()))
        os.close(reading)
        os.close(writing)
    assert new.pop(str(tmp_path / "file")) == 1
    assert new.pop(f"unix socket {path}") == 1
    assert new.pop("pipe") == 2
    assert new.pop("tcp socket 127.0.0.1:any to 127.0.0.1:any established") == 1
    assert new.pop("tcp socket 127.0.0.1:any to 0.0.0.0:0 listening") == 1
    assert sum(new.values()) == 1, new
    assert more(before, descriptors(os.getpid())) == {}


def test_connections_are_identified_by_the_ports_of_their_ends() -> None:
    before = connections_of(os.getpid())
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        ports = server.getsockname()[1], client.getsockname()[1]
        one_end = connections_of(os.getpid()) - before
        with server.accept()[0]:
            both_ends = connections_of(os.getpid()) - before
    assert one_end == {(ports[0], 0), (ports[1], ports[0])}
    assert both_ends == {*one_end, ports}
