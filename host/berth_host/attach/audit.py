"""`AuditTrail`: logs each process that is attached, detached or refused at a place.

A line contains the peer (user and process, or the names in its certificate) and the plugins that it serves
(name, version, digest of the declaration, extension points). Written when an `Attachment` changes its state.
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
"""The states in which no instance is attached."""


class AuditTrail:
    """The audit log of one place.

    detached -entered(Active or another attached state)-> attached -entered(one of _ENDS)-> detached
    """

    def __init__(self, place: str) -> None:
        """Create the log of a place. `place`: the place's title."""
        self._place = place
        self._attached: tuple[Introduction, Peer] | None = None
        self._before = ""
        """The id of the instance that was attached last."""
        self._refused = ""

    def entered(self, state: State, reason: str, introduction: Introduction | None, peer: Peer) -> None:
        """Log a change of state, if it attaches, detaches or refuses an instance.

        `introduction` and `peer`: those of the latest instance.
        """
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
        """Log a failed attempt if the peer was refused; a peer that cannot be reached is not logged."""
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
            return  # The attachment retries; log the same refusal once.
        self._refused = reason
        _LOG.warning("audit.refused", place=self._place, reason=reason, **peer.to_log())


def digest(descriptor: Descriptor) -> str:
    """Return the SHA-256 of a plugin's declaration in hexadecimal; equal declarations have equal digests."""
    encoded = encode_descriptor(descriptor).SerializeToString(deterministic=True)
    return hashlib.sha256(encoded).hexdigest()
