"""Tells whether a gRPC target is on this machine. Both sides check it before they connect in plaintext."""

from __future__ import annotations

from ipaddress import ip_address


def is_local(target: str) -> bool:
    """Return True if `unix:PATH` or `HOST:PORT` is on this machine."""
    return target.startswith("unix:") or is_loopback(host_of(target))


def host_of(target: str) -> str:
    """Return the host of `HOST:PORT` or `[ADDRESS]:PORT`."""
    return target.rpartition(":")[0].strip("[]")


def is_loopback(host: str) -> bool:
    """Return True if a name or address is on this machine. False for any name other than `localhost`."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
