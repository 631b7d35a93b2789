"""A small API server, a client of it, and a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop
from berth_host.model.clock import ManualClock
from berth_kube.client import KubeClient
from berth_kube.cluster import KubeCluster
from berth_kube.connection import Connection
from support.kube_api import KubeApi, kube_api

ON_BOTH_LOOPS = ("test_http1", "test_http2", "test_lane", "test_lane_faults")
"""The modules whose tests run on asyncio's own loop and on uvloop's."""


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loops that a test runs on."""
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.stem in ON_BOTH_LOOPS:
        factories["uvloop"] = uvloop.new_event_loop
    return factories


@pytest.fixture
async def api() -> AsyncIterator[KubeApi]:
    async with kube_api() as running:
        yield running


@pytest.fixture
async def client(api: KubeApi) -> AsyncIterator[KubeClient]:
    opened = await KubeClient.open(Connection(master=api.url, qps=-1))
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000.25)


@pytest.fixture
async def cluster(client: KubeClient, clock: ManualClock) -> AsyncIterator[KubeCluster]:
    made = KubeCluster(client, clock, host_name="here")
    yield made
    await made.stop()
