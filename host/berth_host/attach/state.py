"""`State`: the states of an attachment. Set by `Attachment`, shown in conditions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class State(Enum):
    """The states of an attachment; `attachment` has the transitions."""

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
"""The states with an attached instance that may get calls; in STANDBY the instance gets none."""
NOT_NEEDED: Final = frozenset({State.STANDBY, State.DRAINED})
"""The states without a problem in which another instance gets the calls, or this host does not lead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceChange:
    """A place's new state, or the state's new reason. `place`: its title. `plugins`: those served there."""

    place: str
    plugins: tuple[str, ...]
    state: State
    reason: str
    instance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """A change of the instance that gets a plugin's calls, from `before` to `instance_id`.

    `falls_back`: True if the new instance is the older one. `reason`: why `before` was replaced.
    """

    plugin: str
    before: str
    instance_id: str
    falls_back: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeChange:
    """A new instance declares another scope than the last one. `before`, `after`: the scopes, for people."""

    plugin: str
    instance_id: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refusal of arguments. `plugins`: their names. `place`: the place's title. `reason`: begins with a
    verb.
    """

    plugins: str
    place: str
    reason: str
