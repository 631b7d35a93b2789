"""Where a gRPC target leads: to this machine, or to another one. Asked by both sides before they speak in
plaintext.
"""

from __future__ import annotations

from ipaddress import ip_address


def is_local(target: str) -> bool:
    """Whether `unix:PATH` or `HOST:PORT` stays on this machine."""
    return target.startswith("unix:") or is_loopback(host_of(target))


def host_of(target: str) -> str:
    """Of `HOST:PORT` and `[ADDRESS]:PORT`."""
    return target.rpartition(":")[0].strip("[]")


def is_loopback(host: str) -> bool:
    """Whether a name or address stays on this machine. A name other than `localhost` may lead anywhere."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
