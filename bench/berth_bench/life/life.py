"""`live`: one life: a whole host in a world that is drawn from a seed, on a virtual clock.

The host is the one that `berth simulate` and `berth scheduler` run, with kube-scheduler's plugins and one of
the life, on the embedded API server.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from berth_host.app import HostOptions
from berth_host.attach import dialing
from berth_host.config.configuration import LoadedConfiguration
from berth_host.cycle.chooser import SeededChooser
from berth_host.model.clock import Clock
from berth_sdk import chance as process_chance
from berth_sim.cluster.admission.gatekeeping import Gatekeeping
from berth_sim.cluster.admitting import server_of_a_question
from berth_sim.cluster.server import ApiServer
from berth_sim.run.settle import NEVER_FLUSHED_S

from berth_bench.life import at_rest
from berth_bench.life import laws as all_laws
from berth_bench.life.configurations import configuration
from berth_bench.life.hosts import Hosts
from berth_bench.life.keep_alive import virtual_keep_alive
from berth_bench.life.laws import LawBrokenError, Laws
from berth_bench.life.one_host import OneHost
from berth_bench.life.plugins import KEEPER, Ledger, keeper
from berth_bench.life.recording import Recording
from berth_bench.life.replicas import MACHINES, Replicas
from berth_bench.life.served_world import ServedWorld
from berth_bench.life.stage import Stage
from berth_bench.life.trace import Trace
from berth_bench.life.virtual_loop import SpinningError, StuckError, VirtualClocks, VirtualLoop, run
from berth_bench.life.weights import Weights, drawn_hosts
from berth_bench.life.world import World

DAY_S: Final = 86400.0
LOOK_S: Final = 5.0
"""Virtual seconds between two looks at the laws."""
CALM_WITHIN_S: Final = 300.0
"""Virtual seconds in which every pod must get a node, once nothing fails and there is room for all."""
RESTS_S: Final = 60.0
"""Virtual seconds without faults after which a pod that still waits must lack room."""
SETTLES_S: Final = 30.0
"""Virtual seconds after the last binding in which everything that belongs to it must end."""
SLACK_S: Final = 90.0
"""Virtual seconds between what a host knew and its binding, beside the time of a cut: the waits at Permit, of
calls and of their repetitions.
"""
_PLACES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One life. `hosts`: how many it had. `broken`: the law that did not hold, with its objects; "" if all
    held. `hours`: virtual ones, `cpu_s`: real seconds of CPU. `without`: the kinds of acts that were left
    out. `lines`: of the trace; empty if they were not kept.
    """

    seed: int
    days: float
    hosts: int
    mood: str
    broken: str
    hours: float
    pods: int
    bound: int
    acts: int
    faults: int
    trace_lines: int
    trace_sha256: str
    cpu_s: float
    without: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    @property
    def law(self) -> str:
        """The law that was broken, without its objects; "" if all held."""
        return self.broken.partition(":")[0]

    def as_json(self) -> dict[str, Any]:
        """Return what is the same for the same seed and commit."""
        return {
            "seed": self.seed,
            "days": self.days,
            "hosts": self.hosts,
            **({"without": list(self.without)} if self.without else {}),
            "mood": self.mood,
            "broken": self.broken,
            "virtualHours": round(self.hours, 3),
            "pods": self.pods,
            "bound": self.bound,
            "acts": self.acts,
            "faults": self.faults,
            "traceLines": self.trace_lines,
            "traceSha256": self.trace_sha256,
        }


def live(
    seed: int,
    days: float,
    *,
    hosts: int | None = None,
    without: Collection[str] = (),
    keeps_trace: bool = True,
    recording: Recording | None = None,
) -> Result:
    """Run the life of a seed, for so many virtual days and until the world is calm.

    `hosts`: 1 or 2 (`OneHost`, `Replicas`); None: the seed decides. `without`: kinds of acts (`world.KINDS`)
    to leave out; the others happen at the same times. `recording`: gets what the page shows; the life is the
    same with and without a recording.
    """
    hosts = drawn_hosts(seed) if hosts is None else hosts
    chance = random.Random(seed)
    weights = Weights.drawn(chance)
    of_process = random.Random(chance.random())
    of_loop = random.Random(chance.random())
    began_s = time.process_time()
    lives: list[_Life] = []

    async def main(clocks: VirtualClocks) -> str:
        life = _Life(seed, days, hosts, weights, chance, clocks, without, recording, keeps_trace=keeps_trace)
        lives.append(life)
        return await life.run()

    with process_chance.replaced(of_process), _quiet_plugins(), virtual_keep_alive():
        try:
            broken = run(main, of_loop, thread_s=weights.thread_s, work_step_s=weights.work_step_s)
        except (StuckError, SpinningError) as err:
            broken = str(err)
    [life] = lives
    if broken:
        life.trace.add(f"broken {broken}")
    return Result(
        seed=seed,
        days=days,
        hosts=hosts,
        mood=weights.mood,
        broken=broken,
        hours=life.ended_s / 3600,
        pods=life.laws.account.seen,
        bound=life.laws.account.bound,
        acts=sum(life.world.acts.values()),
        faults=life.laws.faults,
        trace_lines=life.trace.count,
        trace_sha256=life.trace.digest,
        cpu_s=time.process_time() - began_s,
        without=tuple(sorted(without)),
        lines=tuple(life.trace.lines),
    )


@contextmanager
def _quiet_plugins() -> Iterator[None]:
    """Let the SDK's server log nothing: what a life draws is no news."""
    sdk_log = logging.getLogger("berth_sdk")
    before = sdk_log.level
    sdk_log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        sdk_log.setLevel(before)


class _Life:
    def __init__(
        self,
        seed: int,
        days: float,
        hosts: int,
        weights: Weights,
        chance: random.Random,
        clocks: VirtualClocks,
        without: Collection[str],
        recording: Recording | None,
        *,
        keeps_trace: bool,
    ) -> None:
        self._seed = seed
        self._days = days
        self._weights = weights
        self._clocks = clocks
        self._recording = recording
        self.trace = Trace(clocks.monotonic_s, keeps=keeps_trace)
        left_out = f" without {', '.join(sorted(without))}" if without else ""
        two = " with two hosts" if hosts > 1 else ""
        self.trace.add(f"life {seed} of {days!r} days{two}{left_out} {weights}")
        self._server = ApiServer(clocks, Gatekeeping())
        stage = Stage(server=self._server, weights=weights, trace=self.trace, clocks=clocks)
        hosts_chance = random.Random(chance.random())
        kept_chance, world_chance = random.Random(chance.random()), random.Random(chance.random())
        self.world = World(stage, world_chance, without)
        self.laws = Laws(
            self._server,
            clocks,
            self.trace,
            weights.cut_s + SLACK_S,
            self.world.gangs,
            is_calm=weights.is_calm,
            in_order=hosts == 1,
        )
        self.world.leaves = self.laws.account.leaves
        self.laws.told.requires = weights.is_calm
        self.served: ServedWorld | None = None
        if weights.served is not None:
            served_chance = random.Random(chance.random())
            own = MACHINES if hosts > 1 and served_chance.random() < 0.5 else ()
            self.served = ServedWorld(stage, weights.served, served_chance, own)
        self._kept_chance = kept_chance
        kind = Replicas if hosts > 1 else OneHost
        self._hosts: Hosts = kind(stage, hosts_chance, self.laws, self._configuration, self._options)
        self.laws.steady.host = lambda: self._hosts.host

    @property
    def ended_s(self) -> float:
        """The virtual seconds so far."""
        return self._clocks.monotonic_s()

    async def run(self) -> str:
        """Live; return the law that was broken, or ""."""
        if self.served is None:
            return await self._run()
        with dialing.replaced(self.served.network):
            return await self._run()

    async def _run(self) -> str:
        try:
            if self.served is not None:
                self._server.store.subscribe(self.served.see)
                self.served.begin()
            self.world.begin()
            await self._hosts.start()
            await self._acts()
            self._hosts.behave()
            if self.served is not None:
                self.served.repair()
            self.world.repair()
            await self._rest()
            self.world.make_room()
            await self._come_to_rest()
            self.laws.check_end(self._hosts.host, self._hosts.ledger)
            for host, _ in self._hosts.following():
                self.laws.check_cache(host)
            await self._empty()
            await self._hosts.stop()
            self.world.end()
            if self.served is not None:
                self.served.end()
            self.laws.close()
            self._check_errors()
            all_laws.check_nothing_left(asyncio.get_running_loop(), self._timers)
        except LawBrokenError as err:
            self._hosts.kill()
            return str(err)
        except Exception as err:  # noqa: BLE001  # any error of the host is a broken law
            self._hosts.kill()
            return f"{type(err).__name__}: {err} (in {_places(err)})"
        return ""

    async def _acts(self) -> None:
        """Let the world act for the days of the life, and look at the laws."""
        ends_s = self._days * DAY_S
        acts = [*self._hosts.acts(), *(() if self.served is None else self.served.acts())]
        acting = asyncio.create_task(self.world.run(acts))
        try:
            while (left_s := ends_s - self._clocks.monotonic_s()) > 0:
                await asyncio.wait({acting}, timeout=min(LOOK_S, left_s))
                if acting.done():
                    acting.result()
                await self._look()
        finally:
            acting.cancel()
            await asyncio.gather(acting, return_exceptions=True)
        await self._hosts.settle()

    async def _look(self) -> None:
        if self._recording is not None:
            await self._recording.add(self._hosts.host, self._clocks.monotonic_s())
        self._hosts.check()
        self._check_errors()
        self.laws.check()
        if self.served is not None:
            self.served.check()
        if self._weights.is_calm:
            self.laws.check_gangs()
            host = self._hosts.host
            at_rest.check_nobody_waits_for_steady_room(host, self.laws.steady, self.laws.room())

    def _check_errors(self) -> None:
        """Raise LawBrokenError if a task or a callback ended with an error that nothing has read."""
        if unhandled := self._clocks.loop.unhandled:
            raise LawBrokenError(f"an error was not handled: {unhandled[0]}")

    async def _rest(self) -> None:
        """Let nothing fail for a while; who waits then must lack room."""
        self.laws.told.requires = True
        ends_s = self._clocks.monotonic_s() + RESTS_S
        while self._clocks.monotonic_s() < ends_s:
            await asyncio.sleep(LOOK_S)
            self.world.collect_once()
            await self._look()
        at_rest.check_totals(self._hosts.host)
        at_rest.check_nobody_waits_for_room_that_is_there(self._hosts.host, self._server)
        self.laws.check_conditions()
        if self._weights.is_calm:
            at_rest.check_conditions(self._hosts.host, self._server)

    async def _empty(self) -> None:
        """Delete everything; nothing may be left in the host's tables."""
        at_rest.check_totals(self._hosts.host)
        self.world.delete_everything()
        await asyncio.sleep(SETTLES_S)
        await self._look()
        for host, ledger in self._hosts.following():
            at_rest.check_emptied(host, ledger)
        if self.served is not None:
            self.served.check_at_rest(self._hosts.machine)

    async def _come_to_rest(self) -> None:
        account = self.laws.account
        ends_s = self._clocks.monotonic_s() + CALM_WITHIN_S
        while account.unbound and self._clocks.monotonic_s() < ends_s:
            await asyncio.sleep(LOOK_S)
            self.world.collect_once()
            self.world.complete_gangs()
            await self._look()
        if account.unbound:
            why = "; ".join(f"{count}: {reason}" for reason, count in account.reasons())
            names = ", ".join(sorted(account.unbound))
            raise LawBrokenError(
                f"in {CALM_WITHIN_S:g} s without faults, with room for all, these pods got no node: {names}"
                f" ({why})"
            )
        await asyncio.sleep(SETTLES_S)
        await self._look()

    def _configuration(self, chance: random.Random | None) -> LoadedConfiguration:
        keeper_class, _ = keeper(self._kept_chance, 0.0)
        return configuration({KEEPER: keeper_class}, chance, has_guard=self.served is not None)

    def _options(self, clock: Clock, name: str) -> tuple[HostOptions, Sequence[Ledger]]:
        keeper_class, ledgers = keeper(self._kept_chance, self._weights.plugin_errors)
        options = HostOptions(
            clock=clock,
            chooser=SeededChooser(f"{self._seed}/{name}"),
            plugins={KEEPER: keeper_class},
            # The flush of unschedulable pods would hide an event that moved none of them.
            max_in_pool_s=NEVER_FLUSHED_S,
            admission=server_of_a_question,
            way_back=False,
        )
        return options, ledgers

    def _timers(self) -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return loop.timers()


def _places(err: BaseException) -> str:
    """Return the innermost functions of an error, without the folders of this machine."""
    frames = traceback.extract_tb(err.__traceback__)[-_PLACES:]
    return ", ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
