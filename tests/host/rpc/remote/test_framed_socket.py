"""A socket that is still the one that was found, and one that is another's by now."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from berth_host.rpc.remote.framed_socket import FramedSocket


def listening(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def test_one_that_was_found_is_dialled_as_long_as_it_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "p.framed"
    with listening(path):
        found = FramedSocket(path)
        for _ in range(2):
            with found.connect() as connection:
                assert not connection.getblocking()
        with (
            listening(path),
            pytest.raises(PermissionError, match="another process has put its socket there"),
        ):
            found.connect()
        path.unlink()
        with pytest.raises(FileNotFoundError):
            found.connect()


def test_one_that_comes_later_is_whosever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "p.framed"
    later = FramedSocket(path)
    with pytest.raises(FileNotFoundError):
        later.connect()
    with listening(path), later.connect() as connection:
        assert connection.getpeername() == str(path)
