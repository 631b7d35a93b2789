"""The unschedulable pool: pods that wait for an event, gated ones included, found by who rejected them.

An event asks only the pods rejected by plugins that registered for it, so that thousands of pods that
it cannot concern cost nothing. Owned by `places`.
Source: kube-scheduler `backend/queue/scheduling_queue.go` (unschedulablePods), v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from berth_host.queue.queued_pod import QueuedPodInfo

_NOBODY: Final = ""  # the index entry of pods without a rejecting plugin


class UnschedulablePool:
    """Pods by key, in the order of their coming. A pod's rejecting plugins stand still while it is here."""

    def __init__(self) -> None:
        self._infos: dict[str, QueuedPodInfo] = {}
        self._by_plugin: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._infos)

    def __contains__(self, key: str) -> bool:
        return key in self._infos

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        return iter(self._infos.values())

    @property
    def gated_count(self) -> int:
        """Pods that PreEnqueue keeps out."""
        return sum(1 for info in self._infos.values() if info.is_gated)

    def get(self, key: str) -> QueuedPodInfo | None:
        """The pod called `namespace/name`, or None."""
        return self._infos.get(key)

    def put(self, info: QueuedPodInfo) -> None:
        """Put a pod in, or again after its rejecting plugins have changed."""
        key = info.key
        self.remove(key)
        self._infos[key] = info
        for plugin in _indexed(info):
            self._by_plugin.setdefault(plugin, {})[key] = None

    def remove(self, key: str) -> QueuedPodInfo | None:
        """Take a pod out; None if it is not here."""
        info = self._infos.pop(key, None)
        if info is None:
            return None
        for plugin in [name for name, keys in self._by_plugin.items() if key in keys]:
            keys = self._by_plugin[plugin]
            del keys[key]
            if not keys:
                del self._by_plugin[plugin]
        return info

    def rejected_by(self, plugins: Iterable[str]) -> list[QueuedPodInfo]:
        """Pods that one of `plugins` rejected, and those that nobody did: any event may help these."""
        keys: dict[str, None] = {}
        for plugin in (_NOBODY, *plugins):
            keys.update(self._by_plugin.get(plugin, {}))
        return [self._infos[key] for key in keys]


def _indexed(info: QueuedPodInfo) -> Iterable[str]:
    return (info.unschedulable_plugins | info.pending_plugins) or (_NOBODY,)
