"""Plugins that ask for pods to be tried again: through their handle, or by coming back after an absence.

Called by the queue. Pods that failed because a plugin could not be asked sit in the error backoff, where
no cluster event reaches them; so the queue remembers them per plugin.
"""

from __future__ import annotations

from collections.abc import Iterable

from berth_host.queue.events import PLUGIN_RECOVERED, PluginRequest
from berth_host.queue.hints import Hints, Strategy
from berth_host.queue.places import Place, Places
from berth_host.queue.queued_pod import QueuedPodInfo


class FailedOn:
    """Pods by the plugin on whose account their last attempt failed."""

    def __init__(self) -> None:
        self._plugin_of: dict[str, str] = {}
        self._keys: dict[str, dict[str, None]] = {}

    def note(self, key: str, plugin: str) -> None:
        """The pod's attempt failed because of `plugin`."""
        self.forget(key)
        self._plugin_of[key] = plugin
        self._keys.setdefault(plugin, {})[key] = None

    def forget(self, key: str) -> None:
        """The pod is tried again, or is gone."""
        plugin = self._plugin_of.pop(key, None)
        if plugin is not None:
            del self._keys[plugin][key]

    def take(self, plugin: str) -> list[str]:
        """The pods of one plugin, which are forgotten."""
        keys = list(self._keys.pop(plugin, ()))
        for key in keys:
            del self._plugin_of[key]
        return keys


class PluginRequests:
    """Carries out requests on the pods that are queued; those in flight are the queue's business."""

    def __init__(self, places: Places, hints: Hints) -> None:
        self._places = places
        self._hints = hints
        self.failed_on = FailedOn()

    def requeue(self, request: PluginRequest) -> int:
        """Move the pods that are meant out of the pool, and with `skip_backoff` out of the backoff too."""
        moved = 0
        for info in list(self._candidates(request)):
            strategy = self._hints.judge(info, request)
            if strategy is not Strategy.SKIP and self._move(info, strategy, request.label):
                moved += 1
        return moved

    def recover(self, plugin: str) -> int:
        """The plugin can be asked again: activate the pods that failed on its account, open its gates
        anew."""
        moved = 0
        for key in self.failed_on.take(plugin):
            info = self._places.backoff.get(key)
            if info is not None:
                self._places.activate_from_backoff(info, PLUGIN_RECOVERED)
                moved += 1
        for info in [info for info in self._places.pool if info.gating_plugin == plugin]:
            moved += self._move(info, Strategy.AFTER_BACKOFF, PLUGIN_RECOVERED)
        return moved

    def _candidates(self, request: PluginRequest) -> Iterable[QueuedPodInfo]:
        if request.uids is None:
            for alike in self._places.pool.rejected_by([request.plugin]):
                yield from alike.infos
        else:
            yield from (info for info in self._places.pool if info.uid in request.uids)
        if request.skip_backoff:
            yield from self._places.backoff.rejected()
            yield from self._places.backoff.failed()

    def _move(self, info: QueuedPodInfo, strategy: Strategy, label: str) -> bool:
        if info.key in self._places.backoff:
            self._places.activate_from_backoff(info, label)
            return True
        return self._places.requeue(info, strategy, label) is not Place.POOL
