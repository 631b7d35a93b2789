"""Members of a group that share one PersistentVolumeClaim that waits for a node."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from berth_host.explain.diagnosis import Diagnosis
from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sim.cluster.volume_controller import VolumeController
from support.groups import condition_of, grouped, nodes_of, pod_group
from support.hosts import World, node, pod
from support.storage import CLAIMS, VOLUMES, claim, storage_class, volume
from support.waiting import PATIENCE_S

Json = dict[str, Any]
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
# A volume that is provisioned for one of the nodes is in a zone of this node alone.
NODES = [node(name, labels={HOSTNAME: name, ZONE: name}) for name in ("n1", "n2")]
LOCAL = storage_class("local", provisioner="kubernetes.io/no-provisioner")


class RejectsFirst:
    """Says no at Permit to the first member."""

    asked: list[str] = []  # noqa: RUF012  # of the class: the host makes the instance

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.asked.append(pod.name)
        return Status.unschedulable("not now") if len(self.asked) == 1 else Status.success()


def using(name: str, claim_name: str) -> Json:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}]
    return pod(name, volumes=volumes, schedulingGroup={"podGroupName": "g"})


def disk(name: str, on: str) -> Json:
    where = {"key": HOSTNAME, "operator": "In", "values": [on]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}}
    return volume(name, cls="local", local={"path": "/mnt"}, nodeAffinity=affinity)


def storage(kind: str) -> list[Json]:
    """Return a claim `data`: to provision, or for a disk that is there."""
    if kind == "provisioned":
        return [storage_class(), claim("data")]
    return [LOCAL, claim("data", cls="local"), disk("d1", "n2")]


def world_of(
    kind: str,
    *objects: Json,
    plugins: list[type] | None = None,
    on_attempt: Callable[[Diagnosis], None] = lambda _: None,
) -> World:
    world = grouped([*NODES, *objects], plugins or [], on_attempt=on_attempt)
    for item in storage(kind):
        world.server.create(item, restore=item["kind"].startswith("Persistent"))
    return world


async def ends(world: World, count: int) -> None:
    """Wait until so many members have a node, while the clock moves."""
    async with asyncio.timeout(PATIENCE_S):
        while len(nodes_of(world, "g")) < count:
            await world.settle()
            await asyncio.sleep(0)


@pytest.mark.parametrize("count", [2, 6])
@pytest.mark.parametrize("kind", ["provisioned", "local"])
async def test_gang_whose_members_share_a_claim_starts(kind: str, count: int) -> None:
    members = [using(f"g-{i}", "data") for i in range(count)]
    attempts: Counter[str] = Counter()
    world = world_of(
        kind,
        pod_group("g", least=count),
        *members,
        on_attempt=lambda diagnosis: attempts.update([diagnosis.pod.name]),
    )
    controller = VolumeController(world.server)
    async with world:
        controller.start()
        await ends(world, count)
        controller.stop()
        assert len(set(nodes_of(world, "g").values())) == 1
        assert condition_of(world, "g") == ("True", "Scheduled", "")
        assert max(attempts.values()) == 1, "a member was bound at its second attempt"


@pytest.mark.parametrize("kind", ["provisioned", "local"])
async def test_members_keep_the_volume_that_the_member_before_gives_back(kind: str) -> None:
    RejectsFirst.asked.clear()
    members = [using(f"g-{i}", "data") for i in range(2)]
    world = world_of(kind, pod_group("g"), *members, plugins=[RejectsFirst])
    controller = VolumeController(world.server)
    async with world:
        controller.start()
        await ends(world, 2)
        controller.stop()
        assert len(set(nodes_of(world, "g").values())) == 1
        bound = world.server.get(CLAIMS, ObjectRef(namespace="default", name="data"))
        assert bound is not None
        found = world.server.get(VOLUMES, ObjectRef(name=bound.get("spec.volumeName")))
        assert found is not None
        assert found.get("spec.claimRef.uid") == bound.ref.uid
