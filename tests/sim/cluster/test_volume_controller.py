"""The embedded cluster's controllers of volumes: what they bind, create, and leave alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sim.cluster.server import ApiServer
from berth_sim.cluster.volume_controller import VolumeController
from support.hosts import node, pod
from support.storage import CLAIMS, VOLUMES, claim, storage_class, volume

Json = dict[str, Any]
SELECTED = {"volume.kubernetes.io/selected-node": "n1"}
LOCAL = storage_class("local", provisioner="kubernetes.io/no-provisioner", mode="Immediate")


class World:
    """A server with a running controller."""

    def __init__(self) -> None:
        self.server = ApiServer(ManualClock(1_767_225_600.0))
        self.controller = VolumeController(self.server)

    async def given(self, *objects: Json) -> None:
        for item in objects:
            self.server.create(item)
        await self.quiet()

    async def quiet(self) -> None:
        """Wait until the controller is idle."""
        while not self.controller.is_idle:
            await asyncio.sleep(0)

    def claim(self, name: str) -> KubeObject:
        found = self.server.get(CLAIMS, ObjectRef(name=name, namespace="default"))
        assert found is not None
        return found

    def volume_of(self, name: str) -> KubeObject | None:
        """Return the volume of a claim that is bound from both sides; None without one."""
        found = self.claim(name)
        named = found.get("spec.volumeName", "")
        if not named:
            assert found.get("status.phase") != "Bound"
            return None
        bound = self.server.get(VOLUMES, ObjectRef(name=named))
        assert bound is not None
        assert found.get("metadata.annotations", {})["pv.kubernetes.io/bind-completed"] == "yes"
        assert bound.get("spec.claimRef.uid") == found.ref.uid
        assert (found.get("status.phase"), bound.get("status.phase")) == ("Bound", "Bound")
        return bound


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    made.controller.start()
    yield made
    made.controller.stop()


async def test_free_volume_is_available(world: World) -> None:
    await world.given(volume("pv"))
    (free,) = world.server.list(VOLUMES)
    assert free.get("status.phase") == "Available"


async def test_claim_that_binds_at_once_gets_the_smallest_volume_that_suits(world: World) -> None:
    sizes = [volume("large", cls="local", size="3Gi"), volume("fits", cls="local", size="2Gi")]
    await world.given(LOCAL, *sizes, volume("small", cls="local"), volume("other", size="2Gi"))
    await world.given(claim("data", cls="local", size="2Gi"), claim("more", cls="local", size="9Gi"))
    bound = world.volume_of("data")
    assert bound is not None
    assert bound.ref.name == "fits"
    assert world.volume_of("more") is None


async def test_claim_that_waits_gets_a_volume_for_its_node(world: World) -> None:
    where = node("n1", labels={"topology.kubernetes.io/zone": "a"})
    await world.given(storage_class(), where, claim("data"))
    assert world.volume_of("data") is None
    world.server.patch(CLAIMS, world.claim("data").ref, {"metadata": {"annotations": SELECTED}})
    await world.quiet()
    made = world.volume_of("data")
    assert made is not None
    (term,) = made.get("spec.nodeAffinity.required.nodeSelectorTerms")
    wanted = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}
    assert term["matchExpressions"] == [wanted]
    assert made.get("spec.capacity.storage") == "1Gi"


async def test_volume_that_names_a_claim_is_bound_to_it(world: World) -> None:
    await world.given(storage_class(), claim("data"), volume("pv", bound_to="data"))
    bound = world.volume_of("data")
    assert bound is not None
    assert bound.ref.name == "pv"


async def test_ephemeral_volume_gets_a_claim_that_the_pod_owns(world: World) -> None:
    template = {"spec": claim("x", cls="now")["spec"]}
    volumes = [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]
    await world.given(storage_class("now", mode="Immediate"), pod("web", volumes=volumes))
    (owner,) = world.claim("web-v").get("metadata.ownerReferences")
    assert (owner["name"], owner["controller"]) == ("web", True)
    assert world.volume_of("web-v") is not None


async def test_volume_of_another_owner_is_left_alone(world: World) -> None:
    taken = volume("pv", bound_to="data")
    taken["spec"]["claimRef"]["uid"] = "another"
    await world.given(storage_class(), claim("data"), taken)
    assert world.volume_of("data") is None
