"""Addresses of TCP as a BerthConfiguration writes them."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

from berth_sdk.wire.addresses import host_and_port


def host_in(address: str) -> str | None:
    """Return the host of `host:port` or `[address]:port`; None for anything else, and for port 0."""
    found = host_and_port(address)
    return found[0] if found and found[1] else None


def ip_in(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a host is written as; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None
