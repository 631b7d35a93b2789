"""The host counts the resources that it needs before it follows the cluster, and watches exactly these."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest
from berth_host.cluster import watching as watching_module
from berth_host.cluster.port import WatchEvent
from berth_host.cluster.watching import Watching
from berth_host.errors.cluster import UnavailableError
from berth_host.model.clock import ManualClock
from berth_sdk.extension_points import Plugin
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.runtime.descriptor import describe
from berth_sdk.status import Status
from berth_sim.cluster.cluster import MemoryCluster
from support.hosts import node

SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"ports": [{"port": 80}]},
}


class ReadsServices(Plugin):
    """Reads a resource that no other plugin reads here."""

    needs = (Need.objects("services"),)
    events = ()

    def filter(self, state: object, pod: Pod, node: object) -> Status:
        return Status.success()


NEW = (describe(ReadsServices, "ReadsServices"),)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster(ManualClock(0.0))
    for item in (node("n0"), SERVICE):
        made.server.create(item)
    return made


def kinds(seen: list[WatchEvent]) -> list[str]:
    return sorted(event.kind for event in seen)


async def test_resource_that_is_declared_before_is_listed_with_the_rest(cluster: MemoryCluster) -> None:
    watching = Watching(cluster)
    watching.need({"pods", "nodes"})
    await watching.declare(NEW)
    assert watching.needed == {"pods", "nodes", "services"}
    seen: list[WatchEvent] = []
    await watching.follow(seen.append)
    assert kinds(seen) == ["Node", "Service"]
    await cluster.stop()


async def test_resource_that_is_declared_later_is_there_when_that_returns(cluster: MemoryCluster) -> None:
    watching = Watching(cluster)
    watching.need({"nodes"})
    seen: list[WatchEvent] = []
    await watching.follow(seen.append)
    assert kinds(seen) == ["Node"]
    await watching.declare(NEW)
    assert kinds(seen) == ["Node", "Service"]
    assert watching.needed == {"nodes", "services"}
    await watching.declare(NEW)
    assert kinds(seen) == ["Node", "Service"]
    await cluster.stop()


async def test_the_successor_of_a_host_asks_the_cluster_that_is_followed_already(
    cluster: MemoryCluster,
) -> None:
    seen: list[WatchEvent] = []
    await Watching(cluster).follow(seen.append)
    successor = Watching(cluster)
    successor.take_over()
    await successor.declare(NEW)
    assert kinds(seen) == ["Service"]
    await cluster.stop()


async def test_resource_that_the_cluster_does_not_hand_over_is_not_needed(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the next attachment asks for it again."""

    async def watch(resources: Collection[str]) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(watching_module, "WATCH_S", 0.05)
    monkeypatch.setattr(cluster, "watch", watch)
    watching = Watching(cluster)
    watching.take_over()
    with pytest.raises(UnavailableError, match=r"services: not listed within 0.05 s; .*watch.failed"):
        await watching.declare(NEW)
    assert watching.needed == frozenset()
