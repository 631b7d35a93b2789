"""`Peer`: the process at an endpoint, as far as the host knows it, and why none is dialled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from berth_host.errors import HostError


class DialError(HostError):
    """There is no peer that may be dialled; a later try may find one. The text says what is wrong."""


class PeerRefusedError(DialError):
    """There is a peer that is not the one meant, or that others could replace. `peer`: what is known."""

    def __init__(self, text: str, peer: Peer | None = None) -> None:
        super().__init__(text)
        self.peer = peer or Peer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Its user and process at a Unix socket; over TLS the names and the SHA-256 fingerprint of its
    certificate; nothing over plaintext TCP. `renewal`: why the connection is to be made anew, empty while it
    may stand.
    """

    uid: int | None = None
    pid: int | None = None
    names: tuple[str, ...] = ()
    fingerprint: str = ""
    renewal: Callable[[], str] = field(default=lambda: "", compare=False, repr=False)

    def to_log(self) -> dict[str, object]:
        """What is known, as fields of a log line."""
        found: dict[str, object] = {
            "peer_uid": self.uid,
            "peer_pid": self.pid,
            "peer_names": list(self.names) or None,
            "peer_certificate": self.fingerprint or None,
        }
        return {name: value for name, value in found.items() if value is not None}
