"""Run one soak: a cluster, four plugins, a host, a load, faults, and the account at the end.

Called by the command. The cluster and the account are outside the hosts, so they outlive them.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from berth_kube.http1 import KEEP_ALIVE_S

from berth_bench.soak import growth, measures
from berth_bench.soak.account import Account
from berth_bench.soak.clusters import Cluster, embedded_cluster
from berth_bench.soak.descriptors import more
from berth_bench.soak.faults import Faults
from berth_bench.soak.hosts import IN_FOLDER, POINTS, Hosts
from berth_bench.soak.load import Load, nodes_of, open_nodes
from berth_bench.soak.plugin_process import PluginProcess
from berth_bench.soak.plugins import Mood
from berth_bench.soak.real_cluster import real_cluster
from berth_bench.soak.result import GROWTH_FROM_MINUTES, Result
from berth_bench.soak.swaps import Swaps

SETTLES_WITHIN_S: Final = 180.0
"""A plugin that was absent may be tried again as late as 60 s after it is back, and a pod as late as that."""
LEAKS_AFTER_S: Final = 90.0
"""Tasks and files that exist after this time without work have leaked. Earlier, the host may be restarting a
watch or trying a lost plugin again.
"""
REST_S: Final = KEEP_ALIVE_S + 5.0
"""After this time without work the host has closed the connections to the cluster that it does not need."""
WARM_UP_S: Final = 10.0
_SAMPLE_S: Final = 2.0
HEAP_EACH_S: Final = 8.0
"""The seconds between two counts of objects. A full collection of the host precedes each count."""
_REASONS: Final = 5
_LONGEST_REASON: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a soak. `say`: receives progress messages. `kubeconfig`: of a real API server, None: the
    embedded cluster; `server_pid`: its process, which is stopped now and then, 0: it is not. `rest_s`: how
    long the host rests before it is measured; `warm_up_s`: how long it works before that; `leaks_after_s`:
    how long it may take after the end until its figures are as before.
    """

    minutes: float
    seed: int
    nodes: int
    folder: Path
    say: Callable[[str], None]
    kubeconfig: Path | None = None
    server_pid: int = 0
    rest_s: float = REST_S
    warm_up_s: float = WARM_UP_S
    leaks_after_s: float = LEAKS_AFTER_S


async def soak(plan: Plan) -> Result:
    """Run the soak. Raises SchedulerError if a host does not become ready; SoakError, ClientConfigError and
    ClusterError if the cluster cannot be used.
    """
    rng = random.Random(plan.seed)
    account = Account(open_nodes(plan.nodes))
    async with _cluster(plan, account) as cluster, _plugins(plan.folder) as plugins:
        await asyncio.gather(*map(cluster.create, nodes_of(plan.nodes)))
        load = Load(cluster, account, plan.nodes, random.Random(rng.random()))
        hosts = Hosts(plan.folder, cluster.kubeconfig, plugins)
        swaps = Swaps(hosts.failures_of)
        try:
            await hosts.start()
            await _warm_up(plan, load)
            await _settled(account, load)
            before = await hosts.at_rest(plan.rest_s)
            faults = Faults(
                plugins,
                swaps,
                cluster.interruptions,
                hosts.restart,
                random.Random(rng.random()),
                60 * plan.minutes,
            )
            heaps = await _under_load(plan, hosts, load, faults, account)
            _say_pending(plan, account, "when the load ended")
            await _settled(account, load)
            await cluster.count_anew()
            _say_pending(plan, account, "at the end")
            after = await hosts.at_rest(plan.rest_s, since=before, looks_s=plan.leaks_after_s)
        finally:
            await hosts.stop()
        rebinds = cluster.rebinds
    _say_end(plan, account, swaps, before, after)
    resident = growth.resident_growth_percent(heaps)
    return Result(
        seed=plan.seed,
        minutes=plan.minutes,
        pods_created=load.created,
        bound=account.bound,
        pending=len(account.unbound),
        kills=dict(faults.counts),
        lost_pods=len(account.lost),
        over_committed_nodes=len(account.over_committed),
        leaked_reservations=after.reservations + after.assumed,
        double_binds=account.double_binds + rebinds,
        leaked_tasks=max(after.task_count - before.task_count, 0),
        leaked_fds=max(after.fds - before.fds, 0),
        growth=growth.growths(heaps),
        memory_growth_percent=None if resident is None else round(resident, 2),
        calls_lost_in_swaps=swaps.lost_calls,
        misplaced_pods=len(account.misplaced),
        leaking_types=growth.leaking_types(heaps),
    )


async def _warm_up(plan: Plan, load: Load) -> None:
    """Place a few pods, so that the host opens every connection that it needs."""
    task = asyncio.create_task(load.run())
    await asyncio.wait({task}, timeout=plan.warm_up_s)
    load.end()
    await task


async def _under_load(
    plan: Plan, hosts: Hosts, load: Load, faults: Faults, account: Account
) -> list[growth.Heap]:
    """Run the load for the planned minutes; return samples of the host if growth can be measured."""
    began_s = asyncio.get_running_loop().time()
    ends_s = began_s + 60 * plan.minutes
    # A new host fills its caches for minutes. Growth is measured in the second half, so the host is not
    # replaced after the first sixth.
    tells_growth = plan.minutes >= GROWTH_FROM_MINUTES
    host_until_s = began_s + 60 * plan.minutes / 6 if tells_growth else ends_s
    heaps: list[growth.Heap] = []
    loading = asyncio.create_task(load.run())
    failing = asyncio.create_task(faults.run(host_until_s))
    says_s = began_s
    try:
        while asyncio.get_running_loop().time() < ends_s:
            done, _ = await asyncio.wait(
                {loading, failing}, timeout=_SAMPLE_S, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                _raise_failure(task)
            hosts.check()
            now_s = asyncio.get_running_loop().time()
            is_due = not heaps or now_s - heaps[-1].at_s >= HEAP_EACH_S
            if tells_growth and now_s >= host_until_s and is_due:
                heap = await hosts.heap()
                heaps += () if heap is None else (heap,)
            if now_s - says_s >= 60:
                says_s = now_s
                minutes = (says_s - began_s) / 60
                text = f"{minutes:.0f} min: {load.created} pods, {account.bound} bound"
                text += f", {len(account.unbound)} pending, the host has {hosts.memory_mb():.0f} MB"
                plan.say(f"{text}, {json.dumps(dict(faults.counts))}")
    finally:
        # Repair faults first: the load may be waiting for it.
        failing.cancel()
        await asyncio.gather(failing, return_exceptions=True)
        load.end()
        await loading
    return heaps


def _raise_failure(task: asyncio.Task[None]) -> None:
    """Raise only the first error of a group: it made the others end, and the command names it."""
    try:
        task.result()
    except ExceptionGroup as group:
        raise group.exceptions[0] from group


async def _settled(account: Account, load: Load) -> None:
    """Wait until every pod has a node, for a limited time."""
    await account.until(
        lambda: account.seen >= load.created and not account.unbound, within_s=SETTLES_WITHIN_S
    )


def _say_pending(plan: Plan, account: Account, when: str) -> None:
    """Report which pods have no node, and why."""
    plan.say(f"{when}, {len(account.unbound)} pods had no node")
    reasons = account.reasons()
    for why, count in reasons[:_REASONS]:
        plan.say(f"  {count}: {why[:_LONGEST_REASON]}")
    if rest := sum(count for _, count in reasons[_REASONS:]):
        plan.say(f"  {rest}: for other reasons")


def _say_end(
    plan: Plan, account: Account, swaps: Swaps, before: measures.Reading, after: measures.Reading
) -> None:
    plan.say(f"{swaps.counted} upgrades in the socket folder counted, {swaps.lost_calls} calls lost in them")
    for name in sorted(account.lost):
        plan.say(f"lost: {name}")
    for name in sorted(account.misplaced):
        plan.say(f"on a node that SoakFit rejects: {name}")
    if after.fds > before.fds:
        plan.say(f"open at the end, and not before: {json.dumps(more(before.open, after.open))}")
    if after.task_count > before.task_count:
        plan.say(f"tasks at the end, and not before: {json.dumps(more(before.tasks, after.tasks))}")


def _cluster(plan: Plan, account: Account) -> AbstractAsyncContextManager[Cluster]:
    if plan.kubeconfig is None:
        return embedded_cluster(account, plan.folder)
    return real_cluster(account, plan.folder, plan.kubeconfig, plan.server_pid)


@asynccontextmanager
async def _plugins(folder: Path) -> AsyncIterator[list[PluginProcess]]:
    sockets = folder / "sockets"
    sockets.mkdir(exist_ok=True)
    plugins = [
        PluginProcess(plugin.__name__, folder, sockets if plugin in IN_FOLDER else None) for plugin in POINTS
    ]
    try:
        for plugin in plugins:
            plugin.behave(Mood.HONEST)  # a reused folder may contain another value
        await asyncio.gather(*(plugin.start() for plugin in plugins))
        yield plugins
    finally:
        for plugin in plugins:
            plugin.go_on()
        await asyncio.gather(*(plugin.stop() for plugin in plugins))
