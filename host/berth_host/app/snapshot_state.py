"""The snapshot for copies in other processes, and its changes. Made by `parts`."""

from __future__ import annotations

import asyncio

from berth_sdk.selection import StateSelection
from berth_sdk.tables import StateVersion

from berth_host.cache.cache import Cache
from berth_host.cache.change_log import ChangeLog
from berth_host.cache.snapshot import Snapshot
from berth_host.model.state_changes import StateChanges


class SnapshotState:
    """`attach.feed.HostState` over the snapshot of the cache."""

    def __init__(self, snapshot: Snapshot, cache: Cache) -> None:
        self._snapshot = snapshot
        self._cache = cache
        self._log = ChangeLog(snapshot)

    @property
    def version(self) -> StateVersion:
        """The snapshot's version now."""
        return self._snapshot.version

    def changes_since(self, base: StateVersion | None, selection: StateSelection) -> StateChanges | None:
        """The changes since `base`; None: not known any more."""
        return self._log.changes_since(base, selection)

    def index_of(self, node_name: str) -> int | None:
        """The slot of a node."""
        return self._snapshot.columns.index_of.get(node_name)

    def node_names(self) -> list[str]:
        """Every node."""
        return self._snapshot.nodes.names

    async def refresh(self) -> None:
        """Bring the snapshot up to date, now or when the cycle that holds it is over."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def refresh() -> None:
            self._snapshot.update(self._cache)
            if not done.done():  # the waiting task may be gone
                done.set_result(None)

        self._snapshot.when_released(refresh)
        await done

    def refresh_if_idle(self) -> None:
        """Bring the snapshot up to date, unless a cycle holds it: then the next cycle does."""
        if not self._snapshot.held:
            self._snapshot.update(self._cache)
