"""Trees of composite groups that no sensible user makes, and the groups that count for a placement."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from berth_sdk.kube_object import ObjectRef
from hypothesis import given, settings
from hypothesis import strategies as st
from support.groups import GROUPS, child_group, condition_of, grouped, member, members, message_of, nodes_of
from support.hosts import World, node, pod
from support.tiers import examples

TREES = {**GROUPS, "TopologyAwareWorkloadScheduling": True, "CompositePodGroup": True}
OF_WORKLOAD: dict[str, Any] = {"workloadRef": {"workloadName": "w", "templateName": "t"}}
Json = dict[str, Any]


def composite(name: str, parent: str = "", **spec: Any) -> Json:
    """Return a CompositePodGroup of the basic policy."""
    above = {"parentCompositePodGroupName": parent} if parent else {}
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "CompositePodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": {"basic": {}}, **OF_WORKLOAD, **above, **spec},
    }


def trees(objects: list[Json], version: str = "1.38") -> World:
    return grouped(objects, gates=TREES, emulated_version=version)


@pytest.mark.parametrize("version", ["1.37", "1.38"])
async def test_tree_of_any_depth_is_refused_and_the_host_goes_on(version: str) -> None:
    depth = 1100  # Python ends a recursion of 1000
    chain = [composite("c0"), *(composite(f"c{i}", f"c{i - 1}") for i in range(1, depth))]
    async with trees([node("n1"), *chain, child_group("g", f"c{depth - 1}")], version) as world:
        world.server.create(member("deep", "g"))
        world.server.create(pod("single", cpu="1"))
        await world.settle()
        assert (world.node_of("deep"), world.node_of("single")) == ("", "n1")
        assert world.everything_is_accounted_for()
        if version == "1.38":
            assert "hierarchy depth exceeds maximum allowed depth 4" in message_of(world, "deep")
            assert condition_of(world, "g")[:2] == ("False", "PodGroupError")


@pytest.mark.parametrize("version", ["1.37", "1.38"])
async def test_groups_that_form_a_circle_wait_until_it_is_opened(version: str) -> None:
    circle = [composite("a", "b"), composite("b", "a")]
    async with trees([node("n1"), *circle, child_group("g", "a")], version) as world:
        world.server.create(member("p", "g"))
        world.server.create(pod("single", cpu="1"))
        await world.settle()
        assert (world.node_of("p"), world.node_of("single")) == ("", "n1")
        ref = ObjectRef(namespace="default", name="a")
        world.server.delete("scheduling.k8s.io/compositepodgroups", ref)
        await world.settle()
        assert world.everything_is_accounted_for()
        world.server.create(composite("a"))
        await world.settle()
        assert nodes_of(world, "g") == {"p": "n1"}


@pytest.mark.parametrize("version", ["1.37", "1.38"])
async def test_child_group_that_fails_does_not_count_for_its_placement(version: str) -> None:
    """Rack x has room for more members of the gang, of which too few fit. The others fill rack y better."""
    racks = [node("x", cpu="6", labels={"rack": "x"}), node("y", cpu="4", labels={"rack": "y"})]
    root = composite("root", schedulingConstraints={"topology": [{"key": "rack"}]})
    pods = [*members("any", 1, cpu="3"), *members("gang", 6)]
    async with trees(
        [*racks, root, child_group("any", "root"), child_group("gang", "root", least=6), *pods], version
    ) as world:
        await world.settle()
        assert (nodes_of(world, "any"), nodes_of(world, "gang")) == ({"any-0": "y"}, {})


NAMES = st.integers(0, 2)
PARENTS = st.sampled_from(["", "c0", "c1", "c2"])
LEASTS = st.sampled_from([None, 1, 2])
DEEDS = st.one_of(
    st.tuples(st.just("composite"), NAMES, PARENTS, LEASTS, st.booleans()),
    st.tuples(st.just("group"), NAMES, PARENTS, LEASTS, st.booleans()),
    st.tuples(st.just("group"), NAMES, PARENTS, LEASTS, st.booleans()),
    st.tuples(st.just("member"), st.integers(0, 9), NAMES, st.sampled_from([0, 0, 10])),
    st.tuples(st.just("member"), st.integers(0, 9), NAMES, st.sampled_from([0, 0, 10])),
    st.tuples(st.just("turns"), st.integers(1, 6)),
    st.tuples(st.just("settle")),
)
"""Each name is created, or deleted if it is there; every other time made again at once under its name."""


class Lives:
    """A cluster of four nodes in two racks, on which groups and members come and go."""

    def __init__(self, world: World) -> None:
        self._world = world

    def composite(self, number: int, parent: str, least: int | None, again: bool) -> None:
        policy: Json = {"basic": {}} if least is None else {"gang": {"minGroupCount": least}}
        made = composite(f"c{number}", parent, schedulingPolicy=policy)
        self._change("scheduling.k8s.io/compositepodgroups", made, again=again)

    def group(self, number: int, parent: str, least: int | None, again: bool) -> None:
        spec: Json = {"schedulingConstraints": {"topology": [{"key": "rack"}]}} if number else {}
        made = child_group(f"g{number}", parent, least=least, **spec)
        if not parent:
            del made["spec"]["parentCompositePodGroupName"]
        self._change("scheduling.k8s.io/podgroups", made, again=again)

    def member(self, number: int, group: int, priority: int) -> None:
        self._change("pods", member(f"p{number}", f"g{group}", priority=priority), again=False)

    def _change(self, resource: str, made: Json, *, again: bool) -> None:
        server = self._world.server
        ref = ObjectRef(namespace="default", name=made["metadata"]["name"])
        if server.get(resource, ref) is not None:
            server.delete(resource, ref, grace_period_s=0)
            if not again:
                return
        if server.get(resource, ref) is None:
            server.create(made)


@given(deeds=st.lists(DEEDS, min_size=10, max_size=60), version=st.sampled_from(["1.37", "1.38"]))
@settings(max_examples=examples(20), deadline=None)
async def test_groups_that_come_and_go_in_any_form_lose_no_member(deeds: list[Any], version: str) -> None:
    racks = [node(f"n{i}", cpu="2", labels={"rack": f"r{i % 2}"}) for i in range(4)]
    async with trees(racks, version) as world:
        lives = Lives(world)
        for name, *told in deeds:
            if name == "settle":
                await world.settle()
            elif name == "turns":
                for _ in range(told[0]):
                    await asyncio.sleep(0)
            else:
                getattr(lives, name)(*told)
        await world.settle()
        assert world.everything_is_accounted_for()
