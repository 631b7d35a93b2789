"""`History`: the latest changes of the embedded cluster, for watches that start at an older version.

Used by `serving`. A change has the version that the store gave the object. A deletion gets a version of its
own, as in etcd. Source: apiserver `storage/cacher/watch_cache.go`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from berth_host.cluster.port import WatchEvent

from berth_sim.cluster.kinds import BY_WATCH_KIND, Kind
from berth_sim.cluster.store import ObjectStore

Object = dict[str, Any]
KEPT: Final = 50_000
"""The most changes kept, of all kinds together. A watch that starts earlier has to list again."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change at `version`. `old` is None for an addition, `new` for a deletion."""

    version: int
    kind: Kind
    old: Object | None
    new: Object | None


class Watched(Protocol):
    """The changes that the watches of one API server get."""

    @property
    def version(self) -> int:
        """The version of the newest change."""
        ...

    @property
    def forgotten(self) -> int:
        """The version of the newest change that was dropped."""
        ...

    @property
    def list_version(self) -> int:
        """The version of a list that is read now."""
        ...

    def since(self, version: int) -> list[Change] | None:
        """Return the changes after `version`, oldest first; None if some of them were dropped."""
        ...

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` for every later change; return the function that ends this."""
        ...

    def close(self) -> None:
        """Get no further changes."""
        ...


class History:
    """The kept changes. Attributes: version (of the newest change), forgotten (of the newest dropped one)."""

    def __init__(self, store: ObjectStore, kept: int = KEPT) -> None:
        self._store = store
        self._changes: deque[Change] = deque(maxlen=kept)
        self._listeners: list[Callable[[Change], None]] = []
        self.version = store.next_version()
        self.forgotten = self.version
        self._unsubscribe = store.subscribe(self._note)

    def close(self) -> None:
        """Stop recording changes."""
        self._unsubscribe()

    def compact(self) -> None:
        """Drop all kept changes: a watch that starts before now has to list again."""
        self._changes.clear()
        self.forgotten = self.version

    @property
    def list_version(self) -> int:
        """The version of a list that is read now."""
        return self.version

    def since(self, version: int) -> list[Change] | None:
        """Return the changes after `version`, oldest first; None if some of them were dropped."""
        if version < self.forgotten:
            return None
        return [change for change in self._changes if change.version > version]

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` inside every later change; return the function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _note(self, event: WatchEvent) -> None:
        old = None if event.old is None else dict(event.old.parsed)
        new = None if event.new is None else dict(event.new.parsed)
        version = self._store.next_version() if new is None else int(new["metadata"]["resourceVersion"])
        change = Change(version, BY_WATCH_KIND[event.kind], old, new)
        if len(self._changes) == self._changes.maxlen:
            self.forgotten = self._changes[0].version
        self._changes.append(change)
        self.version = version
        for listener in list(self._listeners):
            listener(change)
