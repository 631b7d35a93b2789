"""A member that counts as placed in its group is on a node."""

from __future__ import annotations

import pytest
from berth_bench.life.laws import LawBrokenError, Laws
from berth_bench.life.placed import unplaced_members
from berth_bench.life.trace import Trace
from berth_bench.versus.objects import node, pod, pod_group
from berth_host.cache.pod_groups import PodGroups
from berth_sdk.kube_object import ObjectRef
from support.hosts import World


async def test_member_that_left_must_not_count_as_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World(gates={"GenericWorkload": True}) as world:
        laws = Laws(world.server, world.clock, Trace(world.clock.monotonic_s), 10.0, {})
        laws.steady.host = lambda: world.host
        world.server.create(node("n1", "1"))
        world.server.create(pod_group("g", 1))
        world.server.create(pod("a", "900m", schedulingGroup={"podGroupName": "g"}))
        await world.settle()
        assert list(world.host.cache.groups.group_keys())
        assert unplaced_members(world.host) == []
        monkeypatch.setattr(PodGroups, "remove_assigned", lambda self, pod: None)
        laws.account.leaves("a")
        world.server.delete("pods", ObjectRef(name="a", namespace="default"))
        laws.check()
        await world.settle()
        assert unplaced_members(world.host) == ["default/a"]
        with pytest.raises(LawBrokenError, match="placed in their group and are on no node: default/a"):
            laws.check()
