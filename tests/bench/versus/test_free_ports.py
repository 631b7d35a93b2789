"""Ports for servers are none that the system gives away."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from berth_bench.versus import free_ports
from berth_bench.versus.free_ports import free_port


@pytest.fixture(autouse=True)
def begun_anew() -> Iterator[None]:
    clear = free_ports._ports.cache_clear  # noqa: SLF001
    clear()
    yield
    clear()


def given_here() -> range:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    return range(first, last + 1)


def test_ports_are_free_all_different_and_never_given_to_a_connection() -> None:
    ports = [free_port() for _ in range(200)]
    assert len(set(ports)) == 200
    assert not set(ports) & set(given_here())
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_port_at_which_somebody_listens_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = free_port(), free_port()
    monkeypatch.setattr(free_ports, "_ports", lambda: iter([taken, free]))
    with socket.create_server(("127.0.0.1", taken)):
        assert free_port() == free


def test_processes_begin_elsewhere() -> None:
    code = "from berth_bench.versus.free_ports import free_port; print(free_port())"
    said = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=True) for _ in range(3)]
    assert len({one.stdout for one in said}) > 1


@pytest.mark.parametrize(("given", "expected"), [("1024 65535", 0), ("20000\t65534", 65_535), (None, None)])
def test_system_that_gives_all_ports_or_does_not_say_which(
    given: str | None, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "range"
    if given is not None:
        path.write_text(f"{given}\n")
    monkeypatch.setattr(free_ports, "_GIVEN_BY_THE_SYSTEM", path)
    first = next(free_ports._ports())  # noqa: SLF001
    if expected is None:
        assert first not in range(32_768, 61_000)
    else:
        assert first == expected
    assert free_port() > 0
