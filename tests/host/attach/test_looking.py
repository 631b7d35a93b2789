"""The host looks who listens before gRPC connects."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest
from berth_host.attach.looking import peer_at
from berth_host.attach.peer import DialError, Peer
from berth_host.attach.wanted import Place
from berth_host.rpc.served.frames import FramedConnections
from support.attached import wanted
from support.strangers import another_user, foreign_listener


def place(path: Path, *allowed: int) -> Place:
    return Place(endpoint=f"unix://{path}", allowed_uids=allowed, plugins=(wanted("Demo"),))


async def test_own_process_is_known_by_user_and_pid(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    with foreign_listener(path, os.getuid()) as pid:
        found = await peer_at(f"unix://{path}", place(path))
    assert found == Peer(uid=os.getuid(), pid=pid)
    assert found.to_log() == {"peer_uid": os.getuid(), "peer_pid": pid}


async def test_process_of_another_user_is_refused_unless_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.sock"
    stranger = another_user(monkeypatch)
    with foreign_listener(path, stranger) as pid:
        with pytest.raises(DialError, match=rf"allow that user with allowedUIDs: \[{stranger}\]") as caught:
            await peer_at(f"unix://{path}", place(path))
        if os.geteuid() == 0:  # the socket itself is the host's own
            assert f"is served by the user {stranger} (process {pid})" in str(caught.value)
        assert await peer_at(f"unix://{path}", place(path, stranger)) == Peer(uid=stranger, pid=pid)


async def test_frames_do_not_go_to_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.sock"
    stranger = another_user(monkeypatch)
    with foreign_listener(path, stranger):
        line = FramedConnections(path, 1024).free("Demo")
        assert line is not None
        assert await line.ask(1, b"", 1.0) is None
        assert not line.is_connected
        allowed = FramedConnections(path, 1024, [stranger]).free("Demo")
        assert allowed is not None
        with pytest.raises(Exception, match="Deadline Exceeded"):
            await allowed.ask(1, b"", 0.05)  # connected, and asked: it just does not answer


async def test_a_socket_without_a_process_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
    with pytest.raises(DialError, match=f"{re.escape(str(path))}: Connection refused"):
        await peer_at(f"unix://{path}", place(path))


async def test_a_process_that_accepts_no_connections_does_not_block_the_host(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as first:
        listening.bind(str(path))
        listening.listen(0)
        first.connect(str(path))
        with pytest.raises(DialError, match="accepts no connections"):
            await peer_at(f"unix://{path}", place(path))


async def test_plaintext_tcp_gives_an_empty_peer() -> None:
    tcp = Place(endpoint="127.0.0.1:1", plugins=(wanted("Demo"),))
    assert await peer_at(tcp.endpoint, tcp) == Peer()
    assert Peer().to_log() == {}
