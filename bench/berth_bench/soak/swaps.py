"""`Swaps`: whether an upgrade in a socket folder lost a cycle, by the host's own count of failed calls.

Asked by `faults`. A call fails for many reasons while others have misfortunes; that no instance of this
plugin could be reached is the one reason which only its own upgrade can bring.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from berth_bench.soak.plugin_process import PluginProcess

LOST_BY: Final = frozenset({"absent", "unavailable"})
"""Kinds of failed calls, as `berth_plugin_failures_total` names them."""
_WELL_WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Failures:
    """`pid`: of the host that counts; `count`: calls of a plugin that found no instance so far."""

    pid: int
    count: int


FailuresOf = Callable[[str], Awaitable[Failures | None]]
"""Of a plugin, by its name; None while no host answers."""


class Swaps:
    """`counted`: upgrades whose calls could be counted from beginning to end; `lost_calls` of these."""

    def __init__(self, failures_of: FailuresOf) -> None:
        self.counted = 0
        self.lost_calls = 0
        self._failures_of = failures_of

    async def swap(self, plugin: PluginProcess) -> None:
        """Upgrade it. Counted is what one host did with a plugin that was well before and after."""
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
