"""`grown`: the law that nothing grows with virtual days: an empty world leaves a host as large as before.

A host lives through several days on one virtual loop. Each day a world acts for a while, is emptied, and then
nothing happens. At the end of each day the host's objects are counted, with the entries of their containers.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from berth_host.app import Host, HostOptions
from berth_host.cycle.chooser import SeededChooser
from berth_sdk import chance as process_chance
from berth_sim.cluster.admission.gatekeeping import Gatekeeping
from berth_sim.cluster.cluster import MemoryCluster
from berth_sim.cluster.server import ApiServer

from berth_bench.life.configurations import configuration
from berth_bench.life.plugins import KEEPER, keeper
from berth_bench.life.stage import Stage
from berth_bench.life.trace import Trace
from berth_bench.life.virtual_loop import VirtualClocks, VirtualLoop, run
from berth_bench.life.weights import Weights
from berth_bench.life.world import World

DAY_S: Final = 86400.0
_SETTLES_S: Final = 600.0
_COUNTED: Final = ("berth_host.", "berth_plugins.", "berth_sdk.")
"""The modules of the classes whose objects are counted."""
_CONTAINERS: Final = (Mapping, Set, list, deque)
_OF_LOOP: Final = ("tasks", "timers")
KEPT_AT_MOST: Final[Mapping[str, int]] = {
    "Area._by_slot": 32,
    "Areas.statuses": 32,
    "BySignature._values": 4096,
    "Diagnoses._by_uid": 4096,
    "Diagnoses._earlier": 4096,
    "Evictions.preempted_by": 16384,
    "GenerationLog._entries": 4096,
    "LimitedPodTable._records": 1024,
    "NodeGroups._changes": 4096,
    "ObjectWrites._answers": 256,
    "Outcomes.pods": 4096,
    "PodStatusWriter._conditions": 1024,
    "PodStatusWriter._nominated": 1024,
    "RecentLog._entries": 8192,
    "Records._known": 64,
    "SlotLog._entries": 8192,
    "_Kinds._numbers": 2048,
}
"""The containers that are filled up to a limit, as class and field: the most entries of one object. They may
grow until then.
"""


def grown(days: int, acts_s: float, seed: int = 0) -> list[str]:
    """Return what has grown on every one of the last `days` days, with its sizes. Empty: the law holds.

    `acts_s`: virtual seconds of each day in which the world acts. The acts of all days are the same. A class
    whose objects grow in number is held by a container of another class, and that container is reported.
    """
    chance = random.Random(seed)

    async def main(clocks: VirtualClocks) -> list[Counter[str]]:
        return [size async for size in _days(clocks, random.Random(chance.random()), 2 + days, acts_s)]

    with process_chance.replaced(random.Random(chance.random())):
        # The first day fills what is kept for ever, and the second what the first one could not.
        sizes = run(main, random.Random(chance.random()))[1:]

    def grows(what: str) -> bool:
        return all(before[what] < after[what] for before, after in pairwise(sizes))

    found = []
    for what in sorted(sizes[-1]):
        owner, _, field = what.partition(".")
        count = sizes[-1][owner]
        is_kept = sizes[-1][what] <= count * KEPT_AT_MOST.get(what, 0)
        if grows(what) and not is_kept and (not field or not grows(owner)) and (field or what in _OF_LOOP):
            found.append(f"{what}: {', '.join(str(one[what]) for one in sizes)}")
    return found


async def _days(
    clocks: VirtualClocks, chance: random.Random, days: int, acts_s: float
) -> AsyncIterator[Counter[str]]:
    """Yield the sizes at the end of each day."""
    weights = next(one for _ in range(999) if (one := Weights.drawn(chance)).is_calm)
    weights = replace(weights, served=None, claim_share=0.2, volume_share=0.2, pods_gap_s=10.0)
    server, trace = ApiServer(clocks, Gatekeeping()), Trace(clocks.monotonic_s, keeps=False)
    day_seed = chance.random()
    stage = Stage(server=server, weights=weights, trace=trace, clocks=clocks)
    world = World(stage, random.Random(day_seed))
    world.begin()
    keeper_class, _ = keeper(chance, 0.0)
    plugins = {KEEPER: keeper_class}
    options = HostOptions(clock=clocks, chooser=SeededChooser("growth"), plugins=plugins, way_back=False)
    host = Host(configuration(plugins, has_guard=False), MemoryCluster(clocks, server), options)
    await host.start()
    for day in range(1, days + 1):
        acting = asyncio.create_task(world.run(()))
        await asyncio.sleep(acts_s)
        acting.cancel()
        await asyncio.wait({acting})
        world.repair()
        world.delete_everything()
        await asyncio.sleep(_SETTLES_S)
        world.collect_once()
        await asyncio.sleep(day * DAY_S - clocks.monotonic_s())
        host.check()
        yield sizes_now(clocks.loop)
        world.begin_again(random.Random(day_seed))
    await host.stop()
    world.end()


def sizes_now(loop: VirtualLoop) -> Counter[str]:
    """Return how many objects of the host there are, by class, and how many entries their containers have, by
    class and field; also the tasks and timers of the loop.
    """
    gc.collect()
    found = Counter({"tasks": len(asyncio.all_tasks(loop)), "timers": len(loop.timers())})
    for item in gc.get_objects():
        cls = type(item)
        if not str(cls.__module__).startswith(_COUNTED):
            continue
        found[cls.__qualname__] += 1
        for name, value in _fields(item, cls):
            found[f"{cls.__qualname__}.{name}"] += len(value)
    return found


def _fields(item: object, cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the fields of an object that are containers."""
    names: Sequence[str] = list(getattr(item, "__dict__", ()))
    names = [*names, *(name for base in cls.__mro__ for name in getattr(base, "__slots__", ()))]
    for name in names:
        mangled = f"_{cls.__name__}{name}" if name.startswith("__") else name
        value = getattr(item, mangled, None)
        if isinstance(value, _CONTAINERS):
            yield name, value
