"""`Faults`: what goes wrong during a soak, at random, and how often it did.

Run by `world`. Each plugin, the host and the cluster have faults of their own, concurrently. The task that
causes a fault also repairs it, even if the soak ends in between.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from berth_bench.soak.clusters import CUT, STOPPED, Interruption
from berth_bench.soak.plugin_process import PluginProcess
from berth_bench.soak.plugins import Mood
from berth_bench.soak.swaps import Swaps

_PLUGIN_REST_S: Final = (2.0, 12.0)
"""Minimum and maximum time between two faults of one plugin, in seconds; the others likewise."""
_CLUSTER_REST_S: Final = (20.0, 60.0)
_HOST_REST_S: Final = (25.0, 60.0)
_GONE_S: Final = (0.1, 3.0)
_HELD_S: Final = (1.0, 15.0)
_MOODY_S: Final = (1.0, 8.0)
KINDS: Final = ("killed", "hung", "slowed", "invalid", "upgraded", CUT, STOPPED, "host_killed")


class Faults:
    """Causes faults. `counts`: faults so far, by their names in the result. `lasts_s`: duration of the soak;
    in a short soak the pauses are shorter too.
    """

    def __init__(
        self,
        plugins: Sequence[PluginProcess],
        swaps: Swaps,
        interruptions: Sequence[Interruption],
        restart_host: Callable[[], Awaitable[None]],
        rng: random.Random,
        lasts_s: float,
    ) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self._plugins = plugins
        self._swaps = swaps
        self._interruptions = interruptions
        self._restart_host = restart_host
        self._rng = rng
        self._lasts_s = lasts_s

    async def run(self, host_until_s: float) -> None:
        """Cause faults until cancelled. `host_until_s`: the loop's time after which the host has no more
        faults.
        """
        async with asyncio.TaskGroup() as group:
            for plugin in self._plugins:
                # A seed each, so that the faults of one plugin do not depend on how long another took to
                # start.
                group.create_task(self._plugin(plugin, random.Random(self._rng.random())))
            for interruption in self._interruptions:
                group.create_task(self._interrupt(interruption, random.Random(self._rng.random())))
            group.create_task(self._kill_host(random.Random(self._rng.random()), host_until_s))

    async def _plugin(self, plugin: PluginProcess, rng: random.Random) -> None:
        misfortunes = (self._kill, self._hang, self._slow, self._answer_wrongly, self._upgrade)
        while True:
            await asyncio.sleep(rng.uniform(*_PLUGIN_REST_S))
            await rng.choice(misfortunes)(plugin, rng)

    async def _kill(self, plugin: PluginProcess, rng: random.Random) -> None:
        self.counts["killed"] += 1
        try:
            await plugin.kill()
            await asyncio.sleep(rng.uniform(*_GONE_S))
        finally:
            await plugin.start()

    async def _hang(self, plugin: PluginProcess, rng: random.Random) -> None:
        self.counts["hung"] += 1
        plugin.hold()
        try:
            await asyncio.sleep(rng.uniform(*_HELD_S))
        finally:
            plugin.go_on()

    async def _slow(self, plugin: PluginProcess, rng: random.Random) -> None:
        self.counts["slowed"] += 1
        await self._moody(plugin, Mood.SLOW, rng)

    async def _answer_wrongly(self, plugin: PluginProcess, rng: random.Random) -> None:
        """Make the plugin give wrong answers for a while. It is then in quarantine, so start another
        instance, as an operator would.
        """
        self.counts["invalid"] += 1
        try:
            await self._moody(plugin, Mood.INVALID, rng)
        finally:
            try:
                await plugin.stop()
            finally:
                await plugin.start()

    async def _moody(self, plugin: PluginProcess, mood: Mood, rng: random.Random) -> None:
        plugin.behave(mood)
        try:
            await asyncio.sleep(rng.uniform(*_MOODY_S))
        finally:
            plugin.behave(Mood.HONEST)

    async def _upgrade(self, plugin: PluginProcess, rng: random.Random) -> None:
        self.counts["upgraded"] += 1
        if plugin.sockets is None:
            await plugin.upgrade()
        else:
            await self._swaps.swap(plugin)

    async def _interrupt(self, interruption: Interruption, rng: random.Random) -> None:
        while True:
            await asyncio.sleep(rng.uniform(*self._rest_s(_CLUSTER_REST_S)))
            self.counts[interruption.name] += 1
            try:
                await interruption.begin()
                await asyncio.sleep(rng.uniform(*interruption.lasts_s))
            finally:
                await interruption.end()

    async def _kill_host(self, rng: random.Random, until_s: float) -> None:
        while True:
            await asyncio.sleep(rng.uniform(*self._rest_s(_HOST_REST_S)))
            if asyncio.get_running_loop().time() > until_s:
                return
            self.counts["host_killed"] += 1
            await self._restart_host()

    def _rest_s(self, usual: tuple[float, float]) -> tuple[float, float]:
        """Return a pause that is short enough for a fault of each kind in a short soak."""
        least, most = usual
        return min(least, self._lasts_s / 4), min(most, self._lasts_s / 2)
