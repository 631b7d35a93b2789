"""`State`: where an attachment stands. Moved by `Attachment`, shown in conditions."""

from __future__ import annotations

from dataclasses import dataclass
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
    DRAINED = "Drained"
    CLOSED = "Closed"


ATTACHED: Final = frozenset({State.ACTIVE, State.DEGRADED, State.QUARANTINED})
"""An instance is attached that the host would ask; STANDBY has one that it would not."""
NOT_NEEDED: Final = frozenset({State.STANDBY, State.DRAINED})
"""Another instance of the same plugins is asked, or this host does not lead: nothing is the matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceChange:
    """A place has another state, or another reason for it. `place`: its title; `plugins`: those that
    are served there.
    """

    place: str
    plugins: tuple[str, ...]
    state: State
    reason: str
    instance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Another instance of a plugin is asked in place of the instance `before`. `falls_back`: it is an older
    one, for `reason`.
    """

    plugin: str
    before: str
    instance_id: str
    falls_back: bool
    reason: str
