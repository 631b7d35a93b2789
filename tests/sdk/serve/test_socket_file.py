"""Two processes that want one socket path: the first keeps it for as long as it answers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from berth_sdk.serve.server import ListenError, PluginServer
from berth_sdk.serve.socket_file import SocketFile, is_answered
from support.waiting import wait_until


class Demo:
    def filter(self, state: object, pod: object, node: object) -> None:
        """Every node will do."""


SOURCE = """
from berth_sdk.extension_points import Plugin

class Served(Plugin):
    def filter(self, state, pod, node):
        return None
"""


@contextmanager
def serving(folder: Path) -> Iterator[subprocess.Popen[str]]:
    (folder / "served.py").write_text(SOURCE)
    command = [
        sys.executable,
        "-m",
        "berth_sdk",
        "serve",
        "served:Served",
        "--listen",
        f"unix:{folder}/p.sock",
    ]
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()


def listens(path: Path) -> bool:
    return is_answered(path)


@pytest.mark.slow
def test_socket_of_a_process_that_answers_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    with serving(tmp_path) as first:
        wait_until(lambda: listens(path), "the first process listens")
        inode = path.lstat().st_ino
        with serving(tmp_path) as second:
            _, said = second.communicate(timeout=60)
        assert second.returncode == 2
        assert "another process serves there; stop it, or listen at another path" in said
        assert path.lstat().st_ino == inode
        assert listens(path)
        assert first.poll() is None
    assert not path.exists()


@pytest.mark.slow
def test_socket_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    with serving(tmp_path) as first:
        wait_until(lambda: listens(path), "the first process listens")
        first.kill()
        first.wait()
    assert path.exists()
    with serving(tmp_path) as second:
        wait_until(lambda: listens(path), "the second process listens")
        assert second.poll() is None


@pytest.mark.slow
def test_socket_of_a_process_that_hangs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    with serving(tmp_path) as first:
        wait_until(lambda: listens(path), "the first process listens")
        os.kill(first.pid, signal.SIGSTOP)
        with serving(tmp_path) as second:
            assert second.wait(60) == 2


def test_file_of_a_successor_stays(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    mine, other = SocketFile(path), SocketFile(path)
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        one.bind(str(mine.private))
        mine.publish()
        two.bind(str(other.private))
        other.publish()
        mine.remove()
        assert path.exists()
        other.remove()
        assert not path.exists()


def test_file_that_is_no_socket_is_left(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    path.write_text("precious")
    with (
        PluginServer({"Demo": Demo}) as server,
        pytest.raises(ListenError, match="a file that is no socket is there; remove it"),
    ):
        server.listen(f"unix:{path}")
    assert path.read_text() == "precious"


def test_nobody_answers_at_a_path_without_a_socket(tmp_path: Path) -> None:
    assert not is_answered(tmp_path / "p.sock")
