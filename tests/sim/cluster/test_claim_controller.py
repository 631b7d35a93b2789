"""The embedded cluster's controller of ResourceClaims: what it makes, releases, deletes, and leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sim.cluster.claim_controller import CLAIMS, FINALIZER, ClaimController
from berth_sim.cluster.server import ApiServer
from support.device_objects import API, claim, exactly
from support.groups import pod_group
from support.hosts import pod

Json = dict[str, Any]
ALLOCATION: Json = {
    "devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}]}
}


def template(name: str = "gpus") -> Json:
    metadata = {"labels": {"team": "a"}, "annotations": {"note": "x"}}
    spec = {"metadata": metadata, "spec": {"devices": {"requests": [exactly()]}}}
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def user(name: str = "p", *entries: Json) -> Json:
    """A pod with these entries of resourceClaims; by default one of the template."""
    made = pod(name)
    made["spec"]["resourceClaims"] = [*entries] or [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
    return made


class World:
    """A server with a running controller."""

    def __init__(self, *, of_groups: bool = False) -> None:
        self.server = ApiServer(ManualClock(1_767_225_600.0))
        self.controller = ClaimController(self.server, of_groups=of_groups)

    async def given(self, *objects: Json) -> None:
        for item in objects:
            self.server.create(item)
        await self.quiet()

    async def quiet(self) -> None:
        await asyncio.sleep(0)
        while not self.controller.is_idle:
            await asyncio.sleep(0)

    def pod(self, name: str = "p") -> KubeObject:
        found = self.server.get("pods", ObjectRef(name=name, namespace="default"))
        assert found is not None
        return found

    def claims(self) -> list[KubeObject]:
        return self.server.list(CLAIMS)

    def use(self, found: KubeObject, *users: str) -> None:
        """Allocate a claim for a pod as PreBind does: add the finalizer, then write the allocation."""
        self.server.patch(CLAIMS, found.ref, {"metadata": {"finalizers": [FINALIZER]}})
        reserved = [{"resource": "pods", "name": name, "uid": self.pod(name).ref.uid} for name in users]
        status = {"allocation": ALLOCATION, "reservedFor": reserved}
        self.server.patch(CLAIMS, found.ref, {"status": status}, subresource="status")

    async def delete_pod(self, name: str = "p") -> None:
        self.server.delete("pods", self.pod(name).ref)
        await self.quiet()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    made.controller.start()
    yield made
    made.controller.stop()


def consumers(found: KubeObject) -> Sequence[str]:
    return [one["name"] for one in found.get("status.reservedFor") or ()]


async def test_pod_gets_the_claim_of_its_template(world: World) -> None:
    await world.given(template(), user())
    (made,) = world.claims()
    assert made.ref.name.startswith("p-gpu-")
    assert made.get("spec.devices.requests") == [exactly()]
    assert made.get("metadata.labels") == {"team": "a"}
    assert made.get("metadata.annotations") == {"note": "x", "resource.kubernetes.io/pod-claim-name": "gpu"}
    (owner,) = made.get("metadata.ownerReferences")
    assert (owner["uid"], owner["controller"]) == (world.pod().ref.uid, True)
    expected = [{"name": "gpu", "resourceClaimName": made.ref.name}]
    assert world.pod().get("status.resourceClaimStatuses") == expected


async def test_template_may_come_after_the_pod(world: World) -> None:
    await world.given(user())
    assert world.claims() == []
    await world.given(template())
    assert len(world.claims()) == 1
    assert len(world.pod().get("status.resourceClaimStatuses")) == 1


async def test_pod_that_was_there_before_the_controller_gets_its_claim() -> None:
    world = World()
    for item in (template(), user()):
        world.server.create(item)
    world.controller.start()
    assert len(world.claims()) == 1
    world.controller.stop()
    await world.given(user("late"))
    assert len(world.claims()) == 1


async def test_two_entries_of_one_template_are_two_claims(world: World) -> None:
    entries = [{"name": name, "resourceClaimTemplateName": "gpus"} for name in ("a", "b")]
    await world.given(template(), user("p", *entries))
    names = [item["resourceClaimName"] for item in world.pod().get("status.resourceClaimStatuses")]
    assert sorted(names) == sorted(found.ref.name for found in world.claims())


async def test_long_names_are_cut(world: World) -> None:
    entry = {"name": "e" * 63, "resourceClaimTemplateName": "gpus"}
    await world.given(template(), user("p" * 63, entry))
    (made,) = world.claims()
    assert len(made.ref.name) <= 63
    assert made.ref.name.startswith("pppp")
    assert "-eeee" in made.ref.name


async def test_claim_goes_with_the_pod_that_it_was_made_for(world: World) -> None:
    await world.given(template(), user())
    world.use(world.claims()[0], "p")
    await world.delete_pod()
    assert world.claims() == []


async def test_claim_that_was_never_allocated_goes_as_well(world: World) -> None:
    await world.given(template(), user())
    await world.delete_pod()
    assert world.claims() == []


async def test_shared_claim_is_freed_with_its_last_consumer(world: World) -> None:
    entry = {"name": "gpu", "resourceClaimName": "shared"}
    await world.given(claim("shared", exactly()), user("a", entry), user("b", entry))
    world.use(world.claims()[0], "a", "b")
    await world.delete_pod("a")
    (found,) = world.claims()
    assert (consumers(found), found.get("status.allocation")) == (["b"], ALLOCATION)
    assert found.get("metadata.finalizers") == [FINALIZER]
    await world.delete_pod("b")
    (found,) = world.claims()
    assert (consumers(found), found.get("status.allocation")) == ([], None)
    assert not found.get("metadata.finalizers")


async def test_pod_that_is_done_uses_nothing_any_more(world: World) -> None:
    await world.given(template(), user())
    world.use(world.claims()[0], "p")
    world.server.patch("pods", world.pod().ref, {"status": {"phase": "Succeeded"}}, subresource="status")
    await world.quiet()
    assert world.claims() == []


async def test_reservation_that_comes_after_the_pod_is_gone_is_taken_back(world: World) -> None:
    entry = {"name": "gpu", "resourceClaimName": "own"}
    await world.given(claim("own", exactly()), user("p", entry))
    gone = {"resource": "pods", "name": "p", "uid": world.pod().ref.uid}
    await world.delete_pod()
    (found,) = world.claims()
    world.server.patch(CLAIMS, found.ref, {"metadata": {"finalizers": [FINALIZER]}})
    status = {"allocation": ALLOCATION, "reservedFor": [gone]}
    world.server.patch(CLAIMS, found.ref, {"status": status}, subresource="status")
    await world.quiet()
    (found,) = world.claims()
    assert (consumers(found), found.get("status.allocation")) == ([], None)


async def test_claim_that_was_never_used_keeps_its_allocation(world: World) -> None:
    await world.given(claim("held", exactly()))
    (found,) = world.claims()
    world.use(found)
    world.server.patch(CLAIMS, found.ref, {"metadata": {"labels": {"a": "b"}}})
    await world.quiet()
    (found,) = world.claims()
    assert found.get("status.allocation") == ALLOCATION
    assert found.get("metadata.finalizers") == [FINALIZER]


async def test_deleted_claim_waits_for_its_consumers(world: World) -> None:
    entry = {"name": "gpu", "resourceClaimName": "own"}
    await world.given(claim("own", exactly()), user("p", entry))
    world.use(world.claims()[0], "p")
    world.server.delete(CLAIMS, world.claims()[0].ref)
    await world.quiet()
    assert consumers(world.claims()[0]) == ["p"]
    await world.delete_pod()
    assert world.claims() == []


GROUPS = "scheduling.k8s.io/podgroups"


def sharing_group(*entries: Json) -> Json:
    claims = [*entries] or [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
    return pod_group("g", least=2, resourceClaims=claims)


def in_group(name: str, *entries: Json) -> Json:
    made = user(name, *entries)
    made["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    return made


def names_of(item: KubeObject | None) -> dict[str, str]:
    assert item is not None
    return {one["name"]: one["resourceClaimName"] for one in item.get("status.resourceClaimStatuses") or ()}


@pytest.fixture
async def grouping() -> AsyncIterator[World]:
    """A server whose controller makes the claims of groups."""
    world = World(of_groups=True)
    world.controller.start()
    yield world
    world.controller.stop()


@pytest.mark.parametrize("first", ["group", "pods", "template"])
async def test_members_get_the_claim_that_is_made_for_their_group(grouping: World, first: str) -> None:
    parts = {
        "template": [template()],
        "group": [sharing_group()],
        "pods": [in_group("one"), in_group("two"), user("alone")],
    }
    await grouping.given(*parts.pop(first))
    for others in parts.values():
        await grouping.given(*others)
    group = grouping.server.get(GROUPS, ObjectRef(name="g", namespace="default"))
    made = names_of(group)
    assert group is not None
    assert names_of(grouping.pod("one")) == names_of(grouping.pod("two")) == made
    assert names_of(grouping.pod("alone"))["gpu"] != made["gpu"]
    claims = {one.ref.name: one for one in grouping.server.list(CLAIMS)}
    assert len(claims) == 2
    owner = claims[made["gpu"]].get("metadata.ownerReferences")[0]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("PodGroup", "g", group.ref.uid)
    assert owner["apiVersion"] == "scheduling.k8s.io/v1beta1"
    assert made["gpu"].startswith("g-gpu-")


async def test_entry_that_differs_from_that_of_the_group_is_the_pods_own(grouping: World) -> None:
    own = {"name": "other", "resourceClaimTemplateName": "gpus"}
    await grouping.given(template(), sharing_group(), in_group("one", own))
    claim = next(one for one in grouping.server.list(CLAIMS) if one.ref.name.startswith("one-other-"))
    assert claim.get("metadata.ownerReferences")[0]["kind"] == "Pod"


async def test_claim_of_a_group_is_released_and_deleted_with_the_group_not_with_a_member(
    grouping: World,
) -> None:
    await grouping.given(template(), sharing_group(), in_group("one"))
    group = grouping.server.get(GROUPS, ObjectRef(name="g", namespace="default"))
    assert group is not None
    (claim,) = grouping.server.list(CLAIMS)
    consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": group.ref.uid}
    status = {"allocation": ALLOCATION, "reservedFor": [consumer]}
    grouping.server.patch(CLAIMS, claim.ref, {"status": status}, subresource="status")
    grouping.server.patch(CLAIMS, claim.ref, {"metadata": {"finalizers": [FINALIZER]}})
    grouping.server.delete("pods", ObjectRef(name="one", namespace="default"), grace_period_s=0)
    await grouping.quiet()
    (claim,) = grouping.server.list(CLAIMS)
    assert claim.get("status.reservedFor") == [consumer]
    grouping.server.delete(GROUPS, group.ref)
    await grouping.quiet()
    assert list(grouping.server.list(CLAIMS)) == []


async def test_without_the_gate_each_member_gets_a_claim_of_its_own(world: World) -> None:
    await world.given(template(), sharing_group(), in_group("one"), in_group("two"))
    owners = {one.get("metadata.ownerReferences")[0]["name"] for one in world.server.list(CLAIMS)}
    assert owners == {"one", "two"}
