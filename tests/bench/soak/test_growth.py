"""Load is no leak, and a leak is found: with made series, and with a host that leaks."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from berth_bench.soak.account import Account
from berth_bench.soak.clusters import embedded_cluster
from berth_bench.soak.growth import (
    ENTRY,
    LIMITS_PERCENT,
    MIN_SAMPLES,
    Heap,
    growths,
    leaking_types,
    resident_growth_percent,
)
from berth_bench.soak.hosts import Hosts
from berth_bench.soak.load import nodes_of, open_nodes
from berth_bench.soak.plugin_process import PluginProcess
from berth_bench.soak.plugins import SoakFit, SoakGate, SoakKeeper, SoakRank
from berth_bench.versus import scheduler_process

LEVEL = {"objects": 900_000.0, "blocks": 2_600_000.0, "malloced_bytes": 60e6}
LENGTHS = pytest.mark.parametrize("minutes", [10, 30, 60])
SEEDS = pytest.mark.parametrize("seed", range(3))
Kept = Callable[[float], dict[str, int]]


def full(_: float) -> dict[str, int]:
    return {"events": 3000, "attempts": 8000, "pods": 500}


def filling(minute: float) -> dict[str, int]:
    """Return stores that fill up to the eighth minute, with few pods and then many."""
    share = min(minute / 8, 1.0)
    return {"events": int(10_000 * share), "attempts": int(8000 * share), "pods": 200 if minute < 7 else 900}


def run(
    minutes: float,
    seed: int = 0,
    *,
    leak_per_minute: float = 0.0,
    noise: float = 0.001,
    kept: Kept = full,
    more: Callable[[float], float] = lambda _: 0.0,
) -> list[Heap]:
    """Return the samples of a run whose host is not replaced after the first sixth.

    `leak_per_minute`: share of the level; `noise`: of neighbours, which are alike, as under a load;
    `more`: a further share, by the minute.
    """
    rng = random.Random(seed)
    samples = []
    drift = 0.0
    for place in range(int(minutes / 6 * 7.5), int(minutes * 7.5)):
        minute = place / 7.5
        drift = 0.6 * drift + rng.gauss(0.0, noise)
        share = 1 + leak_per_minute * minute + drift + more(minute)
        stores = kept(minute)
        figures = {
            name: level * share + sum(each * stores[store] for store, each in ENTRY[name].items())
            for name, level in LEVEL.items()
        }
        types = {"a.Kept": 1000, "a.Leaked": int(leak_per_minute * minute * 1e6)}
        samples.append(Heap(60 * minute, figures, stores, types, 200 * (1 + minute / 100)))
    return samples


def leaks(samples: list[Heap]) -> list[str]:
    return [name for name, one in growths(samples).items() if one.is_leak(LIMITS_PERCENT[name])]


@LENGTHS
@SEEDS
@pytest.mark.parametrize("noise", [0.0, 0.001, 0.01, 0.05])
def test_steady_host_does_not_leak_on_an_idle_or_a_loaded_machine(
    minutes: float, seed: int, noise: float
) -> None:
    assert leaks(run(minutes, seed, noise=noise)) == []


@LENGTHS
@SEEDS
def test_stores_that_fill_and_pods_that_wait_are_not_a_leak(minutes: float, seed: int) -> None:
    assert leaks(run(minutes, seed, kept=filling)) == []
    # The entries may be larger than they are thought to be.
    doubted = [
        Heap(
            one.at_s,
            {
                name: value + sum(0.6 * each * one.kept[store] for store, each in ENTRY[name].items())
                for name, value in one.figures.items()
            },
            one.kept,
        )
        for one in run(minutes, seed, kept=filling)
    ]
    assert leaks(doubted) == []


@LENGTHS
@SEEDS
def test_bursts_and_growth_that_ends_are_not_a_leak(minutes: float, seed: int) -> None:
    def burst(minute: float) -> float:
        return 0.3 * (0.6 * minutes < minute < 0.7 * minutes)

    def warm_up(minute: float) -> float:
        return 0.2 * (1 - math.exp(-8 * minute / minutes))

    def step(minute: float) -> float:
        return 0.05 * (minute > 0.7 * minutes)

    for more in (burst, warm_up, step):
        assert leaks(run(minutes, seed, more=more)) == []


@LENGTHS
@SEEDS
@pytest.mark.parametrize("kept", [full, filling])
def test_a_leak_is_found_in_short_and_in_long_runs(minutes: float, seed: int, kept: Kept) -> None:
    # While stores fill, as they do in the second half of ten minutes, only a larger leak is certain.
    share = 0.06 if kept is full else 0.3
    samples = run(minutes, seed, leak_per_minute=share / minutes, kept=kept)
    assert leaks(samples)[:2] == ["objects", "blocks"]
    assert leaking_types(samples)[0][0] == "a.Leaked"
    assert leaks(run(minutes, seed, leak_per_minute=0.15 / minutes, noise=0.005)) == list(LEVEL)


def test_three_objects_for_each_pod_are_found_in_ten_minutes_on_an_idle_machine() -> None:
    assert "objects" in leaks(run(10, leak_per_minute=3 * 25 * 60 / LEVEL["objects"], noise=0.0002))


def test_few_samples_say_nothing() -> None:
    few = run(10)[: MIN_SAMPLES - 1]
    assert growths(few) == {}
    assert resident_growth_percent(few) is None
    assert leaking_types([]) == []


def test_growth_of_resident_memory_is_that_of_the_second_half() -> None:
    assert resident_growth_percent(run(10)) == pytest.approx(100 * 4.07 / 107.8, rel=0.03)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("leaked_per_s", [0, 20_000])
async def test_a_host_that_leaks_is_told_from_one_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaked_per_s: int
) -> None:
    switch = tmp_path / "switch"
    switch.mkdir()
    (switch / "sitecustomize.py").write_text(
        "import threading, time\n"
        "class Leaked:\n"
        "    def __init__(self): self.me = [self]\n"
        "kept = []\n"
        "def leak():\n"
        "    while True:\n"
        "        time.sleep(0.05)\n"
        f"        kept.extend(Leaked() for _ in range({leaked_per_s // 20}))\n"
        "threading.Thread(target=leak, daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(str(switch))  # the host's process imports from where this one does
    monkeypatch.setattr(scheduler_process, "PATIENCE_S", 240.0)  # the machine may be busy
    plugins = [PluginProcess(one.__name__, tmp_path) for one in (SoakFit, SoakRank, SoakKeeper, SoakGate)]
    async with embedded_cluster(Account(open_nodes(20)), tmp_path) as cluster:
        await asyncio.gather(*map(cluster.create, nodes_of(20)))
        hosts = Hosts(tmp_path, cluster.kubeconfig, plugins)
        try:
            await asyncio.gather(*(plugin.start() for plugin in plugins))
            await hosts.start()
            samples = [await hosts.heap() for _ in range(2 * MIN_SAMPLES)]
        finally:
            await hosts.stop()
            await asyncio.gather(*(plugin.kill() for plugin in plugins))
    seen = [one for one in samples if one is not None]
    assert len(seen) == 2 * MIN_SAMPLES
    if not leaked_per_s:
        assert leaks(seen) == []
        return
    assert "objects" in leaks(seen)
    assert "sitecustomize.Leaked" in dict(leaking_types(seen))
