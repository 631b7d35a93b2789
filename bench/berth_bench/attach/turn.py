"""One turn: a host whose folder of sockets fills, one process after the other or all at once.

The command runs a turn in a process of its own. Afterwards pods are placed, and every plugin must have been
called.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import yaml
from berth_host.app import Host, HostOptions
from berth_host.attach.attachments import Attachments
from berth_host.attach.folder import SocketFolder
from berth_host.attach.state import State
from berth_host.cli import configuration
from berth_host.cluster.port import WatchEvent
from berth_host.metrics.plugin_stats import CallStats
from berth_host.model.clock import RealClock
from berth_sim.cluster.server import ApiServer
from berth_sim.commands import simulation

from berth_bench.attach.serving import Serving, names, serving
from berth_bench.running import WorkloadError
from berth_bench.versus.objects import node, pod

NODES: Final = 20
PODS: Final = 20
_WITHIN_S: Final = 120.0


class Way(StrEnum):
    """The order of attaching: all processes together, or one after the other."""

    ONE_AT_A_TIME = "one at a time"
    TOGETHER = "together"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a turn: `processes` with `each` plugins."""

    processes: int
    each: int

    @property
    def plugins(self) -> int:
        """The number of plugins of all processes."""
        return self.processes * self.each


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds from the sockets in the folder until their plugins are active. `cpu_s` is the host's."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The results of one turn. `costs`: one for each process, or one for all. `asked`: plugins that were
    called about pods; `bound`: pods that got a node.
    """

    costs: tuple[Cost, ...]
    asked: int
    bound: int


async def turn(way: Way, size: Size) -> Turn:
    """Attach the plugins, and place pods. Raises WorkloadError."""
    with TemporaryDirectory(prefix="berth-attach-") as made:
        async with serving(Path(made), size.processes, size.each) as processes:
            path = Path(made) / "scheduler.yaml"
            path.write_text(_configuration(processes.folder, size))
            server = ApiServer(RealClock())
            for number in range(NODES):
                server.create(node(f"node-{number}", pods="110"))
            host = simulation.embedded_host(
                configuration.for_simulation(str(path)), server, HostOptions(clock=RealClock())
            )
            try:
                async with asyncio.timeout(_WITHIN_S):
                    await host.start()
                    costs = await _attached(way, size, processes, host.attachments.attached_places)
                    bound = await _placed(server)
                    return Turn(costs=tuple(costs), asked=_asked(host, size), bound=bound)
            except TimeoutError:
                text = f"attaching {way}: not done after {_WITHIN_S:.0f} s: {_states(host)}"
                raise WorkloadError(text) from None
            finally:
                await processes.stop()  # a host that detaches a live plugin waits for its answer to Drain
                await host.stop()


def _configuration(folder: Path, size: Size) -> str:
    """Return a configuration with every plugin at Filter, expected in the folder."""
    enabled = [{"name": name} for number in range(size.processes) for name in names(number, size.each)]
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {"schedulerName": "default-scheduler", "plugins": {"filter": {"enabled": list(enabled)}}}
        ],
    }
    own = {
        "apiVersion": "config.berth.io/v1alpha1",
        "kind": "BerthConfiguration",
        "socketFolder": str(folder),
        "cycleBudget": "30s",
        "plugins": [item | {"required": True, "points": {"filter": {"deadline": "10s"}}} for item in enabled],
    }
    return yaml.safe_dump_all([scheduler, own])


async def _attached(way: Way, size: Size, processes: Serving, places: Attachments) -> list[Cost]:
    folder = places.folder
    if folder is None:
        raise WorkloadError("the host has no folder of sockets")
    numbers = range(size.processes)
    groups = [[number] for number in numbers] if way is Way.ONE_AT_A_TIME else [list(numbers)]
    costs = [await _cost(group, processes, folder) for group in groups]
    if any(member.state is not State.ACTIVE for member in folder.members):
        raise WorkloadError(f"attaching {way}: {_reasons(folder)}")
    return costs


async def _cost(group: list[int], processes: Serving, folder: SocketFolder) -> Cost:
    for number in group:
        processes.show(number)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    await folder.scan()  # at once: the delay of the folder's watch is not measured here
    for member in folder.members:
        await member.decided.wait()
    return Cost(wall_s=time.perf_counter() - wall_s, cpu_s=time.process_time() - cpu_s)


async def _placed(server: ApiServer) -> int:
    """Wait until all pods have a node; return their number. The caller limits the time."""
    pending, done = set[str](), asyncio.Event()

    def changed(event: WatchEvent) -> None:
        if event.kind == "Pod" and event.new is not None and event.new.get("spec.nodeName"):
            pending.discard(event.new.ref.uid)
            if not pending:
                done.set()

    unsubscribe = server.store.subscribe(changed)
    try:
        pending |= {server.create(pod(f"pod-{number}")).ref.uid for number in range(PODS)}
        await done.wait()
    finally:
        unsubscribe()
    return PODS


def _asked(host: Host, size: Size) -> int:
    stats = host.plugin_stats()
    filters = [
        dict(stats[name].items()).get("Filter", CallStats())
        for number in range(size.processes)
        for name in names(number, size.each)
        if name in stats
    ]
    return sum(1 for calls in filters if calls.messages)


def _states(host: Host) -> str:
    folder = host.attachments.attached_places.folder
    return "the host has no folder of sockets" if folder is None else _reasons(folder)


def _reasons(folder: SocketFolder) -> str:
    return "; ".join(
        f"{member.place.title} is {member.state.value} {member.reason}" for member in folder.members
    )
