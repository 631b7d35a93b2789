"""The figures that a soak reads of its host."""

from __future__ import annotations

import itertools
import os
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from berth_host.cli.bench.soak.measures import (
    ENTRY_KB,
    Memory,
    Reading,
    failures,
    fill,
    growth_percent,
    read,
    typical,
)
from berth_host.cli.bench.soak.result import MAX_GROWTH_PERCENT
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


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    """Where a host answers at /metrics."""
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


SAMPLE_S = 2.0
# Of a soak that the judgement before called a leak: 209 MB after five minutes, 223 MB after ten, then flat.
RECORDED_MB = {0: 152.0, 1: 174.0, 2: 188.0, 3: 198.0, 4: 204.0, 5: 209.0, 6: 214.0, 8: 221.0, 10: 223.0}
# How full the stores were then: pods and attempts early, events last.
RECORDED_KEPT = {
    "pods": {0: 0, 1: 1200, 2: 2200},
    "attempts": {0: 0, 1: 1500, 2: 3000, 4: 5800, 5: 6000},
    "events": {0: 0, 1: 300, 3: 1500, 5: 2400, 6: 5000, 8: 9000, 10: 10_000},
}


def at(points: dict[int, Any], minute: float) -> float:
    """Between the recorded points, in a straight line; flat behind the last."""
    value: float = np.interp(minute, list(points), list(points.values()))
    return float(value)


def soaked(minutes: float, leak_mb_per_minute: float = 0.0, *, reads_stores: bool = True) -> list[Memory]:
    """The samples of a run of so many minutes, with the noise of an allocator."""
    noise = np.random.default_rng(0)
    found = []
    for second in np.arange(0.0, 60 * minutes, SAMPLE_S):
        minute = second / 60
        kept = {name: round(at(points, minute)) for name, points in RECORDED_KEPT.items()}
        mb = at(RECORDED_MB, minute) + leak_mb_per_minute * minute + noise.uniform(-1.5, 1.5)
        found.append(Memory(mb, kept if reads_stores else {}))
    return found


def test_stores_that_fill_looked_like_a_leak() -> None:
    assert growth_percent(soaked(10, reads_stores=False)) > MAX_GROWTH_PERCENT
    assert set(RECORDED_KEPT) == set(ENTRY_KB)


@pytest.mark.parametrize("minutes", [10, 15, 30, 60])
def test_stores_that_fill_are_no_leak(minutes: float) -> None:
    assert abs(growth_percent(soaked(minutes))) < MAX_GROWTH_PERCENT / 2


@pytest.mark.parametrize("minutes", [10, 15, 30, 60])
def test_a_leak_is_found_in_short_and_in_long_runs(minutes: float) -> None:
    # Of the memory 7 % from one third to the next.
    leak_mb_per_minute = 0.07 * 215 / (minutes / 3)
    found = growth_percent(soaked(minutes, leak_mb_per_minute))
    assert found > MAX_GROWTH_PERCENT


@pytest.mark.parametrize("minutes", [10, 30])
def test_a_leak_in_steps_is_found(minutes: float) -> None:
    """As of a list that is copied to twice its room."""
    grown = [
        Memory(one.mb + (16 if place > 0.6 * minutes * 30 else 0), one.kept)
        for place, one in enumerate(soaked(minutes))
    ]
    assert growth_percent(grown) > MAX_GROWTH_PERCENT


def test_what_is_under_way_at_one_reading_does_not_count() -> None:
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
def test_host_is_back_where_it_was_with_nothing_held(more: dict[str, Any]) -> None:
    before = Reading(tasks={"run": 7}, reservations=0, assumed=0, waiting=0, open={"pipe": 2})
    assert replace(before, tasks={"run": 6}, waiting=5).is_within(before)
    assert not replace(before, **more).is_within(before)
