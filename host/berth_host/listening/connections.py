"""`Connections`: the open connections of one port, and the limits on them.

    waiting -its turn-> handshaking -> idle <-> answering        any -> closed

A stranger is a connection on which nobody with a right has asked yet. Each peer may have a number of them.
When there is no room, the connection that has been silent for longest is closed, strangers first; so a probe
gets in, and one that waits for an answer with a right to it stays.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from berth_sdk.clocks import monotonic_s

from berth_host.log import get_logger
from berth_host.metrics.connection_metrics import ConnectionMetrics
from berth_host.model.sparing_lines import SparingLines

log = get_logger()
MOST_OPEN: Final = 256
"""The most connections of a port, as far as the process may have so many descriptors."""
MOST_OF_PEER: Final = 64
"""The most strangers of one peer."""
LEAST_OPEN: Final = 8
SHARE: Final = 4
"""A port has at most this part of the descriptors of the process: watches and plugins need others."""
UNIX_PEER: Final = "unix"
_IPV6_NETWORK: Final = 64


class Phase(Enum):
    """The phases of a connection."""

    WAITING = auto()
    """Its first bytes, or its turn for the TLS handshake, have not come."""
    HANDSHAKING = auto()
    IDLE = auto()
    ANSWERING = auto()
    """A caller with a right waits for an answer, or reads it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most connections in all, and the most strangers of one peer."""

    in_all: int = MOST_OPEN
    of_peer: int = MOST_OF_PEER


def limits_within(descriptors: int) -> Limits:
    """Return the limits of one port of a process that may have so many descriptors."""
    in_all = max(min(MOST_OPEN, descriptors // SHARE), LEAST_OPEN)
    return Limits(in_all, min(MOST_OF_PEER, max(in_all * 3 // 4, 1)))


@dataclass(eq=False, slots=True)
class Connection:
    """One connection. `close`: closes it at once. `opened_s`, `spoke_s`: when it was accepted, and when it
    last asked for something, on the clock of the `Connections`. `answer_count`: answers that strangers got.
    """

    peer: str
    close: Callable[[], None]
    opened_s: float
    spoke_s: float
    phase: Phase = Phase.WAITING
    is_known: bool = False
    answer_count: int = 0


class Connections:
    """The connections of the port called `port`, on one event loop."""

    def __init__(
        self,
        port: str,
        metrics: ConnectionMetrics,
        limits: Limits | None = None,
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        self.port = port
        self.limits = limits or Limits()
        self._metrics = metrics
        self._clock = clock
        self._open: dict[Connection, None] = {}
        self._strangers: Counter[str] = Counter()
        self.lines = SparingLines(clock)
        """The limit of the lines about connections."""
        metrics.show(port, self.phases, self.lines)

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._open

    def phases(self) -> Counter[str]:
        """Return the number of connections by phase."""
        return Counter(one.phase.name.lower() for one in self._open)

    def all(self) -> list[Connection]:
        """Return all connections, the oldest first."""
        return list(self._open)

    def admit(self, peer: str, close: Callable[[], None]) -> Connection | None:
        """Return a new connection, after closing another one if there is no room; None if there is none to
        close. `close`: closes the new one; it calls `remove`, now or later.
        """
        if self._strangers[peer] >= self.limits.of_peer:
            if not self._make_room(peer):
                self.note("refused", peer, "the peer has as many connections as it may have")
                return None
        elif len(self._open) >= self.limits.in_all and not self._make_room():
            self.note("refused", peer, "all connections of the port wait for answers")
            return None
        now_s = self._clock()
        connection = Connection(peer, close, now_s, now_s)
        self._open[connection] = None
        self._strangers[peer] += 1
        self.count("accepted")
        return connection

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed. Has no effect on one that was forgotten before."""
        if connection in self._open:
            del self._open[connection]
            if not connection.is_known:
                self._leave_strangers(connection.peer)

    def spoke(self, connection: Connection, phase: Phase) -> None:
        """Note that a connection asked for something, and its new phase."""
        connection.spoke_s, connection.phase = self._clock(), phase

    def know(self, connection: Connection) -> None:
        """Note that somebody with a right asks on a connection, and waits for the answer."""
        self.spoke(connection, Phase.ANSWERING)
        if not connection.is_known and connection in self._open:
            connection.is_known = True
            self._leave_strangers(connection.peer)

    def count(self, event: str) -> None:
        """Count an event of a connection, by the names of the metric `berth_connections_total`."""
        self._metrics.events.add((self.port, event))

    def note(self, event: str, peer: str, reason: str) -> None:
        """Count an event, and write it to the log unless there were many such lines."""
        self.count(event)
        left_out = self.lines.take()
        if left_out is not None:
            log.warning(
                "connection.closed", port=self.port, peer=peer, why=event, reason=reason, left_out=left_out
            )

    def make_room(self) -> bool:
        """Close the connection that has been silent for longest; return False if there is none to close."""
        return self._make_room()

    def _make_room(self, peer: str | None = None) -> bool:
        """See `make_room`. `peer`: close a stranger of this peer."""
        silent = (
            one
            for one in self._open
            if one.phase is not Phase.ANSWERING and (peer is None or (one.peer == peer and not one.is_known))
        )
        found = min(silent, key=lambda one: (one.is_known, one.spoke_s), default=None)
        if found is None:
            return False
        self.note("closed_for_room", found.peer, "it was silent for longest, and another one needs its place")
        found.close()
        self.remove(found)
        return True

    def _leave_strangers(self, peer: str) -> None:
        self._strangers[peer] -= 1
        if not self._strangers[peer]:
            del self._strangers[peer]


def peer_of(address: object) -> str:
    """Return the peer of a socket's remote address: an IPv4 address, or the /64 network of an IPv6 one, as
    one machine may have all addresses of that network.
    """
    if not isinstance(address, tuple) or not address:
        return UNIX_PEER
    try:
        found = ipaddress.ip_address(str(address[0]).partition("%")[0])
    except ValueError:
        return str(address[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, _IPV6_NETWORK), strict=False))
    return str(found)
