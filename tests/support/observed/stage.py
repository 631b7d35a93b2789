"""API servers with an audit log of the scheduler's writes, one for each concurrent scenario."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from berth_bench.versus.api import ApiClient
from berth_bench.versus.real_servers import ADMIN, SCHEDULER, RealServers
from support.observed.audit import POLICY
from support.observed.trial import Stage


@asynccontextmanager
async def stages(folder: Path, count: int) -> AsyncIterator[list[Stage]]:
    """Yield `count` stages, each with an API server of its own. Raises ServerError."""
    async with AsyncExitStack() as stack:
        started = [_started(folder / f"servers-{number}") for number in range(1, count + 1)]
        servers = await asyncio.gather(*(stack.enter_async_context(one) for one in started))
        yield [await stack.enter_async_context(stage(one, folder)) for one in servers]


@asynccontextmanager
async def stage(servers: RealServers, folder: Path) -> AsyncIterator[Stage]:
    """Yield a stage on servers that run, with `audit.POLICY`. `folder`: for the schedulers' files."""
    async with api_of(servers) as api:
        yield Stage(
            api=api, audit_log=servers.audit_log, kubeconfig=servers.kubeconfig(SCHEDULER), folder=folder
        )


def api_of(servers: RealServers) -> ApiClient:
    """Return a client of an API server, as its administrator."""
    return ApiClient(servers.url, servers.tokens[ADMIN])


@asynccontextmanager
async def _started(folder: Path) -> AsyncIterator[RealServers]:
    servers = RealServers(folder, audit_policy=POLICY)
    await asyncio.to_thread(servers.start)
    try:
        yield servers
    finally:
        await asyncio.to_thread(servers.stop)
