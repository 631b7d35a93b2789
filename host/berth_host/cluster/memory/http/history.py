"""`History`: the last changes of the embedded cluster, for watches that begin in the past.

Used by `watching`. A change of the store has the version that the store gave it; a deletion gets one of its
own, as etcd would give it. Source: apiserver `storage/cacher/watch_cache.go`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from berth_host.cluster.memory.kinds import BY_KIND, Kind
from berth_host.cluster.memory.store import ObjectStore
from berth_host.cluster.port import WatchEvent

Object = dict[str, Any]
KEPT: Final = 50_000
"""Changes that are remembered, of all kinds together. A watch that begins earlier has to list again."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change at `version`. `old` None: an addition; `new` None: a deletion, whose last state is `old`."""

    version: int
    kind: Kind
    old: Object | None
    new: Object | None


class History:
    """Attributes: version (of the newest change), forgotten (the newest version that is not kept)."""

    def __init__(self, store: ObjectStore, kept: int = KEPT) -> None:
        self._store = store
        self._changes: deque[Change] = deque(maxlen=kept)
        self._listeners: list[Callable[[Change], None]] = []
        self.version = store.next_version()
        self.forgotten = self.version
        self._unsubscribe = store.subscribe(self._note)

    def close(self) -> None:
        """Note no more changes."""
        self._unsubscribe()

    def since(self, version: int) -> list[Change] | None:
        """The changes after `version`, the oldest first; None where some of them are forgotten."""
        if version < self.forgotten:
            return None
        return [change for change in self._changes if change.version > version]

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Tell `listener` of every change from now on, at once; the answer ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _note(self, event: WatchEvent) -> None:
        old = None if event.old is None else dict(event.old.parsed)
        new = None if event.new is None else dict(event.new.parsed)
        version = self._store.next_version() if new is None else int(new["metadata"]["resourceVersion"])
        change = Change(version, BY_KIND[event.kind], old, new)
        if len(self._changes) == self._changes.maxlen:
            self.forgotten = self._changes[0].version
        self._changes.append(change)
        self.version = version
        for listener in list(self._listeners):
            listener(change)
