"""Addresses of TCP as a BerthConfiguration writes them."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

_HOST_PORT: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?)):(?P<port>[0-9]{1,5})"
)


def host_in(address: str) -> str | None:
    """Return the host of `host:port` or `[address]:port`; None for anything else."""
    matched = _HOST_PORT.fullmatch(address)
    if matched is None or not 0 < int(matched["port"]) < 65536:
        return None
    return matched["six"] or matched["host"]


def ip_in(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a host is written as; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None
