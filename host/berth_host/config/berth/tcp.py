"""Addresses and TLS files of a BerthConfiguration, as `checks` and `handle_checks` judge them."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from berth_host.config.berth.types_v1alpha1 import TlsV1Alpha1
from berth_host.config.errors import Finding, required

_HOST_PORT: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?)):(?P<port>[0-9]{1,5})"
)


def host_in(address: str) -> str | None:
    """The host of `host:port` or `[address]:port`; None for anything else."""
    matched = _HOST_PORT.fullmatch(address)
    if matched is None or not 0 < int(matched["port"]) < 65536:
        return None
    return matched["six"] or matched["host"]


def ip_in(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host is written as; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def check_tls_files(path: str, tls: TlsV1Alpha1) -> list[Finding]:
    """Each of the three is due."""
    files = {"caFile": tls.ca_file, "certFile": tls.cert_file, "keyFile": tls.key_file}
    return [
        required(f"{path}.{name}", "both sides prove who they are")
        for name, file in files.items()
        if not file
    ]
