"""`Peer`: the process at an endpoint, as far as the host knows it; `DialError`: why none may be dialled."""

from __future__ import annotations

from dataclasses import dataclass

from berth_host.errors import HostError


class DialError(HostError):
    """There is no peer that may be dialled; a later try may find one. The text says what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Its user and process at a Unix socket; over TLS the names and the SHA-256 fingerprint of its
    certificate; nothing over plaintext TCP.
    """

    uid: int | None = None
    pid: int | None = None
    names: tuple[str, ...] = ()
    fingerprint: str = ""

    def to_log(self) -> dict[str, object]:
        """What is known, as fields of a log line."""
        found: dict[str, object] = {
            "peer_uid": self.uid,
            "peer_pid": self.pid,
            "peer_names": list(self.names) or None,
            "peer_certificate": self.fingerprint or None,
        }
        return {name: value for name, value in found.items() if value is not None}
