"""Only the API server of the kubeconfig may be stopped."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from berth_bench.soak.clusters import SoakError
from berth_bench.soak.stopped_server import PROGRAM, StoppedServer
from berth_bench.versus.free_ports import free_port

HOST = "127.0.0.1"
LISTENS = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    taken = []
    while True:
        taken.append(server.accept())
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Start a process of that name; return it and its port."""
    program = tmp_path / PROGRAM
    program.symlink_to(sys.executable)
    with subprocess.Popen([program, "-I", "-S", "-c", LISTENS], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.kill()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_server_is_stopped_and_continued(server: tuple[int, int]) -> None:
    pid, port = server
    stopped = StoppedServer(pid, HOST, port)
    stopped.stop()
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
    assert state(pid) == "T"
    stopped.go_on()
    os.waitid(os.P_PID, pid, os.WCONTINUED | os.WNOWAIT)
    assert state(pid) != "T"


def test_server_of_another_cluster_is_refused(server: tuple[int, int]) -> None:
    pid, _ = server
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SoakError, match=f"leads to {HOST}:{port}, where another process answers"):
            StoppedServer(pid, HOST, port)


def test_another_program_is_refused() -> None:
    with pytest.raises(SoakError, match="not kube-apiserver"):
        StoppedServer(os.getpid(), HOST, 6443)


def test_missing_process_is_refused() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    with pytest.raises(SoakError, match="there is no such process"):
        StoppedServer(process.pid, HOST, 6443)


def test_server_that_does_not_answer_is_named(server: tuple[int, int]) -> None:
    pid, _ = server
    port = free_port()
    with pytest.raises(SoakError, match=f"{HOST}:{port}, of the kubeconfig: .*Connection refused"):
        StoppedServer(pid, HOST, port)
