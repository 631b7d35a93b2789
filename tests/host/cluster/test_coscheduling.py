"""The phases of coscheduling's PodGroups, as their own controller writes them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from berth_bench.life.faulty_cluster import Fault, Faults, FaultyCluster
from berth_host.cluster.coscheduling import Member, PodGroupStatuses, next_status
from berth_host.model.clock import ManualClock
from berth_host.model.resources import COSCHEDULING_GROUPS
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import COSCHEDULING_LABEL
from berth_sim.cluster.cluster import MemoryCluster
from support.manifest_objects import pod_object


def members(*phases: str) -> list[Member]:
    return [Member(phase) for phase in phases]


@pytest.mark.parametrize(
    ("before", "phases", "after"),
    [
        ({}, ["Pending"] * 3, {"phase": "Pending"}),
        ({"phase": "Pending"}, ["Pending"] * 2, {"phase": "Pending"}),
        ({"phase": "Pending"}, ["Pending"] * 3, {"phase": "Scheduling"}),
        ({"phase": "Scheduling"}, ["Pending"] * 3, {"phase": "Scheduling"}),
        ({"phase": "Scheduling"}, ["Running"] * 2 + ["Pending"], {"phase": "Scheduling", "running": 2}),
        ({"phase": "Scheduling"}, ["Running"] * 3, {"phase": "Running", "running": 3}),
        ({"phase": "Running", "running": 3}, ["Running"] * 2, {"phase": "Pending", "running": 2}),
        (
            {"phase": "Running", "running": 3},
            ["Running"] * 2 + ["Succeeded"],
            {"phase": "Running", "running": 2, "succeeded": 1},
        ),
        (
            {"phase": "Running", "running": 1, "succeeded": 2},
            ["Succeeded"] * 3,
            {"phase": "Finished", "succeeded": 3},
        ),
        (
            {"phase": "Running", "running": 3},
            ["Running"] * 2 + ["Failed"],
            {"phase": "Failed", "running": 2, "failed": 1},
        ),
        ({"phase": "Scheduling"}, ["Pending", "Pending", "Failed"], {"phase": "Scheduling", "failed": 1}),
        ({"phase": "Failed", "failed": 1}, ["Running"] * 3, {"phase": "Failed", "failed": 1}),
        ({"phase": "Finished", "succeeded": 3}, [], {"phase": "Finished", "succeeded": 3}),
    ],
    ids=lambda value: None,
)
def test_phase_follows_from_the_members(
    before: Mapping[str, Any], phases: list[str], after: Mapping[str, Any]
) -> None:
    assert next_status(before, 3, members(*phases)) == after


def test_owner_is_written_when_scheduling_begins() -> None:
    owned = [Member("Pending"), Member("Pending", ("team/b", "team/a"))]
    assert next_status({"phase": "Pending"}, 2, owned) == {
        "phase": "Scheduling",
        "occupiedBy": "team/a,team/b",
    }


class Scene:
    """An embedded cluster with one group of three, whose statuses are written."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.clock = ManualClock(1_800_000_000)
        self.cluster = MemoryCluster(self.clock)
        self.faulty = FaultyCluster(self.cluster, self.clock, 0, faults or Faults())
        self.statuses = PodGroupStatuses(self.faulty, self.clock, "berth")

    async def __aenter__(self) -> Scene:
        await self.cluster.start(self.statuses.handle, ["pods", COSCHEDULING_GROUPS])
        self.statuses.begin()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.statuses.stop()
        await self.cluster.stop()

    def group(self, **more: Any) -> KubeObject:
        return self.cluster.server.create(
            {
                "apiVersion": "scheduling.x-k8s.io/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": "nginx", "namespace": "web", **more},
                "spec": {"scheduleTimeoutSeconds": 10, "minMember": 3},
            }
        )

    def pod(self, name: str, phase: str = "Pending", namespace: str = "web") -> KubeObject:
        made = pod_object(name, metadata={"namespace": namespace, "labels": {COSCHEDULING_LABEL: "nginx"}})
        made["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "nginx", "uid": "r"}
        ]
        made["status"] = {"phase": phase}
        return self.cluster.server.create(made, restore=True)

    def turn(self, pod: KubeObject, phase: str) -> None:
        self.cluster.server.patch("pods", pod.ref, {"status": {"phase": phase}}, subresource="status")

    async def status(self) -> dict[str, Any]:
        """Return the status once nothing is left to write."""
        while not (self.statuses.is_idle and self.cluster.undelivered_count == 0):
            await asyncio.sleep(0)
            self.clock.advance_to(self.clock.monotonic_s() + 0.1)
        found = self.cluster.server.get(COSCHEDULING_GROUPS, ObjectRef(name="nginx", namespace="web"))
        assert found is not None
        return dict(found.get("status") or {})


async def test_status_follows_the_pods_from_the_first_to_the_end() -> None:
    async with Scene() as scene:
        scene.group()
        assert await scene.status() == {"phase": "Pending"}
        pods = [scene.pod(f"m{i}") for i in range(3)]
        assert await scene.status() == {"phase": "Scheduling", "occupiedBy": "web/nginx"}
        for pod in pods:
            scene.turn(pod, "Running")
        assert await scene.status() == {"phase": "Running", "occupiedBy": "web/nginx", "running": 3}
        for pod in pods:
            scene.turn(pod, "Succeeded")
        assert await scene.status() == {"phase": "Finished", "occupiedBy": "web/nginx", "succeeded": 3}


async def test_pods_of_other_namespaces_do_not_count() -> None:
    async with Scene() as scene:
        scene.group()
        for i in range(3):
            scene.pod(f"m{i}", namespace="elsewhere")
        assert await scene.status() == {"phase": "Pending"}


async def test_pods_that_ended_before_this_host_led_are_counted() -> None:
    async with Scene() as scene:
        group = scene.group()
        scene.cluster.server.patch(
            COSCHEDULING_GROUPS,
            group.ref,
            {"status": {"phase": "Running", "running": 3}},
            subresource="status",
        )
        for i, phase in enumerate(["Running", "Succeeded", "Succeeded"]):
            scene.pod(f"m{i}", phase)
        assert await scene.status() == {"phase": "Running", "running": 1, "succeeded": 2}


async def test_deleted_members_bring_the_group_back_to_pending() -> None:
    async with Scene() as scene:
        scene.group()
        pods = [scene.pod(f"m{i}", "Running") for i in range(3)]
        assert (await scene.status())["phase"] == "Running"
        scene.cluster.server.delete("pods", pods[0].ref)
        assert await scene.status() == {"phase": "Pending", "occupiedBy": "web/nginx", "running": 2}


async def test_refused_writes_are_repeated() -> None:
    async with Scene() as scene:
        with scene.faulty.always("patch", Fault.UNAVAILABLE_BEFORE):
            scene.group()
            for _ in range(100):
                await asyncio.sleep(0)
                scene.clock.advance_to(scene.clock.monotonic_s() + 0.1)
            assert not scene.statuses.is_idle
        assert await scene.status() == {"phase": "Pending"}


async def test_group_that_took_two_days_to_begin_is_left_alone_and_told_of() -> None:
    async with Scene() as scene:
        group = scene.group(creationTimestamp="2027-01-01T00:00:00Z")
        late = {"status": {"phase": "Pending", "scheduleStartTime": "2027-02-01T00:00:00Z"}}
        scene.cluster.server.patch(COSCHEDULING_GROUPS, group.ref, late, subresource="status")
        for i in range(3):
            scene.pod(f"m{i}")
        assert (await scene.status())["phase"] == "Pending"
        (event,) = scene.cluster.server.events.recent
        assert (event.regarding.name, event.reason) == ("nginx", "Timeout")
