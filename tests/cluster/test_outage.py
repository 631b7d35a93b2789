"""The API server is unreachable for a while: nothing is lost, nothing crashes, and the host catches up.

`make test` has an outage of one second. BERTH_OUTAGE_S is the duration in seconds of that of `make soak` (a
minute); without it, that test is left out. BERTH_API_KILLS is the number of kills of the API server, one
after the other (`make soak`: 100).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from berth_bench.versus.api import ApiClient, ApiError
from berth_bench.versus.objects import create_all, node, pod
from berth_bench.versus.real_servers import SCHEDULER, RealServers
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from support.bindings import Bindings, bound_twice
from support.observed.audit import POLICY
from support.observed.playing import wipe
from support.observed.stage import api_of

pytestmark = pytest.mark.long

OUTAGE_S = os.environ.get("BERTH_OUTAGE_S")
LONG = [pytest.param(float(OUTAGE_S), marks=pytest.mark.long, id="long")] if OUTAGE_S else []
PODS = 100
KILLS = int(os.environ.get("BERTH_API_KILLS", "4"))
PODS_EACH = 60
AGAIN_WITHIN_S = 180.0
"""Seconds in which the pods of a kill are bound; most of it is the API server's start."""


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


async def go_away(servers: RealServers, how: str, outage_s: float) -> None:
    """Make the API server unreachable for `outage_s` seconds.

    `frozen`: it accepts connections and answers nothing; `killed`: it ends, and another one starts.
    """
    if how == "frozen":
        os.kill(servers.api_server_pid, signal.SIGSTOP)
        await asyncio.sleep(outage_s)
        os.kill(servers.api_server_pid, signal.SIGCONT)
    else:
        await asyncio.to_thread(servers.stop_api_server, kill=True)
        await asyncio.sleep(outage_s)
        await asyncio.to_thread(servers.start_api_server)


@pytest.mark.parametrize("outage_s", [pytest.param(1.0, id="short"), *LONG])
@pytest.mark.parametrize("how", [pytest.param("frozen", marks=pytest.mark.long), "killed"])
async def test_outage_in_the_middle_of_work_loses_nothing(
    own_servers: RealServers, api: ApiClient, scheduler: SchedulerProcess, how: str, outage_s: float
) -> None:
    async with Bindings(api) as bindings:
        await create_all(api, (pod(f"p{index}") for index in range(PODS)))
        await go_away(own_servers, how, outage_s)
        await bindings.all_bound(PODS)
        await create_all(api, (pod(f"q{index}") for index in range(PODS)))
        await bindings.all_bound(2 * PODS)
        assert bindings.problems == []
    assert scheduler.ended_with is None
    assert bound_twice(own_servers.audit_log) == []
    assert await scheduler.stop() == 0


async def create_in_spite_of_kills(api: ApiClient, objects: Iterable[dict[str, Any]]) -> None:
    """Create objects, a few at a time, and again after each error of the connection or of the server."""
    rest = iter(objects)

    async def create() -> None:
        for content in rest:
            while not await is_created(content):
                await asyncio.sleep(0.1)

    async def is_created(content: dict[str, Any]) -> bool:
        try:
            await api.create(content)
        except ApiError as err:
            if err.status < 500 and err.status not in (409, 429):
                raise
            return err.status == 409  # an earlier try, whose answer was lost
        except (aiohttp.ClientError, OSError):
            return False
        return True

    await asyncio.gather(*(create() for _ in range(4)))


@pytest.mark.long
@pytest.mark.timeout(300 + AGAIN_WITHIN_S * KILLS)
async def test_kills_of_the_api_server_abort_nothing_and_lose_no_pod(
    own_servers: RealServers, api: ApiClient, scheduler: SchedulerProcess
) -> None:
    chance = random.Random(13)
    await create_all(api, (node(f"large-{number}", cpu="1000", pods="10000") for number in range(5)))
    async with Bindings(api) as bindings:
        for number in range(KILLS):
            pods = [pod(f"k{number}-{index}") for index in range(PODS_EACH)]
            creating = asyncio.create_task(create_in_spite_of_kills(api, pods))
            await asyncio.sleep(chance.uniform(0.05, 0.8))
            await asyncio.to_thread(own_servers.stop_api_server, kill=True)
            await asyncio.to_thread(own_servers.start_api_server)
            await creating
            await bindings.all_bound((number + 1) * PODS_EACH, AGAIN_WITHIN_S)
            assert scheduler.ended_with is None, f"it ended after kill {number + 1}"
        assert bindings.problems == []
    assert len(bindings.node_of) == KILLS * PODS_EACH
    assert bound_twice(own_servers.audit_log) == []
    assert await scheduler.stop() == 0
