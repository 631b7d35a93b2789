"""The kernel's word on the process behind a socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from berth_host.rpc.served.peer_user import PeerUser, may_serve, peer_user


def test_a_connection_tells_the_process_that_listens(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as asking:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        asking.connect(str(tmp_path / "s"))
        assert peer_user(asking) == PeerUser(os.getpid(), os.getuid(), os.getgid())


def test_a_connection_without_a_user_is_an_error(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as alone:
        alone.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            peer_user(alone)


def test_root_the_own_user_and_those_that_are_named_may_serve() -> None:
    stranger = os.getuid() + 1
    assert may_serve(0, ())
    assert may_serve(os.getuid(), ())
    assert not may_serve(stranger, ())
    assert not may_serve(stranger, (stranger + 1,))
    assert may_serve(stranger, (stranger + 1, stranger))
