"""`Peer`: what the host knows about the process at an endpoint, and the errors of dialling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from berth_host.errors import HostError


class DialError(HostError):
    """The endpoint has no peer that may be dialled. A later try may succeed."""


class PeerRefusedError(DialError):
    """The peer is not the expected one, or another user could replace it. `peer`: what is known of it."""

    def __init__(self, text: str, peer: Peer | None = None) -> None:
        super().__init__(text)
        self.peer = peer or Peer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The process at an endpoint.

    At a Unix socket: user and process id. Over TLS: the names and the SHA-256 fingerprint of the certificate.
    Over plaintext TCP: nothing. `renewal`: returns why the connection must be made again, empty while it may
    stay.
    """

    uid: int | None = None
    pid: int | None = None
    names: tuple[str, ...] = ()
    fingerprint: str = ""
    renewal: Callable[[], str] = field(default=lambda: "", compare=False, repr=False)

    def to_log(self) -> dict[str, object]:
        """Return the known values as fields of a log line."""
        found: dict[str, object] = {
            "peer_uid": self.uid,
            "peer_pid": self.pid,
            "peer_names": list(self.names) or None,
            "peer_certificate": self.fingerprint or None,
        }
        return {name: value for name, value in found.items() if value is not None}
