"""The API server is away for a while and comes back: nothing is lost or crashes, and the host catches up.

BERTH_OUTAGE_S says for how long (`make soak`: a minute).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from berth_bench.versus.api import ApiClient
from berth_bench.versus.objects import create_all, node, pod
from berth_bench.versus.real_servers import SCHEDULER, RealServers
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from support.bindings import Bindings, bound_twice
from support.observed.audit import POLICY
from support.observed.playing import wipe
from support.observed.stage import api_of

OUTAGE_S = float(os.environ.get("BERTH_OUTAGE_S", "10"))
PODS = 100


@pytest.fixture(scope="module")
def own_servers(servers: RealServers, tmp_path_factory: pytest.TempPathFactory) -> RealServers:
    """`servers` is only asked for, so that these tests are skipped as all are: they break their own."""
    return RealServers(tmp_path_factory.mktemp("outage"), audit_policy=POLICY)


@pytest.fixture
async def api(own_servers: RealServers) -> AsyncIterator[ApiClient]:
    with own_servers:
        async with api_of(own_servers) as client:
            await wipe(client)  # etcd has kept what the test before made
            await create_all(client, (node(f"n{number}") for number in range(5)))
            yield client


@pytest.fixture
async def scheduler(
    api: ApiClient, own_servers: RealServers, tmp_path: Path
) -> AsyncIterator[SchedulerProcess]:
    setup = SchedulerSetup(program="berth", kubeconfig=own_servers.kubeconfig(SCHEDULER), folder=tmp_path)
    process = SchedulerProcess(setup)
    await process.start()
    await process.ready()
    yield process
    await process.kill()


async def go_away(servers: RealServers, how: str) -> None:
    """`frozen`: it accepts connections and answers nothing; `killed`: it is gone, and another one comes."""
    if how == "frozen":
        os.kill(servers.api_server_pid, signal.SIGSTOP)
        await asyncio.sleep(OUTAGE_S)
        os.kill(servers.api_server_pid, signal.SIGCONT)
    else:
        await asyncio.to_thread(servers.stop_api_server, kill=True)
        await asyncio.sleep(OUTAGE_S)
        await asyncio.to_thread(servers.start_api_server)


@pytest.mark.parametrize("how", ["frozen", "killed"])
async def test_outage_in_the_middle_of_work_loses_nothing(
    own_servers: RealServers, api: ApiClient, scheduler: SchedulerProcess, how: str
) -> None:
    async with Bindings(api) as bindings:
        await create_all(api, (pod(f"p{index}") for index in range(PODS)))
        await go_away(own_servers, how)
        await bindings.all_bound(PODS)
        await create_all(api, (pod(f"q{index}") for index in range(PODS)))
        await bindings.all_bound(2 * PODS)
        assert bindings.problems == []
    assert scheduler.ended_with is None
    assert bound_twice(own_servers.audit_log) == []
    assert await scheduler.stop() == 0
