"""A shadow of a scheduler of pod groups: gangs, gangs that hold room, preemption of a group; no write."""

from __future__ import annotations

from berth_host.shadow.record import ShadowOutcome
from support.beside import Beside, stored
from support.groups import gang, grouped, members, nodes_of, pod_group
from support.hosts import node, pod


async def test_gang_is_decided_as_the_real_scheduler_places_it() -> None:
    world = grouped([node("a"), node("b"), pod_group("fits", least=3), pod_group("large", least=4)])
    async with world, Beside(world) as shadow:
        for item in (*members("fits", 3), *members("large", 4, cpu="3")):
            world.server.create(item)
        await shadow.counted(ShadowOutcome.SAME, 3)
        assert len(nodes_of(world, "fits")) == 3
        await shadow.counted(ShadowOutcome.UNSCHEDULABLE, 4)
        assert shadow.differences() == []
        assert shadow.port.writes == []


async def test_gang_without_room_is_left_as_it_is() -> None:
    low = [pod(f"low-{i}", cpu="2", priority=0, nodeName="a") for i in range(2)]
    world = grouped([node("a"), gang("holding", 6), pod_group("strong", least=2, priority=10), *low])
    async with Beside(world) as shadow:
        for item in (*members("holding", 6), *members("strong", 2, cpu="2", priority=10)):
            world.server.create(item)
        before = stored(world)
        await shadow.until(lambda: len(shadow.record.open) == 8)
        await shadow.settle()
        assert stored(world) == before
        assert shadow.port.writes == []
        assert not shadow.host.cache.assumed_count
        strong = [one for one in shadow.record.open.values() if one.pod.name.startswith("strong")]
        assert {one.victims for one in strong} == {("default/low-0", "default/low-1")}
