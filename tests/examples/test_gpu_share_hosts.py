"""GpuShare under the whole host: in process and served alike, also when its process dies."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from berth_host.attach import retrying
from berth_sdk.cycle_state import CycleState
from berth_sdk.pod import Pod
from berth_sdk.results import PermitResult
from berth_sdk.status import SUCCESS, Status
from support.gpu_cluster import (
    SERVED,
    Manifest,
    configuration,
    gpu_node,
    gpu_pod,
    gpu_process,
    placements,
    violations,
)
from support.hosts import World, pod
from support.plugin_processes import PluginProcess
from support.waiting import until


@pytest.fixture(autouse=True)
def back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attachments are tried again within a tenth of a second."""
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)


class Hold:
    """Holds pods with the label `hold` at Permit, between Reserve and PreBind."""

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        return PermitResult.wait() if pod.labels.get("hold") else SUCCESS


def mixed(seed: int, count: int) -> list[Manifest]:
    """A small cluster that the pods nearly fill."""
    rng = random.Random(seed)
    nodes = [
        gpu_node(f"n{i}", gpus, cpu="16", model="T4" if i % 2 else "A10")
        for i, gpus in enumerate((2, 4, 8, 1, 2))
    ]
    pods = [
        gpu_pod(
            f"p{i:03}",
            rng.choice((1000, 1000, 810, 470, 320, 50)),
            rng.choice((1, 1, 1, 1, 2, 4)),
            model=rng.choice(("", "", "A10", "A10|T4")),
        )
        for i in range(count)
    ]
    plain = [pod(f"c{i}") for i in range(5)]
    return [*nodes, gpu_node("cpu", 0), *pods, *plain]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_in_process_and_served_plugins_place_alike_without_violation(tmp_path: Path, seed: int) -> None:
    objects = mixed(seed, 40)
    async with World(objects, configuration=configuration(inProcess=SERVED)) as world:
        here = placements(await world.settle())
    process = gpu_process(tmp_path / "p.sock")
    try:
        await process.start()
        async with World(objects, configuration=configuration(endpoint=process.endpoint)) as world:
            there = placements(await world.settle())
    finally:
        await process.kill()
    assert here == there
    assert violations(tmp_path, objects, here) == []
    assert 10 < sum(bool(node_name) for node_name, _ in here.values()) < len(here), "some fit, some do not"
    assert {here[f"c{i}"][0] for i in range(5)} == {"cpu"}, "pods without GPUs stay away from them"


@asynccontextmanager
async def served(folder: Path, objects: list[Manifest]) -> AsyncIterator[tuple[World, PluginProcess]]:
    """A host whose plugin is a real process."""
    process = gpu_process(folder / "p.sock")
    try:
        await process.start()
        text = configuration(permit="Hold", endpoint=process.endpoint)
        async with World(objects, [Hold], configuration=text) as world:
            yield world, process
    finally:
        await process.kill()


async def waiting_quietly(world: World, count: int) -> None:
    """Wait until this many pods wait at Permit and the host has nothing else to do."""
    await until(lambda: len(world.host.waiting_pods) == count and not world.host.binding.active_count)


async def restarted(world: World, process: PluginProcess) -> None:
    """Wait for a new process in place of the killed one."""
    before = world.host.attachments.recoveries
    await process.start()
    await until(lambda: world.host.attachments.recoveries > before)


def let_go(world: World) -> None:
    for held in world.host.waiting_pods.list("Hold"):
        world.host.waiting_pods.allow("Hold", held.pod.uid, held.cycle_id)


def reserved(world: World) -> dict[str, Any]:
    """Return the reservations that the host holds for the plugin, by pod."""
    return {
        attempt.pod.name: json.loads(attempt.state("GpuShare").token or b"null")
        for attempt in world.host.binding.attempts()
    }


@pytest.mark.slow
async def test_kill_9_between_reserve_and_pre_bind_loses_nothing_and_gives_no_gpu_twice(
    tmp_path: Path,
) -> None:
    held = [gpu_pod("h0", 600, labels={"hold": "y"}), gpu_pod("h1", 700, labels={"hold": "y"})]
    objects = [gpu_node("a", 2), *held]
    async with served(tmp_path, objects) as (world, process):
        await waiting_quietly(world, 2)
        tokens = reserved(world)
        assert {name: token["gpus"] for name, token in tokens.items()} in (
            {"h0": [0], "h1": [1]},
            {"h0": [1], "h1": [0]},
        )
        dead = process.pid
        await process.kill()
        # The host goes on: pods without a word from the plugin wait for it.
        late = [gpu_pod("l0", 600), gpu_pod("l1", 300), gpu_pod("l2", 400)]
        for item in late:
            world.server.create(item)
        await asyncio.sleep(0.05)
        await restarted(world, process)
        assert process.pid != dead
        await until(lambda: all(placements(world)[name][0] for name in ("l1", "l2")))
        # The API server shows a binding before the host has heard of its own success.
        await until(lambda: reserved(world).keys() == tokens.keys())
        assert reserved(world) == tokens, "the cycles went on with what they had"
        let_go(world)
        await world.settle()
        got = placements(world)
        assert {name: got[name] for name in tokens} == {
            name: ("a", ",".join(map(str, token["gpus"]))) for name, token in tokens.items()
        }
        assert got["l0"] == ("", "")
        # Who says so depends on whether l1 and l2 were there when it was asked about last.
        words = ("no GPU has 600 of 1000 free", "1 Insufficient gpu-share.berth.io/gpu-milli")
        assert any(text in world.message_of("l0") for text in words)
        assert violations(tmp_path, [*objects, *late], got) == []


@pytest.mark.long
@pytest.mark.slow
async def test_pod_is_bound_without_the_plugins_process_when_reserve_gave_the_answer(tmp_path: Path) -> None:
    held = [gpu_pod(f"h{i}", 600, labels={"hold": "y"}) for i in range(2)]
    objects = [gpu_node("a", 2), *held]
    async with served(tmp_path, objects) as (world, process):
        await waiting_quietly(world, 2)
        await process.kill()
        await until(lambda: not world.host.attachments.attached_places.plugins["GpuShare"].is_attached)
        let_go(world)
        await until(lambda: not len(world.host.binding))
        assert sorted(placements(world).values()) == [("a", "0"), ("a", "1")]
        late = [gpu_pod("l0", 600), gpu_pod("l1", 400), gpu_pod("l2", 400)]
        for item in late:
            world.server.create(item)
        await restarted(world, process)
        await world.settle()
        got = placements(world)
        assert got["l0"] == ("", "")
        assert sorted(got[name] for name in ("l1", "l2")) == [("a", "0"), ("a", "1")]
        assert violations(tmp_path, [*objects, *late], got) == []


@pytest.mark.long
@pytest.mark.slow
async def test_kills_during_a_stream_of_pods_give_no_gpu_twice(tmp_path: Path) -> None:
    objects = mixed(3, 0)
    rng = random.Random(7)
    pods = [
        gpu_pod(f"p{i:03}", rng.choice((1000, 810, 470, 320, 50)), labels={"hold": "y"} if i % 3 == 0 else {})
        for i in range(60)
    ]
    async with served(tmp_path, objects) as (world, process):
        for i, item in enumerate(pods):
            world.server.create(item)
            await asyncio.sleep(0.002)
            if i % 20 == 19:
                await process.kill()
                let_go(world)
                await restarted(world, process)
        for _ in range(5):
            await world.settle()
            let_go(world)
        await world.settle()
        assert world.everything_is_accounted_for()
        got = placements(world)
        assert sum(bool(node_name) for node_name, _ in got.values()) > 25
        assert violations(tmp_path, [*objects, *pods], got) == []
