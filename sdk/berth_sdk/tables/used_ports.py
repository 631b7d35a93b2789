"""`UsedPorts`: host ports in use, for questions about thousands of other ports.

Source: `HostPortInfo` in `pkg/scheduler/framework/types.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from berth_sdk.pod import HostPort

ANY_ADDRESS: Final = "0.0.0.0"


class UsedPorts:
    """Host ports by protocol and number, so that a question costs the same however many ports there are."""

    def __init__(self, ports: Iterable[HostPort]) -> None:
        self._by_number: dict[tuple[str, int], dict[str, HostPort]] = {}
        for port in ports:
            used = port.normalized
            self._by_number.setdefault((used.protocol, used.port), {})[used.ip] = used

    def in_conflict(self, port: HostPort) -> list[HostPort]:
        """Return the ports in use, normalized, that take `port`. 0.0.0.0 conflicts with every address."""
        wanted = port.normalized
        used = self._by_number.get((wanted.protocol, wanted.port))
        return [] if used is None else [used[ip] for ip in addresses_in_conflict(wanted.ip, used)]

    def conflict_with(self, ports: Iterable[HostPort]) -> bool:
        """Return True if one of the ports in use takes one of `ports`."""
        return any(self.in_conflict(port) for port in ports)


def addresses_in_conflict(ip: str, used: Collection[str]) -> Iterable[str]:
    """Return those of the addresses in use that conflict with `ip`, on one protocol and port number."""
    if ip == ANY_ADDRESS:
        return used
    return [one for one in (ip, ANY_ADDRESS) if one in used]
