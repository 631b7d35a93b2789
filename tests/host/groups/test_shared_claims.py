"""Members of a group that share one ResourceClaim: one allocation for all of them, in process and served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import COSCHEDULING_LABEL, Pod
from berth_sdk.results import PermitResult
from berth_sdk.status import Status
from berth_sim.cluster.claim_controller import ClaimController
from support.coscheduling import COSCHEDULING_PROFILE, their_group
from support.device_objects import claim, device, device_class, exactly, pod_with, resource_slice
from support.groups import child_group, condition_of, grouped, message_of, nodes_of, pod_group
from support.hosts import World, enabling, node, pod
from support.plugin_processes import plugin_process
from support.waiting import PATIENCE_S, until

CLAIMS = "resource.k8s.io/resourceclaims"
TREES = {"TopologyAwareWorkloadScheduling": True, "CompositePodGroup": True}
POINTS = ("preEnqueue", "queueingHints", "preFilter", "filter", "score", "reserve", "podGroupPostFilter")
Json = dict[str, Any]


@pytest.fixture(params=["in_process", pytest.param("socket", marks=pytest.mark.slow)])
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The configuration of DynamicResources in a process of its own; empty: in this process."""
    if request.param == "in_process":
        yield ""
        return
    async with plugin_process(
        tmp_path / "d.sock", "berth_plugins.dynamic_resources.plugin:DynamicResources"
    ) as process:
        points = ", ".join(f"{point}: {{deadline: 10s}}" for point in POINTS)
        yield (
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
            f"plugins:\n- {{name: DynamicResources, endpoint: '{process.endpoint}', required: true,\n"
            f"   points: {{{points}}}}}\n"
        )


def world_of(served: str, objects: Iterable[Json], plugins: Iterable[type] = (), **more: Any) -> World:
    plugins = list(plugins)
    configuration = enabling([one.__name__ for one in plugins], served) if plugins or served else ""
    return grouped(objects, plugins, configuration=more.pop("configuration", configuration), **more)


def machines(*names: str, cpu: str = "4", devices: int = 1) -> list[Json]:
    """Return nodes with devices of their own, and their class."""
    slices = [resource_slice(name, [device(f"d{i}") for i in range(devices)]) for name in names]
    return [*(node(name, cpu=cpu) for name in names), *slices, device_class()]


def sharing(name: str, *claims: str, group: str = "g", cpu: str = "1") -> Json:
    made = pod_with(*claims, name=name, requests={"cpu": cpu})
    made["spec"]["schedulingGroup"] = {"podGroupName": group}
    return made


def gang(count: int, *claims: str, group: str = "g", cpu: str = "1") -> list[Json]:
    members = [sharing(f"{group}-{i}", *claims, group=group, cpu=cpu) for i in range(count)]
    return [pod_group(group, least=count), *members]


def found(world: World, name: str) -> KubeObject:
    item = world.server.get(CLAIMS, ObjectRef(namespace="default", name=name))
    assert item is not None
    return item


def devices_of(world: World, name: str) -> list[str]:
    results = found(world, name).get("status.allocation.devices.results") or []
    return [f"{one['pool']}/{one['device']}" for one in results]


def users_of(world: World, name: str) -> list[str]:
    return sorted(one["name"] for one in found(world, name).get("status.reservedFor") or [])


async def test_gang_whose_members_share_a_claim_starts(served: str) -> None:
    async with world_of(served, [*machines("n1", "n2"), claim("a"), *gang(3, "a")]) as world:
        await world.settle()
        assert nodes_of(world, "g") == dict.fromkeys(("g-0", "g-1", "g-2"), "n1")
        assert condition_of(world, "g") == ("True", "Scheduled", "")
        assert (devices_of(world, "a"), users_of(world, "a")) == (["n1/d0"], ["g-0", "g-1", "g-2"])


async def test_members_have_claims_of_their_own_beside_the_shared_one(served: str) -> None:
    own = [sharing(f"g-{i}", "all", f"own{i}") for i in range(2)]
    claims = [claim("all"), claim("own0"), claim("own1")]
    async with world_of(
        served, [*machines("n1", devices=3), *claims, pod_group("g", least=2), *own]
    ) as world:
        await world.settle()
        assert sorted(nodes_of(world, "g")) == ["g-0", "g-1"]
        taken = [devices_of(world, name) for name in ("all", "own0", "own1")]
        assert sorted(one for each in taken for one in each) == ["n1/d0", "n1/d1", "n1/d2"]


async def test_members_on_several_nodes_share_a_device_that_all_nodes_reach(served: str) -> None:
    network = resource_slice("net", [device("d0")], allNodes=True)
    nodes = [node("n1", cpu="1"), node("n2", cpu="1")]
    async with world_of(served, [*nodes, network, device_class(), claim("a"), *gang(2, "a")]) as world:
        await world.settle()
        assert sorted(nodes_of(world, "g").values()) == ["n1", "n2"]
        assert users_of(world, "a") == ["g-0", "g-1"]


async def test_gang_that_finds_no_room_at_its_shared_device_holds_nothing(served: str) -> None:
    objects = [*machines("n1", "n2", cpu="1"), claim("a"), *gang(2, "a")]
    async with world_of(served, objects) as world:
        await world.settle()
        assert nodes_of(world, "g") == {}
        assert condition_of(world, "g")[1] == "Unschedulable"
        assert "resourceclaim not available on the node" in message_of(world, "g-1")
        assert devices_of(world, "a") == []
        # The device is free again.
        world.server.delete("pods", ObjectRef(namespace="default", name="g-0"), grace_period_s=0)
        world.server.create(claim("b"))
        world.server.create(pod_with("b", name="alone"))
        await world.settle()
        assert world.node_of("alone") == "n1"


class RejectsFirst:
    """Says no at Permit to the first member."""

    asked: list[str] = []  # noqa: RUF012  # of the class: the host makes the instance

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.asked.append(pod.name)
        return Status.unschedulable("not now") if len(self.asked) == 1 else Status.success()


async def test_members_keep_the_devices_that_the_member_before_gives_back(served: str) -> None:
    RejectsFirst.asked.clear()
    group = [pod_group("g"), *(sharing(f"g-{i}", "a") for i in range(2))]
    objects = [*machines("n1"), claim("a"), claim("b"), *group, pod_with("b", name="alone")]
    async with world_of(served, objects, [RejectsFirst]) as world:
        await world.settle()
        assert nodes_of(world, "g") == {"g-0": "n1", "g-1": "n1"}
        assert (devices_of(world, "a"), users_of(world, "a")) == (["n1/d0"], ["g-0", "g-1"])
        assert world.node_of("alone") == ""


class Waits:
    """Lets members wait at Permit until a pod called `last` is there."""

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        return PermitResult.wait(3600.0) if pod.name.startswith("g") else Status.success()


async def test_later_member_shares_what_the_waiting_members_reserved(served: str) -> None:
    async with world_of(served, [*machines("n1"), claim("a"), *gang(2, "a")], [Waits]) as world:
        await world.until_waiting(2)
        world.server.create(sharing("g-2", "a"))
        world.server.create(pod_with("a", name="alone"))
        await world.until_waiting(3)
        await until(lambda: "is in the process of being allocated" in str(world.message_of("alone")))
        world.server.delete("pods", ObjectRef(namespace="default", name="g-0"), grace_period_s=0)
        await world.until_waiting(2)
        for held in world.host.waiting_pods.list():
            world.host.waiting_pods.allow("Waits", held.pod.uid, held.cycle_id)
        await world.settle()
        assert nodes_of(world, "g") == {"g-1": "n1", "g-2": "n1"}
        assert world.node_of("alone") == "n1"
        assert users_of(world, "a") == ["alone", "g-1", "g-2"]


async def test_members_of_coscheduling_share_a_claim() -> None:
    members = []
    for i in range(2):
        made = pod_with("a", name=f"t-{i}")
        made["metadata"]["labels"] = {COSCHEDULING_LABEL: "t"}
        members.append(made)
    objects = [*machines("n1", "n2"), claim("a"), their_group("t", minMember=2), *members]
    async with World(objects, configuration=COSCHEDULING_PROFILE) as world:
        await world.settle()
        assert [world.node_of(f"t-{i}") for i in range(2)] == ["n1", "n1"]
        assert users_of(world, "a") == ["t-0", "t-1"]


def tree(*children: str) -> list[Json]:
    root = {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": "root", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minGroupCount": len(children)}}},
    }
    return [root, *(child_group(name, least=1) for name in children)]


async def test_groups_of_one_composite_group_share_a_claim() -> None:
    members = [sharing(f"{group}-0", "a", group=group) for group in ("one", "two")]
    async with world_of(
        "", [*machines("n1"), claim("a"), *tree("one", "two"), *members], gates=TREES
    ) as world:
        await world.settle()
        assert [world.node_of(f"{group}-0") for group in ("one", "two")] == ["n1", "n1"]
        assert users_of(world, "a") == ["one-0", "two-0"]


async def test_two_groups_use_a_claim_one_after_the_other() -> None:
    groups = [*gang(2, "a", group="g"), *gang(2, "a", group="h")]
    async with world_of("", [*machines("n1", cpu="8"), claim("a"), *groups]) as world:
        await world.settle()
        assert [len(nodes_of(world, name)) for name in ("g", "h")] == [2, 2]
        assert users_of(world, "a") == ["g-0", "g-1", "h-0", "h-1"]


async def test_gang_preempts_for_room_at_its_shared_device() -> None:
    busy = [{**pod(f"low-{i}", cpu="2", nodeName="n1"), "status": {"phase": "Running"}} for i in range(2)]
    members = [
        {**one, "spec": {**one["spec"], "priority": 10}}
        for one in (sharing(f"g-{i}", "a", cpu="2") for i in range(2))
    ]
    async with world_of("", [*machines("n1"), claim("a")]) as world:
        for one in [*busy, pod_group("g", least=2, priority=10), *members]:
            world.server.create(one, restore=True)
        await world.settle()
        for name in ("low-0", "low-1"):
            ref = ObjectRef(namespace="default", name=name)
            if world.server.get("pods", ref) is not None:
                world.server.delete("pods", ref, grace_period_s=0)
        await world.settle()
        assert nodes_of(world, "g") == {"g-0": "n1", "g-1": "n1"}


async def test_gang_with_more_members_than_a_claim_can_have_users_does_not_start_in_part() -> None:
    world = world_of("", [node("n1", cpu="64", pods="400"), *machines("n2")[1:], *gang(2, "a")])
    taken = claim("a", allocated=["n1/d0"])
    taken["status"]["reservedFor"] = [
        {"resource": "pods", "name": f"p{i}", "uid": f"uid-p{i}"} for i in range(255)
    ]
    async with world:
        world.server.create(taken, restore=True)
        await world.settle()
        assert nodes_of(world, "g") == {}
        assert "resource claim default/a has 256 users" in message_of(world, "g-1")


OF_GROUPS = {"DRAWorkloadResourceClaims": True}
FOR_GROUP = {"name": "gpu", "resourceClaimTemplateName": "gpus"}


def template() -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [exactly()]}}},
    }


def of_the_group(count: int) -> list[Json]:
    """Return a gang whose members use the claim that is made for the group."""
    made = [pod_group("g", least=count, resourceClaims=[FOR_GROUP])]
    for i in range(count):
        one = sharing(f"g-{i}")
        one["spec"]["resourceClaims"] = [FOR_GROUP]
        made.append(one)
    return made


@asynccontextmanager
async def with_controller(world: World) -> AsyncIterator[World]:
    """Run a world with the cluster's controller of claims."""
    controller = ClaimController(world.server, of_groups=True)
    async with world:
        controller.start()
        try:
            yield world
        finally:
            controller.stop()


async def ends(world: World, group: str, count: int) -> None:
    """Wait until so many members of a group have a node."""
    async with asyncio.timeout(PATIENCE_S):
        while len(nodes_of(world, group)) < count:
            await world.settle()
            await asyncio.sleep(0)


def group_of(world: World) -> KubeObject:
    found = world.server.get("scheduling.k8s.io/podgroups", ObjectRef(namespace="default", name="g"))
    assert found is not None
    return found


async def test_claim_of_a_group_is_reserved_for_the_group_once(served: str) -> None:
    objects = [*machines("n1", "n2"), template(), *of_the_group(3)]
    async with with_controller(world_of(served, objects, gates=OF_GROUPS)) as world:
        await ends(world, "g", 3)
        await world.settle()
        (made,) = world.server.list(CLAIMS)
        group = group_of(world)
        consumer = {
            "apiGroup": "scheduling.k8s.io",
            "resource": "podgroups",
            "name": "g",
            "uid": group.ref.uid,
        }
        assert made.get("status.reservedFor") == [consumer]
        assert set(nodes_of(world, "g").values()) == {"n1"}
        # A later member finds the claim reserved.
        late = sharing("g-3")
        late["spec"]["resourceClaims"] = [FOR_GROUP]
        world.server.create(late)
        await ends(world, "g", 4)
        (made,) = world.server.list(CLAIMS)
        assert made.get("status.reservedFor") == [consumer]


async def test_without_the_gate_no_pod_may_use_the_claim_of_a_group() -> None:
    async with with_controller(world_of("", [*machines("n1"), template(), *of_the_group(2)])) as world:
        await until(lambda: len(list(world.server.list(CLAIMS))) == 1)
        await world.settle()
        assert nodes_of(world, "g") == {}


async def test_group_that_finds_no_node_gives_up_its_claim() -> None:
    group, *members = of_the_group(2)
    async with with_controller(world_of("", [*machines("n1"), template(), group], gates=OF_GROUPS)) as world:
        await until(lambda: len(list(world.server.list(CLAIMS))) == 1)
        (made,) = world.server.list(CLAIMS)
        consumer = {
            "apiGroup": "scheduling.k8s.io",
            "resource": "podgroups",
            "name": "g",
            "uid": group_of(world).ref.uid,
        }
        gone = claim("x", allocated=["n9/d0"])["status"]["allocation"]
        status = {"allocation": gone, "reservedFor": [consumer]}
        world.server.patch(CLAIMS, made.ref, {"status": status}, subresource="status")
        for member in members:
            world.server.create(member)
        await ends(world, "g", 2)
        assert set(nodes_of(world, "g").values()) == {"n1"}
        assert devices_of(world, made.ref.name) == ["n1/d0"]
