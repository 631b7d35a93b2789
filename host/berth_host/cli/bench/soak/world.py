"""One soak: a served cluster, four plugins, a host, a load, misfortunes, and the account at the end.

Called by the command. The cluster and the account belong to this process, so they outlive the hosts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from berth_host.cli.bench.soak import measures
from berth_host.cli.bench.soak.descriptors import more
from berth_host.cli.bench.soak.faults import Faults
from berth_host.cli.bench.soak.load import Account, Load
from berth_host.cli.bench.soak.plugin_process import PluginProcess
from berth_host.cli.bench.soak.plugins import SoakFit, SoakGate, SoakKeeper, SoakRank
from berth_host.cli.bench.soak.result import GROWTH_FROM_MINUTES, Result
from berth_host.cli.bench.versus.contenders import UNLIMITED
from berth_host.cli.bench.versus.processes import memory_mb
from berth_host.cli.bench.versus.scheduler_process import (
    SchedulerError,
    SchedulerProcess,
    SchedulerSetup,
)
from berth_host.cluster.kube.client import KEEP_ALIVE_S
from berth_host.cluster.memory.http.serving import ServedCluster, served
from berth_host.cluster.memory.server import ApiServer
from berth_host.model.clock import RealClock

SETTLES_WITHIN_S: Final = 180.0
"""A plugin that was away may be tried again as late as 60 s after it is back, and a pod as late as that."""
REST_S: Final = KEEP_ALIVE_S + 5.0
"""After this time without work the host has closed the connections to the cluster that it does not need."""
LOOKS_S: Final = 5.0
LEAKS_AFTER_S: Final = 90.0
"""What is still there after this time, and the rest before it, has leaked: a watch may just be taken up anew,
or a plugin that was lost be tried again."""
_SAMPLE_S: Final = 2.0
_WARM_UP_S: Final = 10.0
_POINTS: Final = {
    SoakFit: ("filter",),
    SoakRank: ("score",),
    SoakKeeper: ("reserve", "preBind"),
    SoakGate: ("permit",),
}
_REQUIRED: Final = (SoakFit, SoakKeeper)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`say`: is told how it goes, now and then."""

    minutes: float
    seed: int
    nodes: int
    folder: Path
    say: Callable[[str], None]


async def soak(plan: Plan) -> Result:
    """Run it. Raises SchedulerError where a host does not become ready."""
    rng = random.Random(plan.seed)
    server = ApiServer(RealClock())
    account = Account(server)
    load = Load(server, plan.nodes, random.Random(rng.random()))
    async with served(server) as cluster, _plugins(plan.folder) as plugins:
        hosts = Hosts(plan.folder, cluster, plugins)
        try:
            await hosts.start()
            await _warm_up(load)
            await _settled(account)
            before = await hosts.at_rest()
            faults = Faults(plugins, cluster, hosts.restart, random.Random(rng.random()))
            memory = await _under_load(plan, hosts, load, faults, account)
            pending = len(account.unbound)
            plan.say(f"the load has ended, {pending} pods are pending")
            await _settled(account)
            after = await hosts.at_rest(since=before)
        finally:
            await hosts.stop()
    account.close()
    if leaked_fds := max(after.fds - before.fds, 0):
        plan.say(f"open at the end, and not before: {json.dumps(more(before.open, after.open))}")
    return Result(
        seed=plan.seed,
        minutes=plan.minutes,
        pods_created=load.created,
        bound=account.bound,
        pending=pending,
        kills=dict(faults.counts),
        lost_pods=len(account.unbound),
        over_committed_nodes=len(account.over_committed),
        leaked_reservations=after.reservations + after.assumed,
        double_binds=account.double_binds + cluster.handlers.rebinds,
        leaked_tasks=max(after.tasks - before.tasks, 0),
        leaked_fds=leaked_fds,
        memory_growth_percent=round(measures.growth_percent(memory), 2) if memory else None,
    )


async def _warm_up(load: Load) -> None:
    """A few pods, so that every connection that the host needs was there once."""
    task = asyncio.create_task(load.run())
    await asyncio.wait({task}, timeout=_WARM_UP_S)
    task.cancel()
    await asyncio.wait({task})


async def _under_load(plan: Plan, hosts: Hosts, load: Load, faults: Faults, account: Account) -> list[float]:
    """For so many minutes; the host's memory in MB, sample by sample, where growth can be told."""
    began_s = asyncio.get_running_loop().time()
    ends_s = began_s + 60 * plan.minutes
    # A new host begins with little memory: where growth is told, the host lives from the first third on.
    tells_growth = plan.minutes >= GROWTH_FROM_MINUTES
    host_until_s = began_s + 60 * plan.minutes / 3 if tells_growth else ends_s
    memory: list[float] = []
    working = [asyncio.create_task(load.run()), asyncio.create_task(faults.run(host_until_s))]
    says_s = began_s
    try:
        while asyncio.get_running_loop().time() < ends_s:
            done, _ = await asyncio.wait(working, timeout=_SAMPLE_S, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if tells_growth:
                memory.append(hosts.memory_mb())
            now_s = asyncio.get_running_loop().time()
            if now_s - says_s >= 60:
                says_s = now_s
                minutes = (says_s - began_s) / 60
                text = f"{minutes:.0f} min: {load.created} pods, {account.bound} bound"
                plan.say(f"{text}, {len(account.unbound)} pending, {json.dumps(dict(faults.counts))}")
    finally:
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    return memory


async def _settled(account: Account) -> None:
    """Wait until every pod has a node, for a bounded time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SETTLES_WITHIN_S):
            await account.all_bound.wait()


class Hosts:
    """The host, and the one after it."""

    def __init__(self, folder: Path, cluster: ServedCluster, plugins: list[PluginProcess]) -> None:
        kubeconfig = folder / "kubeconfig.json"
        kubeconfig.write_text(json.dumps(_kubeconfig(cluster.url)))
        self._setup = SchedulerSetup(
            program="berth",
            kubeconfig=kubeconfig,
            folder=folder,
            configuration=yaml.safe_dump(_configuration(), sort_keys=False),
            client_connection=UNLIMITED,
            more_documents=yaml.safe_dump(_berth_configuration(plugins), sort_keys=False),
            # The served cluster knows no users, so there is nobody to ask who may read.
            flags=("--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",),
        )
        self._process = SchedulerProcess(self._setup)
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Start one, and wait until it is ready. Raises SchedulerError."""
        self._process = SchedulerProcess(self._setup)
        await self._process.start()
        await self._process.ready()

    async def restart(self) -> None:
        """Kill it, and start another one, which is ready when this returns."""
        async with self._changing:
            await self._process.kill()
            await asyncio.shield(self.start())

    async def stop(self) -> None:
        """End it in order."""
        async with self._changing:
            await self._process.stop()

    def memory_mb(self) -> float:
        """Resident memory now; 0 while there is none."""
        try:
            return memory_mb(self._process.pid, "VmRSS")
        except (OSError, LookupError):
            return 0.0

    async def at_rest(self, since: measures.Reading | None = None) -> measures.Reading:
        """After a rest, the least that it shows. With `since` it is read until it shows no more than then,
        or for so long that the rest is a leak.
        """
        await asyncio.sleep(REST_S)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + (LOOKS_S if since is None else LEAKS_AFTER_S)
        readings: list[measures.Reading] = []
        while loop.time() < until_s:
            with contextlib.suppress(aiohttp.ClientError):
                readings.append(await measures.read(self._process.port, self._process.pid))
            if since is not None and readings and measures.least(readings).is_within(since):
                break
            await asyncio.sleep(0.5)
        if not readings:
            raise SchedulerError(f"it does not answer at /metrics:\n{self._process.last_lines()}")
        return measures.least(readings)


@asynccontextmanager
async def _plugins(folder: Path) -> AsyncIterator[list[PluginProcess]]:
    plugins = [PluginProcess(plugin.__name__, folder) for plugin in _POINTS]
    try:
        await asyncio.gather(*(plugin.start() for plugin in plugins))
        yield plugins
    finally:
        for plugin in plugins:
            plugin.go_on()
        await asyncio.gather(*(plugin.stop() for plugin in plugins))


def _configuration() -> dict[str, Any]:
    points: dict[str, Any] = {}
    for plugin, named in _POINTS.items():
        for point in named:
            points.setdefault(point, {"enabled": []})["enabled"].append({"name": plugin.__name__})
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": "default-scheduler", "plugins": points}],
    }


def _berth_configuration(plugins: list[PluginProcess]) -> dict[str, Any]:
    required = {plugin.__name__ for plugin in _REQUIRED}
    listed = [
        {"name": one.name, "endpoint": one.endpoint, "required": one.name in required} for one in plugins
    ]
    return {"apiVersion": "config.berth.io/v1alpha1", "kind": "BerthConfiguration", "plugins": listed}


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "soak", "cluster": {"server": url}}],
        "users": [{"name": "soak", "user": {}}],
        "contexts": [{"name": "soak", "context": {"cluster": "soak", "user": "soak"}}],
        "current-context": "soak",
    }
