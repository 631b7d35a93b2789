"""Requeues pods for plugins: on a request through the handle, and after a plugin's recovery.

Called by the queue. Pods that failed because a plugin could not be called are in backoffQ after an error,
where cluster events do not reach them; so the queue stores these pods by plugin.
"""

from __future__ import annotations

from collections.abc import Iterable

from berth_host.queue.events import PLUGIN_RECOVERED, PluginRequest
from berth_host.queue.hints import Hints, Strategy
from berth_host.queue.places import Place, Places
from berth_host.queue.queued_pod import QueuedEntity


class FailedOn:
    """The pods and groups by the plugin because of which their last attempt failed."""

    def __init__(self) -> None:
        self._plugin_of: dict[str, str] = {}
        self._keys: dict[str, dict[str, None]] = {}

    def note(self, key: str, plugin: str) -> None:
        """Record that the pod's attempt failed because of `plugin`."""
        self.forget(key)
        self._plugin_of[key] = plugin
        self._keys.setdefault(plugin, {})[key] = None

    def forget(self, key: str) -> None:
        """Remove a pod that is retried or deleted."""
        plugin = self._plugin_of.pop(key, None)
        if plugin is not None:
            del self._keys[plugin][key]

    def take(self, plugin: str) -> list[str]:
        """Remove and return the pods of one plugin."""
        keys = list(self._keys.pop(plugin, ()))
        for key in keys:
            del self._plugin_of[key]
        return keys


class PluginRequests:
    """The requeue requests for queued pods; the queue handles pods in flight."""

    def __init__(self, places: Places, hints: Hints) -> None:
        self._places = places
        self._hints = hints
        self.failed_on = FailedOn()

    def requeue(self, request: PluginRequest) -> int:
        """Requeue the requested pods of the pool, with `skip_backoff` also of backoffQ; return how many."""
        moved = 0
        for info in list(self._candidates(request)):
            strategy = self._hints.judge(info, request)
            if strategy is not Strategy.SKIP and self._move(info, strategy, request.label):
                moved += 1
        return moved

    def recover(self, plugin: str) -> int:
        """Activate the pods that failed because of a recovered plugin, and call its gates again.

        Returns the number of moved pods.
        """
        moved = 0
        for key in self.failed_on.take(plugin):
            info = self._places.backoff.get(key)
            if info is not None:
                self._places.activate_from_backoff(info, PLUGIN_RECOVERED)
                moved += 1
        for info in [info for info in self._places.pool if info.gating_plugin == plugin]:
            moved += self._move(info, Strategy.AFTER_BACKOFF, PLUGIN_RECOVERED)
        return moved

    def _candidates(self, request: PluginRequest) -> Iterable[QueuedEntity]:
        if request.uids is None:
            for alike in self._places.pool.rejected_by([request.plugin]):
                yield from alike.infos
        else:
            yield from (info for info in self._places.pool if info.has_any(request.uids))
        if request.skip_backoff:
            yield from self._places.backoff.rejected()
            yield from self._places.backoff.failed()

    def _move(self, info: QueuedEntity, strategy: Strategy, label: str) -> bool:
        if info.key in self._places.backoff:
            self._places.activate_from_backoff(info, label)
            return True
        return self._places.requeue(info, strategy, label) is not Place.POOL
