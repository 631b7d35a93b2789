"""Addresses as a BerthConfiguration writes them."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from berth_host.config.berth.tcp import host_in, ip_in


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("gpu.example:8443", "gpu.example"),
        ("10.0.0.1:1", "10.0.0.1"),
        ("[::1]:65535", "::1"),
        ("gpu.example", None),
        ("gpu.example:0", None),
        ("gpu.example:65536", None),
        ("::1:80", None),
        ("-gpu:80", None),
        (":80", None),
        ("", None),
    ],
)
def test_the_host_is_taken_out_of_what_is_an_address(address: str, host: str | None) -> None:
    assert host_in(address) == host


def test_names_are_no_addresses() -> None:
    assert ip_in("10.0.0.1") == ip_address("10.0.0.1")
    assert ip_in("gpu.example") is None
