"""Law: whatever happens to the connections, the view becomes equal to the server's objects, and no change is
handed over twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from berth_bench.soak.cutting_proxy import cutting_proxy
from berth_host.model.clock import RealClock
from berth_kube.client import KubeClient
from berth_kube.cluster import KubeCluster
from berth_kube.connection import Connection
from berth_kube.informer import WatchTimes
from support.kube_api import KubeApi, kube_api
from support.waiting import PATIENCE_S
from support.watched_view import WatchedView

SEEDS = range(8)
RESOURCES = {"pods": "Pod", "nodes": "Node", "example.com/widgets": "example.com/widgets"}
TIMES = WatchTimes(min_watch_s=1, max_watch_s=2, idle_s=1.0, page_size=3)
STEP_COUNT = 120


@asynccontextmanager
async def cluster_at(url: str) -> AsyncIterator[KubeCluster]:
    client = await KubeClient.open(Connection(master=url, qps=-1))
    cluster = KubeCluster(client, RealClock(), times=TIMES)
    try:
        yield cluster
    finally:
        await cluster.stop()
        await client.close()


def objects_of(api: KubeApi, resource: str) -> dict[str, tuple[str, str]]:
    """Return the objects that a watcher of the resource must have in the end."""
    return {
        key: (item["metadata"]["uid"], item["metadata"]["resourceVersion"])
        for key, item in api.objects[resource.rpartition("/")[2]].items()
        if resource != "pods" or item["status"]["phase"] != "Succeeded"
    }


async def change_something(api: KubeApi, chance: random.Random) -> None:
    plural = chance.choice(("pods", "pods", "nodes", "widgets"))
    objects = api.objects[plural]
    action = chance.random()
    if objects and action < 0.2:
        await api.delete(plural, chance.choice(list(objects)))
    else:
        phase = "Succeeded" if action > 0.9 else "Running"
        # Few names: many are deleted and made again under the same one.
        await api.put(plural, f"o{chance.randrange(12)}", status={"phase": phase})


@pytest.mark.sampled(every=6)
@pytest.mark.slow
@pytest.mark.parametrize("forgets", [False, True], ids=["history kept", "history forgotten"])
@pytest.mark.parametrize("seed", SEEDS)
async def test_view_equals_the_server_after_any_run(seed: int, forgets: bool) -> None:
    chance = random.Random(seed)
    async with kube_api() as api, cutting_proxy(api.url, seed) as proxy, AsyncExitStack() as stack:
        for _ in range(20):
            await change_something(api, chance)
        cluster = await stack.enter_async_context(cluster_at(proxy.url))
        seen = WatchedView()
        starting = asyncio.ensure_future(cluster.start(seen.handle, RESOURCES))
        for step in range(STEP_COUNT):
            await change_something(api, chance)
            await asyncio.sleep(chance.choice((0.0, 0.0, 0.005, 0.02)))
            if forgets and chance.random() < 0.05:
                api.compact()
            if step == STEP_COUNT // 2:
                proxy.cut_all()
        proxy.is_calm = True
        proxy.cut_all()
        await asyncio.wait_for(starting, PATIENCE_S)
        wanted = {kind: objects_of(api, resource) for resource, kind in RESOURCES.items()}
        async with asyncio.timeout(PATIENCE_S):
            while {kind: dict(seen.objects[kind]) for kind in wanted} != wanted or cluster.problems:
                await asyncio.sleep(0.02)
        assert seen.faults == []
        assert proxy.cut_count > 0


async def test_no_version_is_missed_while_the_server_keeps_its_history() -> None:
    chance = random.Random(99)
    async with kube_api() as api, cutting_proxy(api.url, 99) as proxy, AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(cluster_at(proxy.url))
        seen = WatchedView()
        proxy.is_calm = True
        await cluster.start(seen.handle, ["nodes"])
        proxy.is_calm = False
        proxy.cut_all()
        for i in range(200):
            await api.put("nodes", f"n{chance.randrange(5)}", spec={"number": i})
            await asyncio.sleep(0.002)
        proxy.is_calm = True
        proxy.cut_all()
        wanted = [int(change.object["metadata"]["resourceVersion"]) for change in api.history["nodes"]]
        async with asyncio.timeout(PATIENCE_S):
            while len(seen.events) < len(wanted):
                await asyncio.sleep(0.02)
        got = [int(event.new.ref.resource_version) for event in seen.events if event.new is not None]
        assert got == wanted
        assert cluster.informers["nodes"].relist_count == 0
        assert cluster.informers["nodes"].reconnect_count > 0
