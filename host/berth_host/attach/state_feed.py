"""`InstanceFeed`: the updates of one instance's copy of the state, from the change log and the encoder.

Made by an attachment for an instance with plugins in SNAPSHOT mode; read by its `InstanceLink`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from berth_sdk.kept.follows import Versioned
from berth_sdk.needs import Need
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.selection import StateSelection
from berth_sdk.tables import StateVersion

from berth_host.errors.state import InvariantError
from berth_host.rpc.state_codec import MAX_DELTA_NODES, StateEncoder, StateSource, fits_in_call


class HostState(StateSource, Protocol):
    """The snapshot and its change log."""

    def index_of(self, node_name: str) -> int | None:
        """Return the slot of a node; None if there is no such node."""
        ...

    def node_names(self) -> list[str]:
        """Return the names of all nodes."""
        ...

    def objects_of(self, resource: str) -> Versioned:
        """Return the objects of a resource in the snapshot, which copies follow."""
        ...

    async def refresh(self) -> None:
        """Update the snapshot, when no cycle reads it."""
        ...


class InstanceFeed:
    """The feed of one instance. `needs`: those of all its plugins, which share one copy of the union."""

    def __init__(self, state: HostState, needs: Iterable[Need]) -> None:
        self._state = state
        self._selection = StateSelection.of(needs)
        self._encoder = StateEncoder(self._selection)

    @property
    def version(self) -> StateVersion:
        """The version of the snapshot."""
        return self._state.version

    def index_of(self, node_name: str) -> int | None:
        """Return the slot of a node in the snapshot; None if there is no such node."""
        return self._state.index_of(node_name)

    def node_names(self) -> list[str]:
        """Return the names of all nodes in the snapshot."""
        return self._state.node_names()

    def objects(self, resource: str) -> Versioned:
        """Return the objects of a resource, as the instance's calls see them."""
        return self._state.objects_of(resource)

    async def refresh(self) -> None:
        """Update the snapshot, when no cycle reads it."""
        await self._state.refresh()

    def delta(self, base: StateVersion, max_message_bytes: int) -> pb.StateDelta | None:
        """Return the delta from `base` to the snapshot; None if it is unknown or too large for a call."""
        changes = self._state.changes_since(base, self._selection)
        if changes is None or len(changes.nodes) > MAX_DELTA_NODES:
            return None
        delta = self._encoder.delta(changes)
        return delta if fits_in_call(changes, delta, max_message_bytes) else None

    def stream(
        self, base: StateVersion | None, max_message_bytes: int
    ) -> tuple[StateVersion, Iterator[state_pb2.SyncStateRequest | None]]:
        """Return the target version and the chunks of an update, with None between chunks.

        The whole state is sent if `base` is None or is not in the change log any more.
        """
        changes = self._state.changes_since(base, self._selection)
        if changes is None:
            changes = self._state.changes_since(None, self._selection)
        if changes is None:
            raise InvariantError("the change log cannot say what the whole state is")
        return changes.target, self._encoder.chunks(changes, max_message_bytes)
