"""Two `berth scheduler` processes and one Lease: the holder schedules, and the other stands by.

`make test` kills two leaders. BERTH_FAILOVERS is the number that `make soak` kills (100); without it, that
test is left out.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from berth_bench.versus.api import ApiClient
from berth_bench.versus.objects import create_all, node, pod
from berth_bench.versus.real_servers import SCHEDULER, RealServers
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from support.bindings import Bindings, bound_twice, until
from support.observed.playing import wipe
from support.observed.stage import api_of

pytestmark = pytest.mark.long

FAILOVERS = int(os.environ.get("BERTH_FAILOVERS") or 0)
MANY = [pytest.param(FAILOVERS, marks=pytest.mark.long, id="many")] if FAILOVERS else []
FAILOVER_WITHIN_S = 30
PODS_EACH = 10
NODES = 5 + FAILOVERS * PODS_EACH // 100
"""A node takes 110 pods."""
CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true, leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}
"""


@pytest.fixture
async def api(servers: RealServers) -> AsyncIterator[ApiClient]:
    async with api_of(servers) as client:
        await wipe(client)
        await create_all(client, (node(f"n{number}") for number in range(NODES)))
        yield client


class Replicas:
    """Schedulers that share a Lease. The running ones are killed at the end."""

    def __init__(self, servers: RealServers, folder: Path, api: ApiClient) -> None:
        self._setup = SchedulerSetup(
            program="berth",
            kubeconfig=servers.kubeconfig(SCHEDULER),
            folder=folder,
            configuration=CONFIGURATION,
        )
        self._api = api
        self._names: Iterator[int] = itertools.count(1)
        self.started: list[SchedulerProcess] = []

    async def start(self) -> SchedulerProcess:
        process = SchedulerProcess(self._setup, f"replica-{next(self._names)}")
        self.started.append(process)
        await process.start()
        return process

    async def holder(self) -> str:
        lease = await self._api.get("Lease", "kube-scheduler", "kube-system")
        return "" if lease is None else str(lease["spec"].get("holderIdentity") or "")

    async def holder_other_than(self, old: str) -> str:
        async def moved() -> bool:
            return await self.holder() not in ("", old)

        await until(moved, f"the Lease to leave {old or 'nobody'}", 30.0)
        return await self.holder()

    async def kill_all(self) -> None:
        for process in self.started:
            await process.kill()


@pytest.fixture
async def replicas(servers: RealServers, tmp_path: Path, api: ApiClient) -> AsyncIterator[Replicas]:
    made = Replicas(servers, tmp_path, api)
    yield made
    await made.kill_all()


@pytest.mark.timeout(480 + FAILOVER_WITHIN_S * FAILOVERS)
@pytest.mark.parametrize("failovers", [pytest.param(2, id="few"), *MANY])
async def test_leaders_are_killed_one_after_the_other(
    servers: RealServers, api: ApiClient, replicas: Replicas, failovers: int
) -> None:
    chance = random.Random(1)
    leader = await replicas.start()
    holder = await replicas.holder_other_than("")
    async with Bindings(api) as bindings:
        for number in range(1, failovers + 1):
            standby = await replicas.start()
            await standby.ready()
            assert await replicas.holder() == holder  # one schedules, the other waits
            pods = [pod(f"p{number}-{index}") for index in range(PODS_EACH)]
            creating = asyncio.create_task(create_all(api, pods, at_once=2))
            await asyncio.sleep(chance.uniform(0, 0.1))
            await leader.kill()
            await creating
            holder, leader = await replicas.holder_other_than(holder), standby
            await bindings.all_bound(number * PODS_EACH)
        assert bindings.problems == []
        assert bindings.deleted == set()
        assert len(bindings.node_of) == failovers * PODS_EACH
    assert bound_twice(servers.audit_log) == []
    lease = await api.get("Lease", "kube-scheduler", "kube-system")
    assert lease is not None
    assert lease["spec"]["leaseTransitions"] == failovers
    assert await leader.stop() == 0
    assert await replicas.holder() == ""


async def test_leader_that_was_stopped_beyond_its_lease_binds_nothing_more_and_ends(
    servers: RealServers, api: ApiClient, replicas: Replicas
) -> None:
    frozen = await replicas.start()
    holder = await replicas.holder_other_than("")
    standby = await replicas.start()
    await standby.ready()
    async with Bindings(api) as bindings:
        os.kill(frozen.pid, signal.SIGSTOP)
        await create_all(api, (pod(f"p{index}") for index in range(PODS_EACH)))
        second = await replicas.holder_other_than(holder)
        os.kill(frozen.pid, signal.SIGCONT)
        await create_all(api, (pod(f"q{index}") for index in range(PODS_EACH)))
        await bindings.all_bound(2 * PODS_EACH)

        async def gone() -> bool:
            return frozen.ended_with is not None

        await until(gone, "the old leader to end", 30.0)
        assert frozen.ended_with == 1
        assert await replicas.holder() == second
        assert bindings.problems == []
    assert bound_twice(servers.audit_log) == []
    assert "leader" in frozen.last_lines(3)
    assert await standby.stop() == 0


async def test_released_lease_is_taken_at_once(api: ApiClient, replicas: Replicas) -> None:
    leader = await replicas.start()
    holder = await replicas.holder_other_than("")
    standby = await replicas.start()
    await standby.ready()
    await leader.stop()
    async with asyncio.timeout(2.0):  # less than the Lease lasts
        assert await replicas.holder_other_than(holder) != ""
    async with Bindings(api) as bindings:
        await api.create(pod("p"))
        await bindings.all_bound(1)
