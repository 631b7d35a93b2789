"""Addresses as a BerthConfiguration writes them."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from berth_host.config.berth.tcp import check_tls_files, host_in, ip_in
from berth_host.config.berth.types_v1alpha1 import TlsV1Alpha1


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


def test_each_missing_file_is_named() -> None:
    given = TlsV1Alpha1(ca_file="/ca", cert_file="", key_file="", server_name="")
    assert [item.field for item in check_tls_files("x.tls", given)] == ["x.tls.certFile", "x.tls.keyFile"]
