"""`goes_direct`: whether a request goes to its server without a proxy, by NO_PROXY and Go's rules.

Used by `berth_kube.credentials` and `extenders.exchange`. `urllib.request.proxy_bypass` knows no networks
such as 10.96.0.0/12, and would send requests to this machine through the proxy.
Source: golang.org/x/net `http/httpproxy`, v0.40.
"""

from __future__ import annotations

import os
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import SplitResult

_PORTS: Final = {"http": 80, "https": 443}


def goes_direct(url: SplitResult) -> bool:
    """Return True if the server is this machine, or NO_PROXY (or `no_proxy`) names it."""
    host = (url.hostname or "").lower()
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    port = str(url.port or _PORTS.get(url.scheme) or "")
    listed = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    return any(_names(entry.strip(), host, port, address) for entry in listed.lower().split(","))


def _names(entry: str, host: str, port: str, address: IPv4Address | IPv6Address | None) -> bool:
    """Return True if one entry of NO_PROXY names the server."""
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ip_network(entry, strict=False)
        except ValueError:
            return False
    name, only_port = _divided(entry)
    if not name or only_port not in ("", port):
        return False
    if (listed := _address(name)) is not None:
        return listed == address
    name = name.removeprefix("*")
    return host.endswith(name if name.startswith(".") else f".{name}") or host == name


def _divided(entry: str) -> tuple[str, str]:
    """Return the name and the port of an entry; the port is empty if the entry has none."""
    if _address(entry) is not None:
        return entry, ""  # The colons of an IPv6 address are not followed by a port.
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, rest.removeprefix(":")
    name, _, port = entry.partition(":")
    return name, port


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
