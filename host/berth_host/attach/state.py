"""`State`: where an attachment stands. Moved by `Attachment`, shown in conditions."""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """The states of the life of an attachment; see `attachment`."""

    CONNECTING = "Connecting"
    HANDSHAKING = "Handshaking"
    STANDBY = "Standby"
    CONFIGURING = "Configuring"
    SYNCING = "Syncing"
    ACTIVE = "Active"
    DEGRADED = "Degraded"
    QUARANTINED = "Quarantined"
    BACKOFF = "BackOff"
    REJECTED = "Rejected"
    DRAINING = "Draining"
    CLOSED = "Closed"


ATTACHED: Final = frozenset({State.ACTIVE, State.DEGRADED, State.QUARANTINED})
"""An instance is attached that the host would ask; STANDBY has one that it would not."""
