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
from berth_bench.life.link import Delays, Link, Network
from berth_bench.life.served import Habits, PluginProcess
from berth_bench.life.served_weights import ServedWeights
from berth_bench.life.stage import Stage

ENDPOINT: Final = "unix:///life/guard.sock"
_STARTS_S: Final = 5.0
"""The longest time until a process that died is there again."""
_STILL_S: Final = 30.0
_DOWN_S: Final = 10.0
_CALM_S: Final = 0.005
"""The longest time of a message, and of the work for a call, once nothing is late any more. All steps of a
call together then take less than the shortest deadline that a reload draws.
"""


class _Place:
    """A place where processes of the served plugin listen, one after the other. `number`: of the last one."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.number = 0
        self.process: PluginProcess | None = None
        self.memory = Memory()

    def die(self) -> None:
        """End the process, which loses its connections and its memory."""
        if self.process is not None:
            self.process.die()
        self.process = self.link.process = None
        self.link.lose()
        self.memory = Memory()


class ServedWorld:
    """The served plugin of one life."""

    def __init__(
        self,
        stage: Stage,
        weights: ServedWeights,
        chance: random.Random,
        machines: Sequence[str] = (),
    ) -> None:
        """`machines`: those of the hosts, each of which has a process of its own; empty: all hosts share one
        process.
        """
        loop = stage.clocks.loop
        self._delays = Delays(random.Random(chance.random()), weights.link_s)
        self.network = Network(loop, self._delays, is_shared=not machines)
        self.ledger = GuardLedger()
        self.broken = ""
        self._loop = loop
        self._weights = weights
        self._chance = chance
        self._trace = stage.trace
        self._is_hurt = not stage.weights.is_calm
        self._places = {
            machine: _Place(self.network.link(ENDPOINT, machine)) for machine in machines or ("",)
        }
        self._number = 0
        self._is_calm = False

    def begin(self) -> None:
        """Start the first process of each place."""
        for place in self._places.values():
            self._start(place)

    def acts(self) -> Sequence[Act]:
        """Return what happens to the processes in this life."""
        return (Act(PLUGIN, self._weights.gap_s, self._act),) if self._is_hurt else ()

    async def _act(self, chance: random.Random) -> None:
        kinds = (self._dies, self._stands_still, self._is_replaced, self._loses, self._is_cut_off)
        act = chance.choice(kinds)
        places = list(self._places.values())
        place = places[0] if len(places) == 1 else chance.choice(places)
        self._trace.add(f"guard {place.number} {act.__name__.strip('_')}")
        await act(place)

    def repair(self) -> None:
        """Replace each process by one that answers in time and as it should."""
        self._is_calm = True
        self._delays.longest_s = min(self._delays.longest_s, _CALM_S)
        for place in self._places.values():
            place.die()
            place.link.is_down = False
            self._start(place)

    def end(self) -> None:
        """End all processes."""
        for place in self._places.values():
            place.die()

    def _start(self, place: _Place) -> None:
        self._number += 1
        number = place.number = self._number
        weights, calm = self._weights, self._is_calm
        place.memory = Memory()
        errors = 0.0 if calm else weights.errors
        cls: type[Plugin] = guard(self.ledger, place.memory, self._chance, number, errors)
        habits = Habits(
            work_s=min(weights.work_s, _CALM_S) if calm else weights.work_s,
            late=0.0 if calm else weights.late,
            late_s=weights.late_s,
            spoils=0.0 if calm else weights.spoils,
        )
        place.process = PluginProcess(
            {GUARD: cls},
            self._loop,
            habits,
            random.Random(self._chance.random()),
            lambda what: self._trace.add(f"guard {number} {what}"),
        )
        place.link.listen(place.process)
        self._trace.add(f"guard {number} listens")

    async def _dies(self, place: _Place) -> None:
        """Lose the process and its memory; start another one."""
        place.die()
        await asyncio.sleep(self._chance.uniform(0.0, _STARTS_S))
        self._start(place)

    async def _stands_still(self, place: _Place) -> None:
        """Let the process do nothing for a while: its connections stay."""
        process = place.process
        if process is None:
            return
        process.stand_still()
        await asyncio.sleep(self._chance.uniform(0.0, _STILL_S))
        process.go_on()

    async def _is_replaced(self, place: _Place) -> None:
        """Put another version in the place of the process, at once."""
        place.die()
        self._start(place)

    async def _loses(self, place: _Place) -> None:
        """Lose all connections; the process goes on."""
        place.link.lose()

    async def _is_cut_off(self, place: _Place) -> None:
        """Lose all connections, and refuse new ones for a while; the process goes on."""
        place.link.lose()
        place.link.is_down = True
        await asyncio.sleep(self._chance.uniform(0.0, _DOWN_S))
        place.link.is_down = False

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

    def check_at_rest(self, machine: str) -> None:
        """Raise LawBrokenError if the guard holds a reservation, although no binding is under way.

        `machine`: that of the host that leads. A process beside a host that stands by keeps what it had when
        that host led last: Reconcile tells it when the host leads again.
        """
        place = self._places.get(machine) or self._places[""]
        agree("reservations of the served plugin were neither undone nor ended", place.memory.held.values())
