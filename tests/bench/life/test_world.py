"""The world of a life, without a host."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from berth_bench.life import hosts
from berth_bench.life.hosts import Act
from berth_bench.life.trace import Trace
from berth_bench.life.virtual_loop import VirtualClocks, run
from berth_bench.life.weights import Weights
from berth_bench.life.world import KINDS, ZONE, ZONES, World
from berth_sim.cluster.server import ApiServer

HELL = next(weights for seed in range(99) if (weights := Weights.drawn(random.Random(seed))).mood == "hell")


class Alone:
    """A world whose pods nobody schedules."""

    def __init__(self, clocks: VirtualClocks, without: tuple[str, ...] = ()) -> None:
        self.server = ApiServer(clocks)
        self.hosts_acts: list[float] = []
        self.world = World(self.server, HELL, random.Random(5), Trace(clocks.monotonic_s), without)
        self.world.begin()

    async def _act(self, chance: random.Random) -> None:
        self.hosts_acts.append(chance.random())

    async def live(self, seconds: float) -> None:
        of_hosts = [Act(kind, 300.0, self._act) for kind in hosts.KINDS]
        acting = asyncio.create_task(self.world.run(of_hosts))
        await asyncio.wait({acting}, timeout=seconds)
        assert not acting.done()
        acting.cancel()
        await asyncio.gather(acting, return_exceptions=True)


def test_every_kind_of_act_happens_and_one_that_is_left_out_does_not() -> None:
    async def main(clocks: VirtualClocks) -> tuple[Any, Any, list[float]]:
        full, less = Alone(clocks), Alone(clocks, without=("taint", "restart"))
        await full.live(3600)
        await less.live(3600)
        return full.world.acts, less.world.acts, full.hosts_acts

    acts, fewer, drawn = run(main, random.Random(0))
    assert set(acts) == set(KINDS)
    assert set(fewer) == set(KINDS) - {"taint", "restart"}
    assert fewer["node"] == acts["node"]
    assert len(drawn) == len(set(drawn)) == sum(acts[kind] for kind in hosts.KINDS)


def test_calm_world_has_whole_gangs_room_in_each_zone_and_no_pod_on_a_node_that_is_gone() -> None:
    async def main(clocks: VirtualClocks) -> ApiServer:
        alone = Alone(clocks)
        await alone.live(2000)
        pods = alone.server.list("pods")
        assert pods
        alone.server.bind(pods[0].ref, "never-was")
        deleted: list[str] = []
        alone.world.leaves = deleted.append
        alone.world.repair()
        alone.world.make_room()
        assert pods[0].ref.name in deleted
        for name, gang in alone.world.gangs.items():
            there = [
                pod.ref.name
                for pod in alone.server.list("pods")
                if pod.get("spec.schedulingGroup.podGroupName") == name
            ]
            group = [one for one in alone.server.list("scheduling.k8s.io/podgroups") if one.ref.name == name]
            whole = (0, 0) if gang.is_leaving else (len(gang.members), 1)
            if pods[0].ref.name not in gang.members:
                assert (len(there), len(group)) == whole
        return alone.server

    server = run(main, random.Random(0))
    zones = {one.get("metadata.labels")[ZONE] for one in server.list("nodes") if "spare" in one.ref.name}
    assert zones == set(ZONES)


def test_everything_can_be_deleted() -> None:
    async def main(clocks: VirtualClocks) -> ApiServer:
        alone = Alone(clocks)
        await alone.live(2000)
        alone.world.delete_everything()
        return alone.server

    server = run(main, random.Random(0))
    for resource in ("pods", "nodes", "scheduling.k8s.io/podgroups", "policy/poddisruptionbudgets"):
        assert server.list(resource) == []
