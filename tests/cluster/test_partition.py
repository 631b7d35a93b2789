"""The network between host and API server loses answers: Bindings take effect, and the host does not know.

BERTH_PARTITIONS is the number of partitions (`make soak`: 100).
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from berth_bench.soak.cutting_proxy import CuttingProxy, cutting_proxy
from berth_bench.versus.api import ApiClient
from berth_bench.versus.objects import create_all, node, pod
from berth_bench.versus.real_servers import SCHEDULER, RealServers
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from support.bindings import Bindings, bound_twice
from support.observed.playing import wipe
from support.observed.stage import api_of

pytestmark = pytest.mark.long

PARTITIONS = int(os.environ.get("BERTH_PARTITIONS", "3"))
PODS_EACH = 40


@pytest.fixture
async def api(servers: RealServers) -> AsyncIterator[ApiClient]:
    async with api_of(servers) as client:
        await wipe(client)
        # Room for one pod more than there will be: a pod that was counted twice would find none.
        cpu = f"{(PARTITIONS * PODS_EACH + 5) // 5 * 10}m"
        await create_all(client, (node(f"n{number}", cpu=cpu, pods="10000") for number in range(5)))
        yield client


@pytest.fixture
async def proxy(servers: RealServers) -> AsyncIterator[CuttingProxy]:
    async with cutting_proxy(servers.url, seed=1) as made:
        made.is_calm = True
        yield made


@pytest.fixture
async def scheduler(
    api: ApiClient, servers: RealServers, proxy: CuttingProxy, tmp_path: Path
) -> AsyncIterator[SchedulerProcess]:
    kubeconfig = servers.kubeconfig(SCHEDULER, url=proxy.url.replace("http:", "https:"))
    process = SchedulerProcess(SchedulerSetup(program="berth", kubeconfig=kubeconfig, folder=tmp_path))
    await process.start()
    await process.ready()
    yield process
    await process.kill()


async def test_bindings_whose_answers_are_lost_are_neither_repeated_nor_forgotten(
    servers: RealServers, api: ApiClient, proxy: CuttingProxy, scheduler: SchedulerProcess
) -> None:
    chance = random.Random(3)
    unheard = 0
    async with Bindings(api) as bindings:
        for number in range(PARTITIONS):
            pods = [pod(f"p{number}-{index}") for index in range(PODS_EACH)]
            creating = asyncio.create_task(create_all(api, pods, at_once=4))
            await asyncio.sleep(chance.uniform(0.02, 0.3))
            proxy.go_one_way()
            heard = len(bindings.node_of)
            await creating
            await asyncio.sleep(chance.uniform(0.1, 0.6))
            unheard += len(bindings.node_of) - heard
            proxy.come_up()
            await bindings.all_bound((number + 1) * PODS_EACH)
        assert bindings.problems == []
        assert bindings.deleted == set()
        assert len(bindings.node_of) == PARTITIONS * PODS_EACH
    assert unheard > 0
    assert proxy.lost_bytes > 0
    assert bound_twice(servers.audit_log) == []
    print(f"{PARTITIONS} partitions, {unheard} bindings whose answers were lost, {proxy.lost_bytes} bytes")
    assert await scheduler.stop() == 0
