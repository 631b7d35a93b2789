"""The figures that a soak reads of its host."""

from __future__ import annotations

import itertools
import json
import os
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from berth_bench.soak.measures import (
    ENTRY_KB,
    Memory,
    Reading,
    failures,
    fill,
    growth_percent,
    read,
    typical,
)
from berth_bench.soak.result import MAX_GROWTH_PERCENT
from support.certificates import Authority

TESTDATA = Path(__file__).parent / "testdata"
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
    app.router.add_get("/metrics", metrics)
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
    assert await fill(1) == {}


def samples(*memory_mb: float) -> list[Memory]:
    return [Memory(mb, {}) for mb in memory_mb]


def test_growth_is_the_last_third_over_the_second() -> None:
    assert growth_percent(samples(*[500.0] * 10, *[100.0] * 10, *[110.0] * 10)) == pytest.approx(10)
    assert growth_percent(samples(100.0, 100.0, 100.0)) == 0.0
    assert growth_percent(samples(1.0)) == 0.0


RECORDED = [
    Memory(mb, {"events": events, "attempts": attempts, "pods": pods})
    for mb, events, attempts, pods in json.loads((TESTDATA / "memory.json").read_text())["samples"]
]
"""A run of ten minutes without a leak: events and attempts fill for six minutes; then it stands still."""


def soaked(minutes: float, leak_percent: float = 0.0) -> list[Memory]:
    """Return the recorded run, shortened or extended at its end; with a leak of this size from third to
    third.
    """
    wanted = round(len(RECORDED) * minutes / 10)
    at_rest = RECORDED[-60:]
    run = [*RECORDED, *(at_rest[place % len(at_rest)] for place in range(wanted))][:wanted]
    leaked_mb = leak_percent / 100 * 220 * 3 / wanted
    return [Memory(one.mb + leaked_mb * place, one.kept) for place, one in enumerate(run)]


LENGTHS = pytest.mark.parametrize("minutes", [6, 7.5, 10, 15, 30, 60])


def test_memory_with_filling_stores_included_looks_like_a_leak() -> None:
    assert growth_percent([Memory(one.mb, {}) for one in soaked(7.5)]) > 2 * MAX_GROWTH_PERCENT
    assert set(RECORDED[0].kept) == set(ENTRY_KB)


@LENGTHS
def test_filling_stores_are_not_a_leak(minutes: float) -> None:
    assert abs(growth_percent(soaked(minutes))) < 0.7 * MAX_GROWTH_PERCENT


@LENGTHS
def test_a_leak_is_found_in_short_and_in_long_runs(minutes: float) -> None:
    assert growth_percent(soaked(minutes, leak_percent=7.0)) > MAX_GROWTH_PERCENT


@LENGTHS
def test_a_leak_in_one_step_is_found(minutes: float) -> None:
    """A leak in one step, like a list that is copied to twice its size after two thirds of the run."""
    run = soaked(minutes)
    stepped = [Memory(one.mb + 16.0 * (place > len(run) * 0.66), one.kept) for place, one in enumerate(run)]
    assert growth_percent(stepped) > MAX_GROWTH_PERCENT


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
