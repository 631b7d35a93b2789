"""`Swaps`: count the calls that an upgrade in a socket folder lost, by the host's own count of failed calls.

Used by `faults`. A call may fail for many reasons while other parts have faults. Only the plugin's own
upgrade can make all of its instances unreachable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from berth_bench.soak.plugin_process import PluginProcess

LOST_BY: Final = frozenset({"absent", "unavailable"})
"""Kinds of failed calls, as in `berth_plugin_failures_total`."""
_WELL_WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Failures:
    """`pid`: the process of the host that counts; `count`: calls of a plugin that found no instance so
    far.
    """

    pid: int
    count: int


FailuresOf = Callable[[str], Awaitable[Failures | None]]
"""Returns the failures of a plugin by its name; None while no host answers."""


class Swaps:
    """Counts upgrades. `counted`: upgrades whose calls could be counted from beginning to end; `lost_calls`
    of these.
    """

    def __init__(self, failures_of: FailuresOf) -> None:
        self.counted = 0
        self.lost_calls = 0
        self._failures_of = failures_of

    async def swap(self, plugin: PluginProcess) -> None:
        """Upgrade the plugin. Count only if one host observed it, and the plugin was healthy before and
        after.
        """
        early = await self._failures_of(plugin.name)
        was_asked = await plugin.is_asked(_WELL_WITHIN_S)
        before = await self._failures_of(plugin.name)
        is_asked = await plugin.upgrade()
        after = await self._failures_of(plugin.name)
        if early is None or before is None or after is None or not (was_asked and is_asked):
            return
        if early.pid == before.pid == after.pid:
            self.counted += 1
            self.lost_calls += after.count - before.count
