"""The plugins of a profile to call at a point, in order, without those that do not concern the pod.

Called by `Framework`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from berth_sdk.extension_points import ExtensionPoint

from berth_host.attempt.cycle import Cycle
from berth_host.framework.score_table import WeightedPlugin
from berth_host.rpc.client import PluginClient

_MOST: Final = 256
_NOBODY: Final[frozenset[str]] = frozenset()


class Asked:
    """The plugins of a profile by extension point."""

    def __init__(self, plugins: Mapping[ExtensionPoint, Sequence[WeightedPlugin]]) -> None:
        self._clients = {
            point: tuple(plugin.client for plugin in plugins.get(point, ())) for point in ExtensionPoint
        }
        # All other plugins are called for every pod.
        self._sometimes = {
            point: tuple(client for client in found if not client.always_asked_at(point))
            for point, found in self._clients.items()
        }
        self._without: dict[tuple[ExtensionPoint, frozenset[str]], tuple[PluginClient, ...]] = {}

    def at(self, point: ExtensionPoint) -> tuple[PluginClient, ...]:
        """Return all plugins of one point."""
        return self._clients[point]

    def asks_all(self, *points: ExtensionPoint) -> bool:
        """Return True if at these points every plugin is called about every pod, unless it skips."""
        return not any(self._sometimes[point] for point in points)

    def about(
        self, cycle: Cycle, point: ExtensionPoint, skip: frozenset[str] = _NOBODY
    ) -> tuple[PluginClient, ...]:
        """Return the plugins to call for the cycle's pod, without the plugins in `skip`.

        Returns the identical tuple for the same plugins. The points of a served plugin are those of the
        instance that the cycle began with.
        """
        sometimes = self._sometimes[point]
        if sometimes:
            absent = [
                client.name
                for client in sometimes
                if point not in client.descriptor_in(cycle).points or not client.concerns(cycle)
            ]
            if absent:
                skip = skip.union(absent)
        if not skip:
            return self._clients[point]
        left = self._without.get((point, skip))
        if left is None:
            if len(self._without) >= _MOST:
                self._without.clear()
            left = tuple(client for client in self._clients[point] if client.name not in skip)
            self._without[point, skip] = left
        return left
