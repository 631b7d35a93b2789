"""`SnapshotState`: the snapshot and its changes, for the copies of served plugins."""

from __future__ import annotations

import asyncio

from berth_sdk.selection import StateSelection
from berth_sdk.tables import ObjectStore, StateVersion

from berth_host.cache.cache import Cache
from berth_host.cache.change_log import ChangeLog
from berth_host.cache.snapshot import Snapshot
from berth_host.model.resources import kind_of
from berth_host.model.state_changes import StateChanges


class SnapshotState:
    """The snapshot of the cache, and the log of its changes; implements `attach.feed.HostState`."""

    def __init__(self, snapshot: Snapshot, cache: Cache) -> None:
        self._snapshot = snapshot
        self._cache = cache
        self._log = ChangeLog(snapshot)

    @property
    def version(self) -> StateVersion:
        """The version of the snapshot."""
        return self._snapshot.version

    def changes_since(self, base: StateVersion | None, selection: StateSelection) -> StateChanges | None:
        """Return the changes since `base`; None if the log does not reach back to it."""
        return self._log.changes_since(base, selection)

    def index_of(self, node_name: str) -> int | None:
        """Return the slot of a node; None if the snapshot does not have it."""
        return self._snapshot.columns.index_of.get(node_name)

    def node_names(self) -> list[str]:
        """Return the names of all nodes."""
        return self._snapshot.nodes.names

    def objects_of(self, resource: str) -> ObjectStore:
        """Return the objects of a resource in the snapshot."""
        return self._snapshot.objects_of_kind(kind_of(resource))

    async def refresh(self) -> None:
        """Update the snapshot, now or at the end of the cycle that holds it; return afterwards."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def refresh() -> None:
            self._snapshot.update(self._cache)
            if not done.done():  # The waiting task may have been cancelled.
                done.set_result(None)

        self._snapshot.when_released(refresh)
        await done

    def refresh_if_idle(self) -> None:
        """Update the snapshot unless a cycle holds it; the next cycle updates it anyway."""
        if not self._snapshot.held:
            self._snapshot.update(self._cache)
