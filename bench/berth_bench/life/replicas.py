"""`Replicas`: two whole processes of `berth scheduler` in one life, of which one holds the Lease.

Each process has its own clocks, its own clients, informers and elector, over a network in memory, and two API
servers. A process is paused, killed, told to stop; its clock steps. As in Kubernetes, a process that ended is
started anew after a while.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, cast

from berth_host.app import Host
from berth_host.cluster.port import WatchEvent
from berth_host.endpoints.options import ServingOptions
from berth_host.errors import HostError
from berth_host.process.process import HostFailedError, ProcessSettings, SchedulerProcess
from berth_host.process.signals import Signals
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod

from berth_bench.life.api_servers import URL, ApiServers, Arrived
from berth_bench.life.faulty_cluster import Fault
from berth_bench.life.fencing import Fencing
from berth_bench.life.hosts import Act, Configurations, MakeOptions
from berth_bench.life.laws import LawBrokenError, Laws
from berth_bench.life.network import Lateness, MemoryNetwork
from berth_bench.life.plugins import Ledger
from berth_bench.life.processes import Process
from berth_bench.life.stage import Stage
from berth_bench.life.storms import drawn_gap_s, drawn_storm
from berth_bench.life.virtual_loop import ProcessClock

MACHINES: Final = ("host-1", "host-2")
"""The machines of a life, each of which has one host."""
STARTED_AGAIN_S: Final = 10.0
"""The longest time, in seconds, until a process that ended is started anew."""
LEADS_WITHIN_S: Final = 120.0
"""Virtual seconds in which some host must lead, once nothing fails: the old Lease runs out, waits between
tries become long, and a list of all objects takes its time.
"""
STOPS_WITHIN_S: Final = 70.0
"""Virtual seconds in which a host must stop: as many as the manifests give the pod."""
_LEASE_S: Final = 15.0
_MOST_DRIFT: Final = 0.0005
"""The share of its time that a clock gains or loses, at most: as kernels correct one."""
_MOST_SKEW_S: Final = 30.0
_MOST_PAUSE_S: Final = 45.0
_CUT_LEAST_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaWeights:
    """The weights of the acts upon two hosts. Fields that end in `_gap_s` are the mean seconds between two
    such acts.

    `lag_s`: the longest delay of the changes in the second API server's watches. `late_s`: the longest delay
    of bytes on the network. `pieces`: the share of parts that arrive in two pieces.
    """

    restart_gap_s: float
    kill_gap_s: float
    pause_gap_s: float
    step_gap_s: float
    reset_gap_s: float
    compact_gap_s: float
    lag_gap_s: float
    lag_s: float
    late_s: float
    pieces: float

    @classmethod
    def drawn(cls, chance: random.Random, mood: str) -> ReplicaWeights:
        """Draw the weights of a life of a mood."""
        storm = drawn_storm(chance, mood)
        gap_s = partial(drawn_gap_s, chance, storm)
        return cls(
            restart_gap_s=gap_s(3000.0, 400.0),
            kill_gap_s=gap_s(3000.0, 300.0),
            pause_gap_s=gap_s(2000.0, 120.0),
            step_gap_s=gap_s(1000.0, 120.0),
            reset_gap_s=gap_s(600.0, 20.0),
            compact_gap_s=gap_s(3000.0, 300.0),
            lag_gap_s=gap_s(600.0, 60.0),
            lag_s=20.0 * storm * chance.random(),
            late_s=chance.choice((0.0, 0.001, 0.02)) + 0.2 * storm * chance.random(),
            pieces=chance.choice((0.0, 0.1, 0.5)),
        )


class _Signals(Signals):
    """The signals of a process of a life, which the operating system knows nothing of."""

    @contextmanager
    def heard(self) -> Iterator[Signals]:
        """Hear nothing of the operating system."""
        yield self


@dataclass(slots=True)
class Running:
    """A process that runs. `over`: set when it has ended."""

    process: Process
    scheduler: SchedulerProcess
    ledgers: Sequence[Ledger]
    task: asyncio.Task[None]
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Replicas:
    """The two processes, and their API servers. See `Hosts`. `running`: the processes that run, by number."""

    def __init__(
        self,
        stage: Stage,
        chance: random.Random,
        laws: Laws,
        configuration: Configurations,
        options: MakeOptions,
    ) -> None:
        weights, clocks = stage.weights, stage.clocks
        loop = self._loop = clocks.loop
        self._server = stage.server
        self._weights = weights
        self._own = ReplicaWeights.drawn(chance, weights.mood)
        self._chance = chance
        self._trace = stage.trace
        self._laws = laws
        self._drawn_configuration = configuration
        self._configuration = configuration(None)
        """The file that each process reads at its begin, and again when it reloads."""
        self._options = options
        self._clocks = clocks
        self._fencing = Fencing(clocks.monotonic_s, _LEASE_S * 2 * _MOST_DRIFT)
        self._trace.add(f"replicas {self._own}")
        lateness = Lateness(delay_s=self._own.late_s, pieces=self._own.pieces)
        self._network = loop.network = MemoryNetwork(loop, random.Random(chance.random()), lateness)
        self._servers = ApiServers(
            stage.server,
            self._network,
            random.Random(chance.random()),
            weights.faults,
            self._note,
            self._note_event,
        )
        self._unsubscribe = stage.server.store.subscribe(self._see)
        self.running: dict[int, Running] = {}
        self._supervising: list[asyncio.Task[None]] = []
        self._is_over = False
        self._has_paused = False
        self._failure: BaseException | None = None
        self._last: Running | None = None
        self._settled = ""
        """The identity of the host that leads since the world is calm."""
        self._settled_s = math.inf
        """Since when the world is calm."""

    @property
    def host(self) -> Host:
        """The host that holds the Lease, or the last one that did."""
        return cast("Host", self.leader().scheduler.host)

    @property
    def ledger(self) -> Ledger:
        """The records of the plugin of `host`."""
        return self.leader().ledgers[-1]

    @property
    def machine(self) -> str:
        """The machine of `host`."""
        return self.leader().process.machine

    def following(self) -> Sequence[tuple[Host, Ledger]]:
        """Return the hosts that follow the cluster. See `Hosts`."""
        running = [self.running[number] for number in sorted(self.running)]
        return [
            (cast("Host", one.scheduler.host), one.ledgers[-1])
            for one in running
            if one.scheduler.is_connected
        ]

    def acts(self) -> Sequence[Act]:
        """Return what happens to the hosts, the network and the API servers."""
        weights = self._own
        if self._weights.is_calm:
            return ()
        return (
            Act("cut", self._weights.cut_gap_s, self._cut),
            Act("restart", weights.restart_gap_s, self._restart),
            Act("reload", self._weights.reload_gap_s, self._reload),
            Act("kill", weights.kill_gap_s, self._kill),
            Act("pause", weights.pause_gap_s, self._pause),
            Act("step", weights.step_gap_s, self._step),
            Act("reset", weights.reset_gap_s, self._reset),
            Act("compact", weights.compact_gap_s, self._compact),
            Act("lag", weights.lag_gap_s, self._lag),
        )

    async def start(self) -> None:
        """Start both processes; return when one leads. No request fails until then."""
        faults = self._servers.faults
        self._servers.faults = replace(faults, share=0.0)
        for number in range(1, len(MACHINES) + 1):
            own = random.Random(self._chance.random())
            self._supervising.append(self._loop.create_task(self._supervise(number, own)))
        await self._some_host_leads()
        self._servers.faults = faults

    def check(self) -> None:
        """Raise the error that a host stopped with, and LawBrokenError."""
        for failure in (self._failure, self._servers.failure):
            if failure is not None:
                raise failure
        for supervising in self._supervising:
            if supervising.done() and not self._is_over:
                supervising.result()
        if self._fencing.broken:
            raise LawBrokenError(self._fencing.broken)
        for running in self.running.values():
            if running.scheduler.host is not None:
                running.scheduler.host.check()
        if self._settled and [self._settled] != self._leading():
            raise LawBrokenError(
                f"without faults, the lead changed from {self._settled} to {self._leading() or 'nobody'}"
            )

    def behave(self) -> None:
        """Let nothing fail and nothing be late from now on. Go on with paused processes."""
        self._servers.behave()
        for running in self.running.values():
            self.resume(running)

    async def settle(self) -> None:
        """Wait until a host leads, with nothing that fails.

        A leader whose renewals failed until now may still have to give up: it must have renewed since.
        """
        self.behave()
        await self._some_host_leads(self._loop.time())
        self._settled = self._leading()[0]
        self._settled_s = self._loop.time()

    async def stop(self) -> None:
        """Stop all processes, which must all follow the cluster by now."""
        if (count := len(self.following())) < len(MACHINES):
            raise LawBrokenError(f"at rest, {count} of {len(MACHINES)} hosts follow the cluster")
        self._settled = ""
        self._is_over = True
        for running in self.running.values():
            running.scheduler.signals.stop()
        _, late = await asyncio.wait(self._supervising, timeout=STOPS_WITHIN_S)
        if late:
            raise LawBrokenError(f"a host that was told to stop has not ended within {STOPS_WITHIN_S:g} s")
        for supervising in self._supervising:
            supervising.result()
        self.check()
        await self._servers.stop()
        self._unsubscribe()

    def kill(self) -> None:
        """End all processes at once."""
        self._is_over = True
        for running in self.running.values():
            if not running.over.is_set():
                self.end(running)

    # --- processes -------------------------------------------------------------------------------

    async def _supervise(self, number: int, chance: random.Random) -> None:
        """Run the processes of one host, one after the other."""
        skew_s, drift = chance.uniform(-1.0, 1.0), chance.uniform(-_MOST_DRIFT, _MOST_DRIFT)
        generation = 0
        while not self._is_over:
            generation += 1
            machine = MACHINES[number - 1]
            process = Process(f"{machine}.{generation}", machine=machine, skew_s=skew_s, drift=drift)
            running = self.running[number] = self._begun(process)
            await running.over.wait()
            skew_s = process.skew_s
            del self.running[number]
            if not self._is_over:
                await asyncio.sleep(chance.uniform(0.1, STARTED_AGAIN_S))

    def _begun(self, process: Process) -> Running:
        self._trace.add(f"{process.name} begins")
        context = process.context()
        options, ledgers = self._options(ProcessClock(self._clocks, process.drift), process.name)
        settings = ProcessSettings(
            configuration=self._configuration,
            load=lambda: self._configuration,
            master=URL,
            serving=ServingOptions(port=0),
            options=options,
            host_name=process.name,
        )
        scheduler = context.run(SchedulerProcess, settings, _Signals())
        task = self._loop.create_task(scheduler.run(), context=context)
        running = Running(process, scheduler, ledgers, task)
        task.add_done_callback(lambda _: self._ended(running), context=copy_context())
        return running

    def _ended(self, running: Running) -> None:
        """Note the end of a process that ended by itself."""
        if running.task.cancelled():
            return  # the life ends
        error = running.task.exception()
        how = "stopped" if error is None else type(error).__name__
        self._trace.add(f"{running.process.name} {how}")
        if error is not None and (isinstance(error, HostFailedError) or not isinstance(error, HostError)):
            self._failure = self._failure or error
        elif error is not None and self._nothing_fails:
            self._failure = self._failure or LawBrokenError(
                f"a host ended although nothing failed: {running.process.name} with {error}"
            )
        running.over.set()

    @property
    def _nothing_fails(self) -> bool:
        """True where no host has a reason to end by itself, also for what failed before."""
        if self._weights.is_calm and not self._has_paused:
            return True
        return self._loop.time() - self._settled_s > STOPS_WITHIN_S

    def leader(self) -> Running:
        """Return the process that holds the Lease and leads; without one, the last that did."""
        for running in self.running.values():
            if running.scheduler.is_leading and running.scheduler.identity == self._fencing.holder:
                self._last = running
        if self._last is None:
            raise LawBrokenError("no host has ever held the Lease")
        return self._last

    def _leading(self) -> list[str]:
        """Return the identities of the hosts that act as leaders."""
        return [one.scheduler.identity for one in self.running.values() if one.scheduler.is_leading]

    async def _some_host_leads(self, since_s: float = 0.0) -> None:
        """Wait until the one leader is the holder of a Lease that was written at `since_s` or later."""
        ends_s = self._loop.time() + LEADS_WITHIN_S
        while self._leading() != [self._fencing.holder] or self._fencing.renewed_s < since_s:
            if self._loop.time() > ends_s:
                raise LawBrokenError(f"no host has led for {LEADS_WITHIN_S:g} s")
            await asyncio.sleep(1.0)
            self.check()
        self.leader()

    # --- acts ------------------------------------------------------------------------------------

    def _drawn(self, chance: random.Random) -> Running | None:
        """Draw a process that runs."""
        found = [self.running[number] for number in sorted(self.running)]
        return chance.choice(found) if found else None

    async def _cut(self, chance: random.Random) -> None:
        """Let the API servers be away for a while."""
        self._trace.add("server away")
        self._servers.go_away()
        await asyncio.sleep(chance.uniform(_CUT_LEAST_S, self._weights.cut_s + _CUT_LEAST_S))
        self._trace.add("server back")
        self._servers.come_back()

    async def _restart(self, chance: random.Random) -> None:
        """Tell a process to stop."""
        running = self._drawn(chance)
        if running is not None and not running.scheduler.signals.stopping.is_set():
            self._trace.add(f"{running.process.name} is told to stop")
            running.scheduler.signals.stop()

    async def _reload(self, chance: random.Random) -> None:
        """Write another configuration into the file, and tell a process to read it."""
        self._configuration = self._drawn_configuration(chance)
        running = self._drawn(chance)
        if running is not None:
            self._trace.add(f"{running.process.name} is told to reload")
            running.scheduler.signals.reloading.set()

    async def _kill(self, chance: random.Random) -> None:
        """End a process at once."""
        running = self._drawn(chance)
        if running is None or running.over.is_set():
            return
        self._trace.add(f"{running.process.name} is killed")
        self.end(running)

    def end(self, running: Running) -> None:
        """End a process at once, as by SIGKILL."""
        running.process.is_dead = True
        self._network.lose(running.process)
        self._loop.kill(running.process)
        running.over.set()

    async def _pause(self, chance: random.Random) -> None:
        """Stop the time of a process for a while."""
        running = self._drawn(chance)
        if running is None or not running.process.runs:
            return
        self.pause(running)
        await asyncio.sleep(chance.uniform(0.0, _MOST_PAUSE_S))
        self.resume(running)

    def pause(self, running: Running) -> None:
        """Stop the time of a process, as by SIGSTOP."""
        self._trace.add(f"{running.process.name} pauses")
        self._has_paused = True
        self._loop.pause(running.process)

    def resume(self, running: Running) -> None:
        """Let a process that pauses go on."""
        if running.process.is_paused:
            self._trace.add(f"{running.process.name} goes on")
            self._loop.resume(running.process)

    async def _step(self, chance: random.Random) -> None:
        """Set the wall clock of a process forwards or backwards."""
        running = self._drawn(chance)
        if running is not None:
            running.process.skew_s = chance.uniform(-_MOST_SKEW_S, _MOST_SKEW_S)
            self._trace.add(f"{running.process.name} has a wall clock {running.process.skew_s:+.3f} s")

    async def _reset(self, chance: random.Random) -> None:
        """Reset a connection."""
        connections = list(self._network.connections)
        if connections:
            self._trace.add("a connection is reset")
            self._network.cut(chance.choice(connections))

    async def _compact(self, chance: random.Random) -> None:
        """Forget the changes so far."""
        self._trace.add("the history is compacted")
        self._servers.compact()

    async def _lag(self, chance: random.Random) -> None:
        """Let the second API server's watches be later than before."""
        self._servers.late.lag_s = chance.uniform(0.0, self._own.lag_s)
        self._trace.add(f"one API server lags {self._servers.late.lag_s:.3f} s")

    # --- what is seen ------------------------------------------------------------------------------

    def _note(self, moment: str, request: Arrived, fault: Fault) -> None:
        if moment == "begun":
            self._fencing.arrived(request)
        elif self._fencing.is_late(request) and request.call == "bind":
            self._laws.nodes.forgive(request.node, self._milli_cpu(request.key))
        if request.call not in ("get", "list", "watch"):
            self._laws.note(moment, request.call, request.resource, request.key, fault)

    def _milli_cpu(self, key: str) -> int:
        """Return the CPU that the pod `namespace/name` requests, in thousandths; 0 without such a pod."""
        namespace, _, name = key.partition("/")
        found = self._server.get("pods", ObjectRef(name=name, namespace=namespace))
        return 0 if found is None else Pod.from_object(found).requests.get("cpu", 0)

    def _note_event(self, pod: ObjectRef, reason: str, note: str) -> None:
        found = self._server.get("pods", pod)
        if found is not None and found.ref.uid == pod.uid:
            self._laws.note_event(Pod.from_object(found), reason, note)

    def _see(self, event: WatchEvent) -> None:
        holder = self._fencing.see(event)
        if holder:
            self._trace.add(f"{holder.rpartition('_')[0]} holds the Lease")
