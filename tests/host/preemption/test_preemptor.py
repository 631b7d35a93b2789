"""Evictions for a group: what is written, to whom, and in which order."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from berth_host.preemption.preemptor import CLUSTER, Preemptor
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from support.hosts import World, node, pod

GROUP = PodGroup(name="hi", uid="uid-of-hi", priority=10)
KEPT = "tests.example/kept"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    low = [pod(f"low-{i}", cpu="1", nodeName=f"n{i}") for i in range(3)]
    for one in low:
        one["metadata"]["finalizers"] = [KEPT]
    high = [pod(f"hi-{i}", cpu="1", priority=10, preemptionPolicy="Never") for i in range(2)]
    async with World([*(node(f"n{i}", cpu="1") for i in range(3)), *low, *high]) as world:
        yield await world.settle()


def of(world: World, name: str) -> Pod:
    found = world.pod(name)
    assert found is not None
    return Pod.from_object(found)


def group_of(world: World) -> Preemptor:
    members = [of(world, "hi-0"), of(world, "hi-1")]
    return Preemptor.of_group(GROUP, members, {members[0].uid: "n0", members[1].uid: "n1"})


async def test_a_group_evicts_pods_of_several_nodes(world: World) -> None:
    preemptor = group_of(world)
    victims = [of(world, name) for name in ("low-0", "low-1")]
    world.host.evictions.evict(preemptor, "DefaultPreemption", [victim.ref for victim in victims])
    assert GROUP.uid in world.host.preempting
    await world.settle()
    for name in ("low-0", "low-1"):
        victim = world.pod(name)
        assert victim is not None
        assert victim.get("metadata.deletionTimestamp")
        (mark,) = victim.get("status.conditions")
        assert mark["message"] == "default-scheduler: preempting to accommodate a higher priority podgroup"
    assert not of(world, "low-2").terminating
    assert [of(world, f"hi-{i}").nominated_node for i in range(2)] == ["n0", "n1"]
    told = [event for event in world.server.events.recent if event.reason == "Preempted"]
    assert {event.note for event in told} == {f"Preempted by podgroup {GROUP.uid} on node {CLUSTER}"}
    assert {(event.regarding.name, event.related_kind, event.related) for event in told} == {
        (victim.name, "PodGroup", GROUP.ref) for victim in victims
    }
    # All victims are leaving: the group may be tried again.
    assert GROUP.uid not in world.host.preempting


async def test_no_victim_leaves_for_a_group_without_waiting_members(world: World) -> None:
    preemptor = group_of(world)
    world.host.evictions.evict(preemptor, "DefaultPreemption", [of(world, "low-0").ref])
    for i in range(2):
        world.server.delete("pods", ObjectRef(namespace="default", name=f"hi-{i}"))
    await world.settle()
    assert not of(world, "low-0").terminating
    assert GROUP.uid not in world.host.preempting


def test_texts_name_the_kind_of_the_preemptor() -> None:
    boss = Pod(name="boss", uid="u", scheduler_name="other", priority=3)
    one = Preemptor.of_pod(boss, "n1")
    assert (one.type, one.kind, one.place, one.nodes) == ("pod", "Pod", "n1", {"u": "n1"})
    tree = PodGroup(kind="CompositePodGroup", name="tree", uid="t", priority=7)
    many = Preemptor.of_group(tree, [boss], {})
    assert (many.type, many.kind, many.place) == ("compositepodgroup", "CompositePodGroup", "cluster")
    assert (many.uid, many.priority, many.scheduler_name) == ("t", 7, "other")
