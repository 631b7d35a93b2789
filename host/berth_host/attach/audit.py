"""`AuditTrail`: a line in the log for each process that a place lets in, lets go or refuses.

The line says who it is (user and process, or the names in the certificate), what it serves (name, version, a
digest of what it declares) and at which points. Written at changes of an `Attachment`'s state.
"""

from __future__ import annotations

import hashlib
from typing import Final

from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.wire.results import encode_descriptor

from berth_host.attach.handshake import Introduction
from berth_host.attach.peer import Peer, PeerRefusedError
from berth_host.attach.state import ATTACHED, State
from berth_host.log import get_logger

_LOG = get_logger()
_ENDS: Final = frozenset({State.CONNECTING, State.DRAINED, State.BACKOFF, State.REJECTED, State.CLOSED})
"""The states in which none is attached."""


class AuditTrail:
    """detached -entered(Active or another such state)-> attached -entered(an end)-> detached"""

    def __init__(self, place: str) -> None:
        """`place`: its title."""
        self._place = place
        self._attached: tuple[Introduction, Peer] | None = None
        self._before = ""
        """The instance that was attached last."""
        self._refused = ""

    def entered(self, state: State, reason: str, introduction: Introduction | None, peer: Peer) -> None:
        """The attachment changed its state. `introduction` and `peer`: of the latest instance."""
        if state in (*ATTACHED, State.STANDBY) and introduction is not None and self._attached is None:
            self._attached = (introduction, peer)
            self._refused = ""
            self._note_attached(introduction, peer)
        elif state in _ENDS and self._attached is not None:
            (introduction, peer), self._attached = self._attached, None
            _LOG.info(
                "audit.detached",
                place=self._place,
                instance_id=introduction.instance_id,
                plugins=[item.name for item in introduction.plugins],
                reason=reason or "the host stops",
                **peer.to_log(),
            )
        if state is State.REJECTED:
            self._note_refused(reason, peer)

    def failed(self, error: Exception) -> None:
        """A peer that is not the one meant is a line, one that is away is not."""
        if isinstance(error, PeerRefusedError):
            self._note_refused(str(error), error.peer)

    def _note_attached(self, introduction: Introduction, peer: Peer) -> None:
        before, self._before = self._before, introduction.instance_id
        _LOG.info(
            "audit.attached",
            place=self._place,
            instance_id=introduction.instance_id,
            replaces=before if before != introduction.instance_id else "",
            plugins=[
                {
                    "name": item.name,
                    "version": item.version,
                    "digest": digest(item),
                    "points": [point.config_name for point in item.points],
                }
                for item in introduction.plugins
            ],
            **peer.to_log(),
        )

    def _note_refused(self, reason: str, peer: Peer) -> None:
        if reason == self._refused:
            return  # it is tried again and again
        self._refused = reason
        _LOG.warning("audit.refused", place=self._place, reason=reason, **peer.to_log())


def digest(descriptor: Descriptor) -> str:
    """SHA-256 of what a plugin declares, in hexadecimal: the same for the same declaration."""
    encoded = encode_descriptor(descriptor).SerializeToString(deterministic=True)
    return hashlib.sha256(encoded).hexdigest()
