"""The figures that a soak reads of its host."""

from __future__ import annotations

import itertools
import os
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from berth_bench.soak.measures import (
    STORES,
    Reading,
    failures,
    fill,
    heap,
    read,
    typical,
)
from support.certificates import Authority

METRICS = """\
# TYPE berth_tasks gauge
berth_tasks{coroutine="Informer.run"} 16
berth_tasks{coroutine="Scheduler.run"} 1
# TYPE berth_reservations gauge
berth_reservations{plugin="A"} 2
berth_reservations{plugin="B"} 1
# TYPE scheduler_cache_size_assumed_pods gauge
scheduler_cache_size_assumed_pods 4
# TYPE scheduler_cache_size gauge
scheduler_cache_size{type="nodes"} 1000
scheduler_cache_size{type="pods"} 7
# TYPE berth_kept_entries gauge
berth_kept_entries{store="attempts"} 11
berth_kept_entries{store="events"} 13
# TYPE scheduler_pending_pods gauge
scheduler_pending_pods{queue="active"} 3
scheduler_pending_pods{queue="backoff"} 5
# TYPE berth_plugin_failures_total counter
berth_plugin_failures_total{plugin="A",extension_point="Filter",kind="timeout"} 2
berth_plugin_failures_total{plugin="A",extension_point="Filter",kind="absent"} 3
berth_plugin_failures_total{plugin="A",extension_point="Score",kind="unavailable"} 4
berth_plugin_failures_total{plugin="B",extension_point="Score",kind="absent"} 5
"""

HEAP = """\
objects 1234
frozen 1000
blocks 5678
malloced_bytes 90123
builtins.dict 200
berth_sdk.pod.Pod 34
"""


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    """Serve /metrics like a host; return the port."""
    pair = Authority().issue("host")
    (tmp_path / "pair.pem").write_bytes(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair.pem")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=METRICS)

    app = web.Application()

    async def heap_page(request: web.Request) -> web.Response:
        assert request.query["gc"] == "1"
        return web.Response(text=HEAP)

    app.router.add_get("/metrics", metrics)
    app.router.add_get("/debug/pprof/heap", heap_page)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def test_sizes_are_summed_over_plugins_and_queues(port: int) -> None:
    found = await read(port, os.getpid())
    assert (found.task_count, found.reservations, found.assumed, found.waiting) == (17, 3, 4, 8)
    assert found.tasks == {"Informer.run": 16, "Scheduler.run": 1}
    assert 3 < found.fds < 1000


async def test_failures_of_one_plugin_are_summed_over_points(port: int) -> None:
    assert await failures(port, "A", {"absent", "unavailable"}) == 7


async def test_fill_of_the_stores_is_read_by_name(port: int) -> None:
    assert await fill(port) == {"attempts": 11, "events": 13, "pods": 7 + 8}
    assert set(await fill(port)) == set(STORES)
    assert await fill(1) == {}


async def test_objects_are_read_with_their_types(port: int) -> None:
    figures = {"objects": 1234, "blocks": 5678, "malloced_bytes": 90123}
    assert await heap(port) == (figures, {"frozen": 1000, "builtins.dict": 200, "berth_sdk.pod.Pod": 34})
    assert await heap(1) is None


def test_work_in_flight_at_one_reading_does_not_count() -> None:
    rest = Reading(tasks={"run": 8, "wait": 4}, reservations=0, assumed=0, waiting=2, open={"pipe": 2})
    # A keeper probes: it waits in one task instead of two.
    probing = replace(rest, tasks={"run": 9, "wait": 2})
    busy = Reading(tasks={"run": 9, "wait": 5}, reservations=1, assumed=1, waiting=3, open={"pipe": 3})
    for one_of_three in itertools.permutations([rest, probing, busy]):
        assert typical(one_of_three) == rest
    assert typical([rest]) == rest


@pytest.mark.parametrize(
    "more", [{"tasks": {"run": 7, "other": 1}}, {"reservations": 1}, {"assumed": 1}, {"open": {"pipe": 3}}]
)
def test_host_without_open_work_is_within_its_first_reading(more: dict[str, Any]) -> None:
    before = Reading(tasks={"run": 7}, reservations=0, assumed=0, waiting=0, open={"pipe": 2})
    assert replace(before, tasks={"run": 6}, waiting=5).is_within(before)
    assert not replace(before, **more).is_within(before)
