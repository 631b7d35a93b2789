"""What stays on this machine, and what may leave it."""

from __future__ import annotations

import pytest
from berth_sdk.wire.addresses import endpoint_problem, host_and_port, host_of, is_local, is_loopback
from support.endpoints import BAD_ENDPOINTS, GOOD_ENDPOINTS


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
    assert host_and_port("gpu.example:8443") == ("gpu.example", 8443)
    assert host_and_port("[::1]:80") == ("::1", 80)
    assert host_and_port("gpu.example") is None


@pytest.mark.parametrize("endpoint", GOOD_ENDPOINTS)
def test_an_endpoint_has_no_problem(endpoint: str) -> None:
    assert endpoint_problem(endpoint) == ""


@pytest.mark.parametrize("endpoint", BAD_ENDPOINTS)
def test_the_problem_of_what_is_no_endpoint_names_the_form(endpoint: str) -> None:
    problem = endpoint_problem(endpoint, any_port=True)
    assert "unix:///absolute/path" in problem or "take a shorter one" in problem


def test_port_0_is_for_those_that_listen() -> None:
    assert endpoint_problem("127.0.0.1:0", any_port=True) == ""
    assert "write the port at which the plugin listens" in endpoint_problem("127.0.0.1:0")
