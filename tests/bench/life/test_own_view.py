"""The laws about a host's own view: no pod waits for room that the host knows of, or is queued and bound."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from berth_bench.life.own_view import OwnView
from berth_bench.versus.objects import node, pod
from berth_host.cluster.handlers import EventHandlers
from berth_host.queue.moves import Moves
from berth_host.queue.plugin_calls import Turn
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from support.hosts import World
from support.waiting import PATIENCE_S

ZONE = "topology.kubernetes.io/zone"


def named(name: str) -> ObjectRef:
    return ObjectRef(name=name, namespace="default")


def no_event_moves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Moves, "by_event", lambda self, event, pre_check=None: None)


@pytest.mark.parametrize(
    ("limits", "is_found"),
    [
        pytest.param({}, True, id="runs everywhere"),
        pytest.param({"nodeSelector": {ZONE: "a"}}, True, id="a selector matches"),
        pytest.param({"nodeSelector": {ZONE: "b"}}, False, id="no selector matches"),
        pytest.param({"volumes": [{"name": "v", "hostPath": {"path": "/v"}}]}, False, id="other limits"),
    ],
)
async def test_pod_that_no_event_moved_is_found(
    limits: dict[str, Any], is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = OwnView()
    async with World([node("n1", "1", **{ZONE: "a"}), pod("a", "900m", priority=10)]) as world:
        await world.settle()
        world.server.create(pod("b", "500m", **limits))
        await world.settle()
        assert view.broken(world.host) == ""
        no_event_moves(monkeypatch)
        world.server.delete("pods", named("a"))
        await world.settle()
        found = "pods are unschedulable although the host knows of room: default/b (500m, n1 has 1000m)"
        assert view.broken(world.host) == (found if is_found else "")


async def test_pod_may_wait_for_a_hint_that_a_later_turn_of_the_loop_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = OwnView()
    async with World([node("n1", "1"), pod("a", "900m", priority=10)]) as world:
        await world.settle()
        world.server.create(pod("b", "500m"))
        await world.settle()
        assert view.broken(world.host) == ""
        monkeypatch.setattr(Turn, "is_over", lambda self: True)
        world.server.delete("pods", named("a"))
        async with asyncio.timeout(PATIENCE_S):
            while not world.host.wiring.busy:
                await asyncio.sleep(0)
        assert view.broken(world.host) == ""
        with monkeypatch.context() as patch:
            patch.setattr(world.host.wiring, "busy", set())
            assert "default/b" in view.broken(world.host)
        await world.settle()
        assert view.broken(world.host) == ""
        assert world.node_of("b") == "n1"


async def test_room_of_a_nomination_may_be_free_before_an_event_tells_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = OwnView()
    async with World([node("n1", "1"), pod("a", "900m", priority=10)]) as world:
        await world.settle()
        world.server.create(pod("b", "500m"))
        await world.settle()
        rival = Pod(name="rival", uid="rival", nominated_node="n1")
        monkeypatch.setattr(world.host.objects, "pod", lambda key: rival)
        world.host.queue.nominate(rival, "n1")
        assert view.broken(world.host) == ""
        no_event_moves(monkeypatch)
        world.host.queue.delete_nomination(rival)
        world.server.delete("pods", named("a"))
        await world.settle()
        assert view.broken(world.host) == ""


async def test_nomination_of_the_look_before_the_attempt_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    view = OwnView()
    async with World([node("n1", "1"), pod("a", "900m", priority=10)]) as world:
        await world.settle()
        rival = Pod(name="rival", uid="rival", nominated_node="n1")
        with monkeypatch.context() as patch:
            patch.setattr(world.host.objects, "pod", lambda key: rival)
            world.host.queue.nominate(rival, "n1")
        assert view.broken(world.host) == ""
        world.server.create(pod("b", "500m"))
        await world.settle()
        world.host.queue.delete_nomination(rival)
        no_event_moves(monkeypatch)
        world.server.delete("pods", named("a"))
        await world.settle()
        assert view.broken(world.host) == ""


async def test_pod_that_is_bound_and_stays_queued_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    view = OwnView()
    async with World([node("n1", "1")]) as world:
        world.server.create(pod("b", "2"))
        await world.settle()
        assert view.broken(world.host) == ""
        monkeypatch.setattr(EventHandlers, "_pod_updated", lambda self, old, new: self._assigned(new))
        world.server.bind(named("b"), "n1")
        await world.settle()
        assert view.broken(world.host) == "pods are queued although the host knows their nodes: default/b"
