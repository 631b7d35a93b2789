"""`InstanceFeed`: the host's state as one instance gets it. Joins the change log and the encoder.

Made by an attachment for an instance with plugins in SNAPSHOT mode; read by its `InstanceLink`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from berth_sdk.needs import Need
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.selection import StateSelection
from berth_sdk.tables import StateVersion

from berth_host.errors.state import InvariantError
from berth_host.rpc.state_codec import MAX_DELTA_NODES, StateEncoder, StateSource, fits_in_call


class HostState(StateSource, Protocol):
    """The snapshot and its changes."""

    def index_of(self, node_name: str) -> int | None:
        """The slot of a node."""
        ...

    def node_names(self) -> list[str]:
        """Every node."""
        ...

    async def refresh(self) -> None:
        """Bring the snapshot up to date, when no cycle reads it."""
        ...


class InstanceFeed:
    """`needs`: those of all plugins of the instance, which holds their union."""

    def __init__(self, state: HostState, needs: Iterable[Need]) -> None:
        self._state = state
        self._selection = StateSelection.of(needs)
        self._encoder = StateEncoder(self._selection)

    @property
    def version(self) -> StateVersion:
        """The snapshot as it stands."""
        return self._state.version

    def index_of(self, node_name: str) -> int | None:
        """The slot of a node in the snapshot."""
        return self._state.index_of(node_name)

    def node_names(self) -> list[str]:
        """Every node of the snapshot."""
        return self._state.node_names()

    async def refresh(self) -> None:
        """Bring the snapshot up to date, when no cycle reads it."""
        await self._state.refresh()

    def delta(self, base: StateVersion) -> pb.StateDelta | None:
        """From `base` to the snapshot; None where the way is not known or too large for a call."""
        changes = self._state.changes_since(base, self._selection)
        if changes is None or len(changes.nodes) > MAX_DELTA_NODES:
            return None
        delta = self._encoder.delta(changes)
        return delta if fits_in_call(changes, delta) else None

    def stream(
        self, base: StateVersion | None, max_message_bytes: int
    ) -> tuple[StateVersion, Iterator[state_pb2.SyncStateRequest | None]]:
        """(target, chunks with None between them); everything where `base` is None or not known any more."""
        changes = self._state.changes_since(base, self._selection)
        if changes is None:
            changes = self._state.changes_since(None, self._selection)
        if changes is None:
            raise InvariantError("the change log cannot say what the whole state is")
        return changes.target, self._encoder.chunks(changes, max_message_bytes)
