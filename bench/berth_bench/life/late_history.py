"""`LateHistory`: the changes of the cluster as an API server sees them whose watch cache is behind.

As in Kubernetes, only watches are late: lists, reads and writes go to the store that all API servers share.
Source: apiserver `storage/cacher/cacher.go` and KEP-2340 (consistent reads from the watch cache).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from berth_sim.cluster.http.history import Change, History


class LateHistory:
    """The changes of `inner`, each of which comes late (`Watched`). `lag_s`: how late, in seconds."""

    def __init__(self, inner: History, loop: asyncio.AbstractEventLoop) -> None:
        """`loop`: gives the time."""
        self.version = inner.version
        self.lag_s = 0.0
        self._inner = inner
        self._loop = loop
        self._coming: deque[tuple[float, Change]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._listeners: list[Callable[[Change], None]] = []
        self._stop_listening = inner.listen(self._hear)

    def close(self) -> None:
        """Hear of no further changes."""
        self._stop_listening()
        if self._timer is not None:
            self._timer.cancel()

    @property
    def forgotten(self) -> int:
        """The version of the newest change that was dropped."""
        return self._inner.forgotten

    @property
    def list_version(self) -> int:
        """The version of a list that is read now: that of the store."""
        return self._inner.list_version

    def since(self, version: int) -> list[Change] | None:
        """Return the changes after `version` that came here; None if some of them were dropped."""
        found = self._inner.since(version)
        return None if found is None else [change for change in found if change.version <= self.version]

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` for every change that comes here later; return the function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def catch_up(self) -> None:
        """Let all changes come now, and later ones at once."""
        self.lag_s = 0.0
        self._coming = deque((0.0, change) for _, change in self._coming)
        self._arrive()

    def _hear(self, change: Change) -> None:
        due_s = self._loop.time() + self.lag_s
        self._coming.append((max(due_s, self._coming[-1][0]) if self._coming else due_s, change))
        if len(self._coming) == 1:
            self._arrive()

    def _arrive(self) -> None:
        """Let the changes come that are due, and set the timer for the next one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._coming and self._coming[0][0] <= self._loop.time():
            _, change = self._coming.popleft()
            self.version = change.version
            for listener in list(self._listeners):
                listener(change)
        if self._coming:
            self._timer = self._loop.call_at(self._coming[0][0], self._arrive)
