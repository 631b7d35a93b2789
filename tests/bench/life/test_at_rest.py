"""Nobody waits for room that is there, totals are true, and an empty cluster leaves nothing in the tables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from berth_bench.life import at_rest
from berth_bench.life.laws import LawBrokenError
from berth_bench.life.plugins import Ledger
from berth_bench.life.steady import STEADY_S, Steady
from berth_bench.versus.objects import node, pod
from berth_host.queue.moves import Moves
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from support.hosts import World


def named(name: str) -> ObjectRef:
    return ObjectRef(name=name, namespace="default")


@asynccontextmanager
async def full_node(waiting: dict[str, Any]) -> AsyncIterator[World]:
    """A node of one CPU that pod a fills, and pod b, which waits."""
    async with World([node("n1", "1"), pod("a", "900m", priority=10)]) as world:
        await world.settle()
        world.server.create(waiting)
        await world.settle()
        yield world


async def test_pod_that_is_too_large_for_every_node_may_wait() -> None:
    async with full_node(pod("b", "500m")) as world:
        at_rest.check_nobody_waits_for_room_that_is_there(world.host, world.server)


@pytest.mark.parametrize("is_limited", [False, True])
async def test_pod_that_no_event_moved_is_found(is_limited: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"nodeSelector": {"kubernetes.io/hostname": "n2"}} if is_limited else {}
    async with full_node(pod("b", "500m", **more)) as world:
        monkeypatch.setattr(Moves, "by_event", lambda self, event, pre_check=None: None)
        world.server.delete("pods", named("a"))
        await world.settle()
        if is_limited:
            at_rest.check_nobody_waits_for_room_that_is_there(world.host, world.server)
            return
        with pytest.raises(LawBrokenError, match=r"there is room: default/b \(500m, n1 has 1000m\)"):
            at_rest.check_nobody_waits_for_room_that_is_there(world.host, world.server)
        world.server.patch("nodes", ObjectRef(name="n1"), {"spec": {"unschedulable": True}})
        at_rest.check_nobody_waits_for_room_that_is_there(world.host, world.server)


@pytest.mark.parametrize("steady_s", [STEADY_S, STEADY_S / 2])
async def test_pod_that_waits_for_room_that_was_there_for_a_while_is_found(
    steady_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    steady = Steady(lambda: now_s[0])
    async with World([node("n1", "1")]) as world:
        world.server.store.subscribe(steady.see)
        steady.host = lambda: world.host
        world.server.create(pod("a", "900m", priority=10))
        await world.settle()
        world.server.create(pod("b", "500m"))
        world.server.create(pod("tied", "500m", nodeSelector={"kubernetes.io/hostname": "n2"}))
        await world.settle()
        monkeypatch.setattr(Moves, "by_event", lambda self, event, pre_check=None: None)
        now_s[0] = 100.0
        world.server.delete("pods", named("a"))
        await world.settle()
        now_s[0] += steady_s
        at_rest.check_nobody_waits_for_steady_room(world.host, steady, {"n1": 400})
        if steady_s < STEADY_S:
            at_rest.check_nobody_waits_for_steady_room(world.host, steady, {"n1": 1000})
            return
        with pytest.raises(LawBrokenError, match=r"there is room: default/b \(500m, n1 has 1000m\)$"):
            at_rest.check_nobody_waits_for_steady_room(world.host, steady, {"n1": 1000})


async def test_node_on_which_the_host_holds_room_is_not_steady() -> None:
    steady = Steady(lambda: 100.0)
    async with World([node("n1", "1"), node("n2", "1")]) as world:
        steady.host = lambda: world.host
        await world.settle()
        made = world.server.create(pod("a", "100m"))
        world.host.cache.assume(Pod.from_object(made).on_node("n1"))
        steady.look()
        assert not steady.is_steady("n1")
        assert steady.is_steady("n2")


async def test_unschedulable_pod_needs_a_condition() -> None:
    async with full_node(pod("b", "500m")) as world:
        at_rest.check_conditions(world.host, world.server)
        world.server.patch("pods", named("b"), {"status": {"conditions": None}}, subresource="status")
        with pytest.raises(LawBrokenError, match="without a condition that says so: default/b"):
            at_rest.check_conditions(world.host, world.server)


async def test_totals_are_those_of_the_pods() -> None:
    async with full_node(pod("b", "500m")) as world:
        at_rest.check_totals(world.host)
        info = world.host.cache.node_info("n1")
        assert info is not None
        info.requested["cpu"] += 1
        with pytest.raises(LawBrokenError, match=r"counts other requests than those of the pods: n1 .*901"):
            at_rest.check_totals(world.host)


async def test_empty_cluster_leaves_nothing() -> None:
    async with full_node(pod("b", "500m")) as world:
        ledger = Ledger()
        with pytest.raises(LawBrokenError, match=r"pods in the queue: .*default/b"):
            at_rest.check_emptied(world.host, ledger)
        for name in "ab":
            world.server.delete("pods", named(name))
        await world.settle()
        with pytest.raises(LawBrokenError, match=r"there are left: nodes in the cache: \['n1'\]$"):
            at_rest.check_emptied(world.host, ledger)
        world.server.delete("nodes", ObjectRef(name="n1"))
        await world.settle()
        at_rest.check_emptied(world.host, ledger)
        ledger.permitted.add("u")
        with pytest.raises(LawBrokenError, match="pods that the keeper holds"):
            at_rest.check_emptied(world.host, ledger)
