"""A claim that the members of a group share, where the group is only tried: held room, questions, victims."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from berth_host.app import Fit, FrameworkAlone, TryGroup
from berth_host.cli.rendering.why_group import group_answer_text
from berth_host.config.loading import default_configuration, load_configuration
from berth_host.explain.make_group_answer import group_answer
from berth_host.plugins.registry import ClassRegistry
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import COSCHEDULING_LABEL, Pod
from berth_sdk.pod_group import COSCHEDULING, PodGroup
from berth_sdk.testing import make_node
from host.groups.test_shared_claims import served  # noqa: F401 - a fixture
from support.coscheduling import COSCHEDULING_PROFILE
from support.device_objects import claim, device, device_class, pod_with, resource_slice
from support.groups import GROUPS, condition_of, full, gang, grouped, nodes_of, pod_group, world_of
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process

CLAIMS = "resource.k8s.io/resourceclaims"
POINTS = ("preFilter", "filter", "score", "reserve")
Json = dict[str, Any]


def reachable(count: int = 1) -> list[Json]:
    """Return devices that all nodes reach, and their class."""
    return [resource_slice("net", [device(f"d{i}") for i in range(count)], allNodes=True), device_class()]


def sharing(group: str, count: int, *claims: str, cpu: str = "1", **spec: Any) -> list[Json]:
    """Return pods `<group>-0` and so on, which use the same claims."""
    made = [pod_with(*claims, name=f"{group}-{i}", requests={"cpu": cpu}) for i in range(count)]
    for one in made:
        one["spec"] |= {"schedulingGroup": {"podGroupName": group}, **spec}
    return made


def add(world: World, *objects: Json) -> None:
    for one in objects:
        world.server.create(one)


def end(world: World, *names: str) -> None:
    for name in names:
        world.server.delete("pods", ObjectRef(namespace="default", name=name), grace_period_s=0)


def claimed(world: World, name: str) -> tuple[list[str], list[str]]:
    """Return the devices of a claim, and its users."""
    item = world.server.get(CLAIMS, ObjectRef(namespace="default", name=name))
    assert item is not None
    results = item.get("status.allocation.devices.results") or []
    users = item.get("status.reservedFor") or []
    return [one["device"] for one in results], sorted(one["name"] for one in users)


# --- held room -----------------------------------------------------------------------------------------


async def test_group_that_shares_a_claim_holds_room_and_no_device(served: str) -> None:  # noqa: F811
    async with world_of([*full(4), *reachable()], configuration=served) as world:
        add(world, claim("a"), claim("b"), gang("g", least=4), *sharing("g", 4, "a"))
        await world.settle()
        hold = world.host.holds.current
        assert hold is not None
        assert "holds room for 4 pods" in condition_of(world, "g")[2]
        assert claimed(world, "a") == ([], [])
        # The device is nobody's until the group starts.
        add(world, pod_with("b", name="alone"))
        await world.settle()
        assert world.node_of("alone")
        assert claimed(world, "b") == (["d0"], ["alone"])
        end(world, "alone")
        freed = {"status": {"allocation": None, "reservedFor": None}}
        world.server.patch(CLAIMS, ObjectRef(namespace="default", name="b"), freed, subresource="status")
        await world.settle()
        assert nodes_of(world, "g") == {}
        end(world, *(f"{name}-{i}" for i in range(2) for name in ("n0", "n1")))
        await world.settle()
        assert len(nodes_of(world, "g")) == 4
        assert claimed(world, "a") == (["d0"], [f"g-{i}" for i in range(4)])
        assert world.host.holds.current is None
        assert world.everything_is_accounted_for()


async def test_group_holds_room_where_its_shared_device_can_be_used() -> None:
    local = [resource_slice("n1", [device("d0")]), device_class()]
    async with world_of([*full(4), *local]) as world:
        add(world, claim("a"), gang("g", least=3), *sharing("g", 3, "a"))
        await world.settle()
        assert world.host.holds.current is not None
        held = {one.get("status.nominatedNodeName") for one in world.server.list("pods")} - {None}
        assert held == {"n1"}
        end(world, *(f"n1-{i}" for i in range(3)))
        await world.settle()
        assert set(nodes_of(world, "g").values()) == {"n1"}
        assert claimed(world, "a") == (["d0"], ["g-0", "g-1", "g-2"])


# --- a group that evicts others --------------------------------------------------------------------------


async def test_group_that_shares_a_claim_evicts_pods_of_lower_priority(served: str) -> None:  # noqa: F811
    low = [pod(f"low-{i}", cpu="1", priority=0, nodeName="n1") for i in range(3)]
    objects = [node("n1", cpu="4"), resource_slice("n1", [device("d0")]), device_class(), *low]
    async with grouped(objects, configuration=served) as world:
        await world.settle()
        members = sharing("g", 3, "a", cpu="1", priority=100)
        add(world, claim("a"), pod_group("g", least=3, priority=100), *members)
        await world.settle()
        assert nodes_of(world, "g") == dict.fromkeys(("g-0", "g-1", "g-2"), "n1")
        assert sum(one.ref.name.startswith("low") for one in world.server.list("pods")) == 1
        assert claimed(world, "a") == (["d0"], ["g-0", "g-1", "g-2"])


async def test_group_evicts_nobody_where_its_shared_device_is_missing() -> None:
    low = [pod(f"low-{i}", cpu="1", priority=0, nodeName="n1") for i in range(4)]
    async with grouped([node("n1", cpu="4"), device_class(), *low]) as world:
        add(world, claim("a"), pod_group("g", least=2, priority=100))
        add(world, *sharing("g", 2, "a", priority=100))
        await world.settle()
        assert nodes_of(world, "g") == {}
        assert sum(one.ref.name.startswith("low") for one in world.server.list("pods")) == 4
        assert claimed(world, "a") == ([], [])


# --- questions -------------------------------------------------------------------------------------------


async def test_why_says_what_the_next_member_of_a_group_lacks_beside_its_shared_device(served: str) -> None:  # noqa: F811
    objects = [node("n1", cpu="2"), node("n2", cpu="2"), resource_slice("n1", [device("d0")]), device_class()]
    objects += [claim("a"), pod_group("g", least=3), *sharing("g", 3, "a")]
    async with grouped(objects, configuration=served) as world:
        await world.settle()
        for _ in range(2):
            answer = await group_answer(world.host, "podgroup", "default", "g")
            assert answer is not None
            text = group_answer_text(answer)
            assert "resourceclaim not available on the node" in text
            assert "in the process of being allocated" not in text
        # Nothing of the question is left.
        add(world, claim("b"), pod_with("b", name="alone"))
        await world.settle()
        assert world.node_of("alone") == "n1"


async def test_why_of_a_group_that_runs_names_no_lack() -> None:
    objects = [node("n1", cpu="4"), resource_slice("n1", [device("d0")]), device_class(), claim("a")]
    async with grouped([*objects, pod_group("g", least=2), *sharing("g", 2, "a")]) as world:
        await world.settle()
        answer = await group_answer(world.host, "podgroup", "default", "g")
        assert answer is not None
        assert "in the process of being allocated" not in group_answer_text(answer)
        assert len(nodes_of(world, "g")) == 2


def alone(objects: Iterable[Json], text: str = "") -> FrameworkAlone:
    """Return a framework over two nodes of 2 CPUs, with objects of devices."""
    registered = ClassRegistry({}).points()
    configuration = (
        load_configuration(text, source="x", registered=registered, feature_gates=GROUPS)
        if text
        else default_configuration(registered=registered, feature_gates=GROUPS)
    )
    made = FrameworkAlone(configuration)
    for name in ("n1", "n2"):
        made.add_node(make_node(name, cpu="2"))
    for one in objects:
        found = KubeObject.of(one)
        made.objects.put(found.kind, found)
    return made


def tried(count: int, *claims: str, label: str = "") -> list[Pod]:
    made = sharing("train", count, *claims)
    for one in made:
        del one["spec"]["schedulingGroup"]
        if label:
            one["metadata"]["labels"] = {COSCHEDULING_LABEL: label}
    return [Pod.from_object(one) for one in made]


TRAIN = PodGroup(name="train", is_gang=True, min_count=2)


@pytest.mark.parametrize("kind", ["podgroup", "coscheduling"])
async def test_group_that_shares_a_claim_is_tried_and_keeps_nothing(kind: str) -> None:
    local = resource_slice("n1", [device("d0")])
    text = COSCHEDULING_PROFILE if kind == "coscheduling" else ""
    framework = alone([local, device_class(), claim("a"), claim("b")], text)
    group = replace(TRAIN, kind=COSCHEDULING) if kind == "coscheduling" else TRAIN
    label = "train" if kind == "coscheduling" else ""
    for _ in range(2):
        answer = await framework.ask(TryGroup(group, tried(2, "a", label=label)))
        assert (answer.fits, answer.message, answer.unfit) == (True, "", {})
        assert answer.assignments == {"default/train-0": "n1", "default/train-1": "n1"}
    other = Pod.from_object(pod_with("b", name="alone"))
    assert (await framework.ask(Fit(other))).verdicts["n1"].is_success
    answer = await framework.ask(TryGroup(replace(group, min_count=3), tried(3, "a", label=label)))
    assert not answer.fits
    (why,) = answer.unfit.values()
    assert "1 Insufficient cpu" in why
    assert "1 resourceclaim not available on the node" in why
    assert (await framework.ask(Fit(other))).verdicts["n1"].is_success


@pytest.mark.slow
async def test_served_plugin_is_asked_about_a_group_that_shares_a_claim(tmp_path: Path) -> None:
    async with plugin_process(
        tmp_path / "d.sock", "berth_plugins.dynamic_resources.plugin:DynamicResources"
    ) as process:
        points = ", ".join(f"{point}: {{deadline: 10s}}" for point in POINTS)
        text = (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n---\n"
            "apiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
            f"cycleBudget: 60s\nplugins:\n- {{name: DynamicResources, endpoint: '{process.endpoint}',"
            f" required: true, points: {{{points}}}}}\n"
        )
        objects = [resource_slice("n1", [device("d0")]), device_class(), claim("a"), claim("b")]
        async with alone(objects, text) as framework:
            for _ in range(2):
                answer = await framework.ask(TryGroup(TRAIN, tried(2, "a")))
                assert answer.fits, answer
            other = Pod.from_object(pod_with("b", name="alone"))
            assert (await framework.ask(Fit(other))).verdicts["n1"].is_success
