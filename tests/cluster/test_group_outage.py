"""The API server goes away while half of a gang is bound: the rest is bound when it is back; nothing leaks.

BERTH_OUTAGE_S is the duration in seconds (`make soak`: a minute).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from berth_bench.versus.real_servers import RealServers
from support.gang_arena import COSCHEDULING, KUBERNETES, arena_on
from support.observed.audit import POLICY

OUTAGE_S = float(os.environ.get("BERTH_OUTAGE_S", "10"))
SIZE = 100
"""Enough members that the limit on requests spreads their bindings over seconds."""


@pytest.fixture(scope="module")
def own_servers(
    pod_group_servers: RealServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealServers]:
    """Start servers that these tests may stop. `pod_group_servers` is requested only so that these tests are
    skipped like the others.
    """
    folder = tmp_path_factory.mktemp("group-outage")
    with RealServers(folder, audit_policy=POLICY, pod_groups=True) as running:
        yield running


@pytest.mark.long
@pytest.mark.parametrize(("kind", "how"), [(KUBERNETES, "killed"), (COSCHEDULING, "frozen")])
async def test_gang_whose_api_server_goes_away_when_half_of_it_is_bound_is_bound_whole(
    own_servers: RealServers, tmp_path: Path, kind: str, how: str
) -> None:
    unbound: list[int] = []

    async def away() -> None:
        pid = own_servers.api_server_pid
        os.kill(pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        unbound.append(len(arena.unbound()))
        await asyncio.sleep(OUTAGE_S)
        if how == "killed":
            await asyncio.to_thread(own_servers.stop_api_server)
            await asyncio.to_thread(own_servers.start_api_server)
        else:
            os.kill(pid, signal.SIGCONT)

    async with arena_on(own_servers, tmp_path, room=SIZE + 2) as arena:
        await arena.outage(kind, SIZE, away)
        await arena.count_at_the_end()
    assert unbound[0] > 0, "the outage was in the middle"
    assert arena.figures.problems == {}
