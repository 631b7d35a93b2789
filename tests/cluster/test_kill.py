"""`berth scheduler` killed with -9 at any moment and started again: nothing bound twice, nothing lost.

`make test` kills twice. BERTH_KILLS is the number of kills of `make soak` (40); without it, that test is left
out.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from berth_bench.versus.api import ApiClient
from berth_bench.versus.objects import create_all, node, pod
from berth_bench.versus.real_servers import SCHEDULER, RealServers
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from support.bindings import Bindings, bound_twice, until
from support.observed.playing import wipe
from support.observed.stage import api_of

pytestmark = pytest.mark.long

NODES = 10
FILLERS = 40
PODS_EACH = 40
KILLS = os.environ.get("BERTH_KILLS")
MANY = [pytest.param(int(KILLS), marks=pytest.mark.long, id="many")] if KILLS else []
END_S = 90.0
PRIORITIES = {"high": 1000, "low": 10}


@pytest.fixture
async def api(servers: RealServers) -> AsyncIterator[ApiClient]:
    async with api_of(servers) as client:
        await wipe(client)
        for name, value in PRIORITIES.items():
            await client.create(
                {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name},
                    "value": value,
                }
            )
        yield client


class Phoenix:
    """One scheduler at a time, killed and started again."""

    def __init__(self, setup: SchedulerSetup) -> None:
        self._setup = setup
        self._names: Iterator[int] = itertools.count(1)
        self.process = SchedulerProcess(setup)

    async def rise(self) -> None:
        self.process = SchedulerProcess(self._setup, f"scheduler-{next(self._names)}")
        await self.process.start()
        await self.process.ready()


@pytest.fixture
async def phoenix(servers: RealServers, tmp_path: Path) -> AsyncIterator[Phoenix]:
    made = Phoenix(SchedulerSetup(program="berth", kubeconfig=servers.kubeconfig(SCHEDULER), folder=tmp_path))
    yield made
    await made.process.kill()


@pytest.mark.parametrize("kills", [pytest.param(2, id="few"), *MANY])
async def test_pods_with_preemption_survive_kills_at_random_moments(
    servers: RealServers, api: ApiClient, phoenix: Phoenix, kills: int
) -> None:
    chance = random.Random(7)
    cpu_each = NODES * 2000 // (kills * PODS_EACH)  # half of the cluster, all of which is taken
    await create_all(api, (node(f"n{number}", cpu="4", pods="1000") for number in range(NODES)))
    low = (pod(f"low-{index}", "1", priorityClassName="low") for index in range(FILLERS))
    async with Bindings(api) as bindings:
        await create_all(api, low)
        await phoenix.rise()
        await bindings.all_bound(FILLERS)
        for number in range(kills):
            names = (f"high-{number}-{index}" for index in range(PODS_EACH))
            high = [pod(name, f"{cpu_each}m", priorityClassName="high") for name in names]
            creating = asyncio.create_task(create_all(api, high, at_once=4))
            await asyncio.sleep(chance.uniform(0.05, 0.6))
            await phoenix.process.kill()
            await creating
            await phoenix.rise()

        async def high_are_bound() -> bool:
            return not [name for name in bindings.unbound() if name.startswith("high")]

        await until(high_are_bound, "all pods of high priority to be bound", END_S + 5 * kills)
        assert bindings.problems == []
        assert (
            len([name for name in bindings.name_of.values() if name.startswith("high")]) == kills * PODS_EACH
        )
    assert bound_twice(servers.audit_log) == []
    for name, used in (await cpu_by_node(api)).items():
        assert used <= 4000, f"{name} is over-committed"
    assert await phoenix.process.stop() == 0


async def test_nomination_outlives_the_scheduler(api: ApiClient, phoenix: Phoenix) -> None:
    await api.create(node("n1", cpu="2"))
    victim = pod("victim", "1500m", priorityClassName="low", nodeName="n1")
    victim["spec"]["terminationGracePeriodSeconds"] = 30  # no kubelet ends it: it terminates until deleted
    await api.create(victim)
    await phoenix.rise()
    await api.create(pod("preemptor", "1", priorityClassName="high"))

    async def nominated() -> bool:
        found = await api.get("Pod", "preemptor")
        return found is not None and found["status"].get("nominatedNodeName") == "n1"

    await until(nominated, "the nomination")
    await phoenix.process.kill()
    await phoenix.rise()
    await api.create(pod("small", "500m", priorityClassName="low"))
    await api.create(pod("early", "600m", priorityClassName="low"))
    await asyncio.sleep(1.0)  # time enough to use the room that is reserved for another pod
    assert await nominated()
    await api.delete("Pod", "victim", grace_period_s=0)
    async with Bindings(api) as bindings:

        async def settled() -> bool:
            found = await api.get("Pod", "preemptor")
            return found is not None and found["spec"].get("nodeName") == "n1"

        await until(settled, "the nominated pod to be bound")
        assert bindings.problems == []
    assert max((await cpu_by_node(api)).values()) <= 2000


async def cpu_by_node(api: ApiClient) -> dict[str, int]:
    """Return the millicores of the pods on each node."""
    items, _ = await api.all_of("Pod")
    used: dict[str, int] = {}
    for item in items:
        if item["spec"].get("nodeName"):
            used[item["spec"]["nodeName"]] = used.get(item["spec"]["nodeName"], 0) + _milli(item)
    return used


def _milli(item: dict[str, Any]) -> int:
    text = str(item["spec"]["containers"][0]["resources"]["requests"]["cpu"])
    return int(text.removesuffix("m")) if text.endswith("m") else int(text) * 1000
