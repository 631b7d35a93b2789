"""What stays on this machine, and what may leave it."""

from __future__ import annotations

import pytest
from berth_sdk.wire.addresses import host_of, is_local, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_stays_here(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "2130706433"])
def test_all_else_may_leave(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("target", "here"),
    [
        ("unix:///run/h.sock", True),
        ("unix:h.sock", True),
        ("127.0.0.1:1", True),
        ("[::1]:1", True),
        ("host.example:1", False),
        ("dns:///127.0.0.1:1", False),
        ("", False),
    ],
)
def test_a_target_is_judged_by_its_host(target: str, here: bool) -> None:
    assert is_local(target) == here


def test_the_host_of_an_address() -> None:
    assert host_of("gpu.example:8443") == "gpu.example"
    assert host_of("[::1]:80") == "::1"
