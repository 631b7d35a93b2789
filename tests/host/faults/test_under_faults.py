"""The whole host where the cluster is late, out of order and unreliable.

First the scenarios of other suites, as they are, on a cluster that is slow and mixes kinds and answers:
nothing may come out differently. Then random load on one where calls fail, time out before or after they
took effect, and the API server goes away: whatever happens, nothing is lost, doubled or leaked.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from berth_bench.life.faulty_cluster import Faults
from berth_sdk.kube_object import KubeObject
from support.hosts import World, node, pod

ROOMS = Path(__file__).parents[1]
SUITES = (
    ROOMS / "app" / "test_host.py",
    ROOMS / "handle" / "test_object_changes.py",
    ROOMS / "plugins" / "test_device_allocation.py",
    ROOMS / "app" / "test_reload.py",
    ROOMS / "app" / "test_life.py",
)
"""Of these, every test that takes no argument."""
LATE = Faults(turns=4)


def loaded(path: Path) -> ModuleType:
    """Return a copy, as the tests store calls in their classes."""
    spec = importlib.util.spec_from_file_location(f"under_faults_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scenarios() -> list[tuple[Path, str]]:
    found = []
    for path in SUITES:
        for name, item in vars(loaded(path)).items():
            if name.startswith("test_") and inspect.iscoroutinefunction(item):
                marked = [mark for mark in getattr(item, "pytestmark", ()) if mark.name == "parametrize"]
                if not marked and not inspect.signature(item).parameters:
                    found.append((path, name))
    return found


@pytest.fixture
def late_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    World.everywhere = (request.param, LATE)
    yield
    World.everywhere = None


@pytest.mark.sampled(every=8)
@pytest.mark.slow
@pytest.mark.parametrize("late_cluster", [1, 2], indirect=True)
@pytest.mark.parametrize(
    ("path", "name"),
    [pytest.param(path, name, id=f"{path.stem[5:]}-{name[5:]}") for path, name in scenarios()],
)
async def test_scenario_ends_the_same_on_a_slow_cluster_that_mixes_its_answers(
    path: Path, name: str, late_cluster: None
) -> None:
    await getattr(loaded(path), name)()


def test_every_suite_has_scenarios() -> None:
    assert {path for path, _ in scenarios()} == set(SUITES)
    assert len(scenarios()) > 30


# --- hard faults ---------------------------------------------------------------------------------------

NODES = 4
ROOM = 3


class Storm:
    """A seeded run: users come and go, calls fail, the API server is away at times."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(
            [node(f"n{i}", cpu=str(ROOM)) for i in range(NODES)],
            faults=Faults(turns=3, delay_s=2.0, share=0.25),
            seed=seed,
        )
        assert self.world.faulty is not None
        self.faulty = self.world.faulty
        self.bound: Counter[str] = Counter()
        self.most_on_a_node = 0
        self.world.server.store.subscribe(self._seen)
        self.count = 0

    def _seen(self, event: object) -> None:
        """At every change: which pods are bound, and whether a node has more than it holds."""
        on: Counter[str] = Counter()
        for item in self.world.server.list("pods"):
            name = item.get("spec.nodeName")
            if name and item.get("metadata.labels", {}).get("by") != "other":
                on[str(name)] += 1
        self.most_on_a_node = max([self.most_on_a_node, *on.values()])
        old, new = getattr(event, "old", None), getattr(event, "new", None)
        if not isinstance(old, KubeObject) or not isinstance(new, KubeObject) or new.kind != "Pod":
            return
        if not old.get("spec.nodeName") and new.get("spec.nodeName"):
            self.bound[new.ref.uid] += 1

    async def run(self, steps: int) -> None:
        async with self.world:
            pump = asyncio.ensure_future(self.faulty.pump(self.world.clock))
            try:
                for _ in range(steps):
                    self._step()
                    for _ in range(self.random.randint(0, 40)):
                        await asyncio.sleep(0)
                    self.check()
                await self._calm()
                self.check()
            finally:
                pump.cancel()

    def _step(self) -> None:
        server, roll = self.world.server, self.random.random()
        pods = server.list("pods")
        if roll < 0.55:
            self.count += 1
            server.create(pod(f"p{self.count}", cpu="1", priority=self.random.randint(0, 2)))
        elif roll < 0.7 and pods:
            server.delete("pods", self.random.choice(pods).ref)
        elif roll < 0.8 and pods:
            ref = self.random.choice(pods).ref
            server.patch("pods", ref, {"metadata": {"annotations": {"x": str(self.random.random())}}})
        elif roll < 0.9:
            self.faulty.die()
        else:
            self.faulty.revive()
            self.world.clock.advance(self.random.uniform(0, 30))

    async def _calm(self) -> None:
        """Everything works again; the host has all the time that it wants."""
        self.faulty.behave()
        for _ in range(40):
            await self.world.settle()
            self.world.clock.advance(30)
        await self.world.settle()

    def check(self) -> None:
        host = self.world.host
        host.check()
        in_cycle = host.scheduler.in_cycle
        working = {attempt.pod.uid for attempt in host.binding.attempts()}
        if in_cycle is not None:
            working.add(in_cycle.pod.uid)
        unseen = {
            uid
            for uid in host.cache.assumed_uids
            if (p := host.objects.pod_by_uid(uid)) and self._is_bound(p.key)
        }
        leaked = set(host.cache.assumed_uids) - working - unseen
        assert not leaked, f"assumed without a binding cycle: {leaked}"
        assert max(self.bound.values(), default=0) <= 1
        assert self.most_on_a_node <= ROOM

    def _is_bound(self, key: str) -> bool:
        """Return True if the server has a node for the pod. The watch may be behind the server."""
        return bool(self.world.node_of(key.split("/")[1]))


@pytest.mark.sampled(every=6)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
async def test_nothing_is_lost_doubled_or_leaked_under_faults_of_the_cluster(seed: int) -> None:
    storm = Storm(seed)
    await storm.run(60)
    world = storm.world
    pending = [item.ref.name for item in world.server.list("pods") if not item.get("spec.nodeName")]
    free = NODES * ROOM - sum(1 for item in world.server.list("pods") if item.get("spec.nodeName"))
    assert not pending or free == 0, f"{pending} wait although there is room for {free}"
