"""The world of a life, without a host."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from berth_bench.life import hosts
from berth_bench.life.guard import PLUGIN
from berth_bench.life.hosts import Act
from berth_bench.life.stage import Stage
from berth_bench.life.trace import Trace
from berth_bench.life.virtual_loop import VirtualClocks, run
from berth_bench.life.weights import Weights
from berth_bench.life.world import KINDS, ZONE, ZONES, World
from berth_host.cluster.port import WatchEvent
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sim.cluster.admission.gatekeeping import Gatekeeping
from berth_sim.cluster.server import ApiServer

HELL = next(
    weights
    for seed in range(999)
    if (weights := Weights.drawn(random.Random(seed))).mood == "hell"
    and weights.most_devices * weights.claim_share * weights.volume_share * weights.topology_share
)
EVERYTHING = {
    "Pod": "pods",
    "Node": "nodes",
    "PodGroup": "scheduling.k8s.io/podgroups",
    "PodDisruptionBudget": "policy/poddisruptionbudgets",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PersistentVolume": "persistentvolumes",
    "ResourceClaim": "resource.k8s.io/resourceclaims",
    "ResourceSlice": "resource.k8s.io/resourceslices",
}


class _Lowest(random.Random):
    """Draws the lowest number each time."""

    def random(self) -> float:
        return 0.0


SHARES = _Lowest()
"""With it, the pods of a burst share a claim."""


class Alone:
    """A world whose pods nobody schedules."""

    def __init__(self, clocks: VirtualClocks, without: tuple[str, ...] = ()) -> None:
        self.server = ApiServer(clocks, Gatekeeping())
        self.hosts_acts: list[float] = []
        self.trace = Trace(clocks.monotonic_s)
        self.created: list[tuple[str, KubeObject]] = []
        self.server.store.subscribe(self._see)
        stage = Stage(server=self.server, weights=HELL, trace=self.trace, clocks=clocks)
        self.world = World(stage, random.Random(5), without)
        self.world.begin()

    def _see(self, event: WatchEvent) -> None:
        if event.old is None and event.new is not None:
            self.created.append((event.kind, event.new))

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
    assert set(acts) == set(KINDS) - {PLUGIN}
    assert set(fewer) == set(KINDS) - {"taint", "restart", PLUGIN}
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
        assert EVERYTHING.keys() <= {kind for kind, _ in alone.created}
        alone.world.delete_everything()
        await asyncio.sleep(1)
        alone.world.end()
        assert alone.world.gangs == {}
        return alone.server

    server = run(main, random.Random(0))
    for resource in EVERYTHING.values():
        assert server.list(resource) == [], resource


def test_pods_over_the_quota_are_refused_and_the_world_goes_on() -> None:
    async def main(clocks: VirtualClocks) -> list[str]:
        alone = Alone(clocks)
        await alone.live(4000)
        alone.world.repair()
        quota = ObjectRef(name="life", namespace="default")
        assert alone.server.get("resourcequotas", quota) is None
        return [line for line in alone.trace.lines if " refused " in line]

    assert run(main, random.Random(0))


def test_some_gangs_must_be_in_one_zone() -> None:
    async def main(clocks: VirtualClocks) -> list[Any]:
        alone = Alone(clocks)
        await alone.live(4000)
        return [one.get("spec.schedulingConstraints") for kind, one in alone.created if kind == "PodGroup"]

    constraints = run(main, random.Random(0))
    assert {"topology": [{"key": ZONE}]} in constraints
    assert None in constraints


def test_nodes_to_which_a_shared_claim_ties_pods_get_room() -> None:
    async def main(clocks: VirtualClocks) -> tuple[Any, Any]:
        alone = Alone(clocks)
        name = alone.world.devices.claims_for(SHARES, ["p"])["p"]["resourceClaims"][0]["resourceClaimName"]
        node = alone.server.list("nodes")[0].ref
        alone.server.patch("nodes", node, {"spec": {"unschedulable": True}})
        results = [{"request": "r", "driver": "life.berth.io", "pool": node.name, "device": "d0"}]
        status = {"status": {"allocation": {"devices": {"results": results}}}}
        claim = ObjectRef(name=name, namespace="default")
        alone.server.patch("resource.k8s.io/resourceclaims", claim, status, subresource="status")
        alone.world.make_room()
        found = alone.server.get("nodes", ObjectRef(name=node.name))
        assert found is not None
        return found.get("spec.unschedulable"), found.get("status.allocatable.cpu")

    assert run(main, random.Random(0)) == (None, "64")
