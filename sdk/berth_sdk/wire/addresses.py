"""The addresses of plugins and hosts: their form, and whether they are on this machine.

Both sides check that an address is on this machine before they connect in plaintext.
"""

from __future__ import annotations

import os
import re
from ipaddress import ip_address
from typing import Final

SOCKET_PATH_BYTES: Final = 107
"""Bytes of a Unix socket's path on Linux. gRPC also listens at a longer path, which no client can dial."""
_HOST_PORT: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?)):(?P<port>[0-9]{1,5})"
)
_UNIX: Final = "unix://"
_HIGHEST_PORT: Final = 65535


def endpoint_problem(endpoint: str, *, any_port: bool = False) -> str:
    """Return what is wrong with the endpoint of a plugin, and its cure; empty if nothing is.

    `any_port`: port 0 is allowed, for a server that chooses a port. Source: the contract's identity.proto
    (BERTH_PLUGIN_ENDPOINT).
    """
    if endpoint.startswith("unix:"):
        path = endpoint.removeprefix(_UNIX)
        if not path.startswith("/") or path.endswith("/") or "\0" in path:
            return "a socket is named unix:///absolute/path"
        return socket_problem(path)
    found = host_and_port(endpoint)
    if found is None:
        return "write it as unix:///absolute/path or host:port"
    if not found[1] and not any_port:
        return "nobody can dial port 0: write the port at which the plugin listens"
    return ""


def socket_problem(path: str) -> str:
    """Return why no client can dial a Unix socket at this path, and the cure; empty if one can."""
    length = len(os.fsencode(path))
    if length <= SOCKET_PATH_BYTES:
        return ""
    return f"the path has {length} bytes, and a socket's at most {SOCKET_PATH_BYTES}; take a shorter one"


def host_and_port(address: str) -> tuple[str, int] | None:
    """Return the parts of `host:port` or `[address]:port`; None for anything else."""
    matched = _HOST_PORT.fullmatch(address)
    if matched is None or int(matched["port"]) > _HIGHEST_PORT:
        return None
    return matched["six"] or matched["host"], int(matched["port"])


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
