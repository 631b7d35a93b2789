"""Two gangs that each need more than half of the cluster, in any order of arrival: one starts whole, the
other one when the first has ended, for pod groups and for those of coscheduling. With room held for them,
both start although single pods come all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import COSCHEDULING_LABEL
from hypothesis import given, settings
from hypothesis import strategies as st
from support.coscheduling import COSCHEDULING_PROFILE, served_coscheduling, their_group
from support.decision_configuration import served_at
from support.groups import GROUPS, HOLDS, full, gang, member, members, nodes_of, pod_group, world_of
from support.hosts import World, node, pod
from support.served import default_plugin_server
from support.tiers import examples

LEAST = 4
GANGS = ("a", "b")
OBJECTS = [*((gang, i) for gang in GANGS for i in range(-1, LEAST)), *(("single", i) for i in range(2))]
"""The group itself is -1, its members count from 0."""


def manifest(kind: str, gang: str, number: int) -> dict[str, Any]:
    if gang == "single":
        return pod(f"single-{number}", cpu="250m")
    if kind == "pod group":
        if number < 0:
            return pod_group(gang, least=LEAST)
        return member(f"{gang}-{number}", gang)
    if number < 0:
        return their_group(gang, minMember=LEAST)
    return pod(f"{gang}-{number}", cpu="1", labels={COSCHEDULING_LABEL: gang})


def placed(world: World, gang: str) -> list[str]:
    pods = world.server.list("pods")
    return [one.ref.name for one in pods if one.ref.name.startswith(f"{gang}-") and one.get("spec.nodeName")]


async def run(kind: str, order: list[tuple[str, int]], pauses: set[int], endpoint: str = "") -> None:
    """Run one order of arrival. `endpoint`: where Coscheduling is served; "": it runs in this process."""
    nodes = [node("n0", cpu="3500m"), node("n1", cpu="3500m")]
    told: dict[str, Any] = {"gates": GROUPS}
    if kind != "pod group":
        told = {"configuration": COSCHEDULING_PROFILE + (served_coscheduling(endpoint) if endpoint else "")}
    async with World(nodes, **told) as world:
        for place, (gang, number) in enumerate(order):
            world.server.create(manifest(kind, gang, number))
            if place in pauses:
                await world.settle()
                assert all(len(placed(world, gang)) in (0, LEAST) for gang in GANGS), "all or nothing"
        await world.settle()
        assert sorted(len(placed(world, gang)) for gang in GANGS) == [0, LEAST]
        assert len(placed(world, "single")) == 2
        first = next(gang for gang in GANGS if placed(world, gang))
        for name in placed(world, first):
            world.server.delete("pods", ObjectRef(namespace="default", name=name), grace_period_s=0)
        await world.settle()
        assert {gang: len(placed(world, gang)) for gang in GANGS} == {
            gang: 0 if gang == first else LEAST for gang in GANGS
        }
        assert world.everything_is_accounted_for()


@pytest.mark.sampled(every=2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pod group", "coscheduling"])
@settings(max_examples=examples(15), deadline=None)
@given(order=st.permutations(OBJECTS), pauses=st.sets(st.integers(0, len(OBJECTS) - 1), max_size=4))
def test_each_gang_starts_whole_and_neither_waits_for_ever(
    kind: str, order: list[tuple[str, int]], pauses: set[int]
) -> None:
    asyncio.run(run(kind, order, pauses))


@pytest.fixture(scope="module")
def plugin_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with default_plugin_server(tmp_path_factory.mktemp("plugins")) as endpoint:
        yield endpoint


@pytest.mark.slow
@settings(max_examples=examples(5), deadline=None)
@given(order=st.permutations(OBJECTS), pauses=st.sets(st.integers(0, len(OBJECTS) - 1), max_size=2))
def test_each_gang_starts_whole_with_a_served_plugin_too(
    plugin_server: str, order: list[tuple[str, int]], pauses: set[int]
) -> None:
    asyncio.run(run("coscheduling", order, pauses, plugin_server))


MAJORITY = 3
"""The members of a gang that holds room, of the 4 pods for which the two nodes have room."""
STEPS = 12
"""The most steps until both gangs have started. In each step the oldest pod ends, or the gang that has run
for a step; and a new single pod comes.
"""
HELD_OBJECTS = [(gang, i) for gang in GANGS for i in range(-1, MAJORITY)]


def holding_manifest(kind: str, gang: str, number: int) -> dict[str, Any]:
    made = manifest(kind, gang, number)
    if number < 0:
        made["metadata"] = {**made["metadata"], "annotations": HOLDS}
        made["spec"] |= (
            {"minMember": MAJORITY}
            if kind == "coscheduling"
            else {"schedulingPolicy": {"gang": {"minCount": MAJORITY}}}
        )
    return made


def end(world: World, name: str) -> None:
    world.server.delete("pods", ObjectRef(namespace="default", name=name), grace_period_s=0)


async def run_with_holds(kind: str, order: list[tuple[str, int]], pauses: set[int]) -> None:
    nodes = [node("n0", cpu="2"), node("n1", cpu="2")]
    told: dict[str, Any] = (
        {"gates": GROUPS} if kind == "pod group" else {"configuration": COSCHEDULING_PROFILE}
    )
    async with World(nodes, **told) as world:
        singles = [f"single-{number}" for number in range(STEPS + 6)]

        def come(count: int = 1) -> None:
            for _ in range(count):
                world.server.create(pod(singles.pop(0), cpu="1", restartPolicy="Never"))

        come(4)
        await world.settle()
        for place, (gang, number) in enumerate(order):
            world.server.create(holding_manifest(kind, gang, number))
            if place in pauses:
                await world.settle()
        await world.settle()
        started: list[str] = []
        for _ in range(STEPS):
            whole = [gang for gang in GANGS if len(placed(world, gang)) == MAJORITY]
            started += whole
            if len(started) == len(GANGS):
                break
            for name in [name for gang in whole for name in placed(world, gang)]:
                end(world, name)
            if not whole:
                end(world, min(placed(world, "single"), key=lambda name: int(name.partition("-")[2])))
            come()
            await world.settle()
            assert all(len(placed(world, gang)) in (0, MAJORITY) for gang in GANGS), "all or nothing"
        assert sorted(started) == sorted(GANGS)
        assert world.everything_is_accounted_for()


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pod group", "coscheduling"])
@settings(max_examples=examples(5), deadline=None)
@given(order=st.permutations(HELD_OBJECTS), pauses=st.sets(st.integers(0, len(HELD_OBJECTS) - 1), max_size=2))
def test_gangs_with_held_room_start_although_single_pods_come_all_the_time(
    kind: str, order: list[tuple[str, int]], pauses: set[int]
) -> None:
    asyncio.run(run_with_holds(kind, order, pauses))


@pytest.mark.long
@pytest.mark.slow
async def test_served_plugins_see_the_same_held_room(plugin_server: str) -> None:
    scheduler = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    configuration = f"---\n{scheduler}\n---\n{served_at(plugin_server)}"
    async with world_of(full(3, ends_s=4 * 3600), configuration=configuration) as world:
        for one in (gang("a"), *members("a", 6)):
            world.server.create(one)
        await world.settle()
        world.server.create(pod("short", cpu="1", activeDeadlineSeconds=3600))
        world.server.create(pod("endless", cpu="1"))
        await world.settle()
        assert world.node_of("short")
        assert not world.node_of("endless")
        for name in ("n0-0", "n0-1", "n1-0", "n1-1", "short"):
            end(world, name)
        await world.settle()
        assert len(nodes_of(world, "a")) == 6
        assert not world.node_of("endless")
