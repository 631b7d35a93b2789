"""`ServedWorld`: what happens to the process of the served plugin in a life, and the laws about the plugin.

The process dies and starts again, stands still, is replaced by another version, answers late, or answers what
the contract forbids. Its link loses connections, and refuses new ones for a while.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from berth_host.cluster.port import WatchEvent
from berth_sdk.extension_points import Plugin

from berth_bench.life.guard import GUARD, PLUGIN, GuardLedger, Memory, guard
from berth_bench.life.hosts import Act
from berth_bench.life.laws import LawBrokenError, agree
from berth_bench.life.link import Delays, Network
from berth_bench.life.served import Habits, PluginProcess
from berth_bench.life.served_weights import ServedWeights
from berth_bench.life.trace import Trace
from berth_bench.life.virtual_loop import VirtualLoop

ENDPOINT: Final = "unix:///life/guard.sock"
_STARTS_S: Final = 5.0
"""The longest time until a process that died is there again."""
_STILL_S: Final = 30.0
_DOWN_S: Final = 10.0
_CALM_S: Final = 0.005
"""The longest time of a message, and of the work for a call, once nothing is late any more. All steps of a
call together then take less than the shortest deadline that a reload draws.
"""


class ServedWorld:
    """The served plugin of one life."""

    def __init__(
        self, loop: VirtualLoop, weights: ServedWeights, chance: random.Random, trace: Trace, *, is_hurt: bool
    ) -> None:
        """`is_hurt` False: nothing happens to the process."""
        self._delays = Delays(random.Random(chance.random()), weights.link_s)
        self.network = Network(loop, self._delays)
        self.ledger = GuardLedger()
        self.broken = ""
        self._loop = loop
        self._weights = weights
        self._chance = chance
        self._trace = trace
        self._is_hurt = is_hurt
        self._link = self.network.link(ENDPOINT)
        self._number = 0
        self._is_calm = False
        self._process: PluginProcess | None = None
        self._memory = Memory()

    def begin(self) -> None:
        """Start the first process."""
        self._start()

    def acts(self) -> Sequence[Act]:
        """Return what happens to the process in this life."""
        return (Act(PLUGIN, self._weights.gap_s, self._act),) if self._is_hurt else ()

    async def _act(self, chance: random.Random) -> None:
        kinds = (self._dies, self._stands_still, self._is_replaced, self._loses, self._is_cut_off)
        act = chance.choice(kinds)
        self._trace.add(f"guard {self._number} {act.__name__.strip('_')}")
        await act()

    def repair(self) -> None:
        """Replace the process by one that answers in time and as it should."""
        self._is_calm = True
        self._delays.longest_s = min(self._delays.longest_s, _CALM_S)
        self._die()
        self._link.is_down = False
        self._start()

    def end(self) -> None:
        """End the process."""
        self._die()

    def _start(self) -> None:
        self._number += 1
        weights, calm = self._weights, self._is_calm
        self._memory = Memory()
        errors = 0.0 if calm else weights.errors
        cls: type[Plugin] = guard(self.ledger, self._memory, self._chance, self._number, errors)
        habits = Habits(
            work_s=min(weights.work_s, _CALM_S) if calm else weights.work_s,
            late=0.0 if calm else weights.late,
            late_s=weights.late_s,
            spoils=0.0 if calm else weights.spoils,
        )
        number = self._number
        self._process = PluginProcess(
            {GUARD: cls},
            self._loop,
            habits,
            random.Random(self._chance.random()),
            lambda what: self._trace.add(f"guard {number} {what}"),
        )
        self._link.listen(self._process)
        self._trace.add(f"guard {self._number} listens")

    def _die(self) -> None:
        if self._process is not None:
            self._process.die()
        self._process = self._link.process = None
        self._link.lose()
        self._memory = Memory()

    async def _dies(self) -> None:
        """Lose the process and its memory; start another one."""
        self._die()
        await asyncio.sleep(self._chance.uniform(0.0, _STARTS_S))
        self._start()

    async def _stands_still(self) -> None:
        """Let the process do nothing for a while: its connections stay."""
        process = self._process
        if process is None:
            return
        process.stand_still()
        await asyncio.sleep(self._chance.uniform(0.0, _STILL_S))
        process.go_on()

    async def _is_replaced(self) -> None:
        """Put another version in the place of the process, at once."""
        self._die()
        self._start()

    async def _loses(self) -> None:
        """Lose all connections; the process goes on."""
        self._link.lose()

    async def _is_cut_off(self) -> None:
        """Lose all connections, and refuse new ones for a while; the process goes on."""
        self._link.lose()
        self._link.is_down = True
        await asyncio.sleep(self._chance.uniform(0.0, _DOWN_S))
        self._link.is_down = False

    # --- laws ---------------------------------------------------------------------------------------------

    def see(self, event: WatchEvent) -> None:
        """Note a change of a pod: each binding needs the answers of the guard."""
        if event.kind != "Pod":
            return
        new, old = event.new, event.old
        if new is None:
            if old is not None:
                self.ledger.forget(old.ref.uid)
        elif old is not None and (node := new.get("spec.nodeName")) and not old.get("spec.nodeName"):
            lacks = self.ledger.why_not(new.ref.uid, node)
            if lacks and not self.broken:
                self.broken = f"pod {new.ref.key} was bound to {node} {lacks}"

    def check(self) -> None:
        """Raise LawBrokenError if a pod was bound without the answers of the guard."""
        if self.broken:
            raise LawBrokenError(self.broken)

    def check_at_rest(self) -> None:
        """Raise LawBrokenError if the guard holds a reservation, although no binding is under way."""
        agree("reservations of the served plugin were neither undone nor ended", self._memory.held.values())
