"""Every fault is repaired, even if the soak ends during the fault."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from berth_bench.soak import faults as faults_module
from berth_bench.soak.clusters import CUT, Interruption
from berth_bench.soak.faults import KINDS, Faults
from berth_bench.soak.plugin_process import PluginProcess
from berth_bench.soak.plugins import Mood
from berth_bench.soak.swaps import Failures, Swaps
from support.waiting import until

LONG_S = (60.0, 60.0)
AT_ONCE_S = (0.0, 0.0)


class Noted(PluginProcess):
    """A plugin without a process: records the calls of its methods in order."""

    def __init__(self, folder: Path) -> None:
        super().__init__("SoakFit", folder)
        self.done: list[str] = []

    async def start(self) -> None:
        self.done.append("start")

    async def kill(self) -> None:
        self.done.append("kill")

    async def stop(self) -> None:
        self.done.append("stop")

    def hold(self) -> None:
        self.done.append("hold")

    def go_on(self) -> None:
        self.done.append("go on")

    def behave(self, mood: Mood) -> None:
        self.done.append(mood)


async def nothing() -> None:
    """Do nothing."""


async def no_failures(plugin: str) -> Failures | None:
    return None


def misfortunes(*plugins: PluginProcess, seed: int, cut: Sequence[Interruption] = ()) -> Faults:
    rng = random.Random(seed)
    return Faults(plugins, Swaps(no_failures), cut, nothing, rng, lasts_s=0.02)


async def end(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    "mended",
    [
        ["kill", "start"],
        ["hold", "go on"],
        [Mood.SLOW, Mood.HONEST],
        [Mood.INVALID, Mood.HONEST, "stop", "start"],
    ],
    ids=["killed", "hung", "slowed", "invalid"],
)
async def test_plugin_is_repaired_after_a_soak_that_ended_during_its_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mended: list[str]
) -> None:
    monkeypatch.setattr(faults_module, "_PLUGIN_REST_S", AT_ONCE_S)
    for name in ("_GONE_S", "_HELD_S", "_MOODY_S"):
        monkeypatch.setattr(faults_module, name, LONG_S)
    for seed in range(100):
        plugin = Noted(tmp_path)
        running = asyncio.create_task(misfortunes(plugin, seed=seed).run(host_until_s=0.0))
        await until(lambda plugin=plugin: bool(plugin.done))  # type: ignore[misc]
        is_in_it = plugin.done == mended[:1]
        await end(running)
        if is_in_it:
            assert plugin.done == mended
            return
    pytest.fail(f"no seed begins with {mended[0]}")


async def test_cluster_is_repaired_after_a_soak_that_ended_while_it_was_cut() -> None:
    done: list[str] = []

    async def begin() -> None:
        done.append("begin")

    async def mend() -> None:
        done.append("end")

    cut = Interruption(name=CUT, begin=begin, end=mend, lasts_s=LONG_S)
    faults = misfortunes(seed=1, cut=[cut])
    running = asyncio.create_task(faults.run(host_until_s=0.0))
    # The usual rest is 20 s and more: in a soak of 20 ms it is a part of these.
    await until(lambda: bool(done))
    await end(running)
    assert done == ["begin", "end"]
    assert faults.counts == {**dict.fromkeys(KINDS, 0), CUT: 1}
