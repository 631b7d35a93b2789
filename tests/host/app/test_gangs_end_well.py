"""Two gangs that each need more than half of the cluster, in any order of arrival: one starts whole, the
other one when the first has ended, for pod groups and for those of coscheduling.
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
from support.groups import GROUPS, member, pod_group
from support.hosts import World, node, pod
from support.served import default_plugin_server

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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pod group", "coscheduling"])
@settings(max_examples=15, deadline=None)
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
@settings(max_examples=5, deadline=None)
@given(order=st.permutations(OBJECTS), pauses=st.sets(st.integers(0, len(OBJECTS) - 1), max_size=2))
def test_each_gang_starts_whole_with_a_served_plugin_too(
    plugin_server: str, order: list[tuple[str, int]], pauses: set[int]
) -> None:
    asyncio.run(run("coscheduling", order, pauses, plugin_server))
