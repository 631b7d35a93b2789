"""The API server is unreachable for a while: nothing is lost, nothing crashes, and the host catches up.

BERTH_OUTAGE_S is the duration in seconds (`make soak`: a minute).
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
    """Start servers that these tests may stop. `servers` is requested only so that these tests are skipped
    like the others.
    """
    return RealServers(tmp_path_factory.mktemp("outage"), audit_policy=POLICY)


@pytest.fixture
async def api(own_servers: RealServers) -> AsyncIterator[ApiClient]:
    with own_servers:
        async with api_of(own_servers) as client:
            await wipe(client)  # etcd has kept the objects of the previous test
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
    """Make the API server unreachable. `frozen`: it accepts connections and answers nothing; `killed`: it
    ends, and another one starts.
    """
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
