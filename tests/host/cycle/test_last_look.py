"""Right before its Binding a pod looks at its node again: what others took meanwhile sends the pod back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar

import pytest
from berth_sdk.extension_points import Plugin
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.results import PermitResult
from berth_sdk.status import Status
from hypothesis import given, settings
from hypothesis import strategies as st
from support.held_groups import Slow
from support.hosts import World, node, pod
from support.ledger import Ledger
from support.tiers import examples
from support.waiting import PATIENCE_S


class Holds(Plugin):
    """Holds every pod whose name begins with `web` at Permit, the first time."""

    held: ClassVar[set[str]] = set()

    def permit(self, state: object, pod: Pod, node_name: str) -> PermitResult | Status:
        if not pod.name.startswith("web") or pod.name in self.held:
            return Status.success()
        self.held.add(pod.name)
        return PermitResult.wait(600.0)


@pytest.fixture(autouse=True)
def nothing_before() -> None:
    Ledger.empty()
    Holds.held.clear()


def bound(name: str, at: str = "n0", *, cpu: str = "1", **more: Any) -> dict[str, Any]:
    """Return a pod that another scheduler has bound."""
    return pod(name, cpu=cpu, nodeName=at, schedulerName="other", **more)


def with_port(item: dict[str, Any]) -> dict[str, Any]:
    item["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return item


async def seen(world: World, names: Iterable[str]) -> None:
    """Wait until the host has seen these pods on nodes."""
    async with asyncio.timeout(PATIENCE_S):
        while not all((one := world.host.objects.pod(f"default/{n}")) and one.node_name for n in names):
            await asyncio.sleep(0)


async def let_go(world: World) -> World:
    """Let the waiting pods go, and run until nothing moves."""
    for waiting in world.host.waiting_pods.list():
        world.host.waiting_pods.allow("Holds", waiting.pod.uid, waiting.cycle_id)
    return await world.settle()


async def others_bind(world: World, *items: dict[str, Any]) -> None:
    for item in items:
        world.server.create(item)
    await seen(world, [item["metadata"]["name"] for item in items])


async def test_pod_whose_node_others_filled_goes_back_and_gets_another_node() -> None:
    async with World([node("n0"), pod("web", cpu="2")], [Holds, Ledger]) as world:
        await world.until_waiting(1)
        await others_bind(world, bound("theirs", cpu="3"))
        world.server.create(node("n1"))
        await let_go(world)
        assert world.node_of("web") == "n1"
        assert Ledger.unreserved == ["web"]
        assert world.host.binding.filled_count == 1
        [note] = [one.note for one in world.server.events.recent if one.reason == "FailedScheduling"]
        assert note == (
            "node n0 was filled by others after it was chosen: Insufficient cpu; the pod is tried again"
        )
        assert world.everything_is_accounted_for()


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (pod("web", cpu="2"), [bound("a", cpu="3")]),
        (pod("web", cpu="2"), [bound("a", cpu="1500m"), bound("b", cpu="1500m")]),
        (pod("web"), [bound("a", cpu="1m"), bound("b", cpu="1m"), bound("c", cpu="1m")]),
        (with_port(pod("web")), [with_port(bound("a"))]),
    ],
)
async def test_every_kind_of_room_counts(mine: dict[str, Any], theirs: list[dict[str, Any]]) -> None:
    async with World([node("n0", pods="3"), mine], [Holds, Ledger]) as world:
        await world.until_waiting(1)
        await others_bind(world, *theirs)
        await let_go(world)
        assert (world.node_of("web"), world.host.binding.filled_count) == ("", 1)
        assert Ledger.unreserved[0] == "web"
        assert world.everything_is_accounted_for()


async def test_node_that_others_fill_during_the_cycle_sends_the_pod_back() -> None:
    """The choice was made on the cycle's snapshot, and a cycle may wait for a plugin's answer."""
    Slow.reset("web")
    async with World([node("n0"), pod("web", cpu="2")], [Slow, Ledger]) as world:
        await Slow.reached.wait()
        await others_bind(world, bound("theirs", cpu="3"))
        Slow.go_on.set()
        await world.settle()
        assert (world.node_of("web"), world.host.binding.filled_count) == ("", 1)
        assert Ledger.unreserved == ["web"]
        assert world.host.cache.overfull.names() == []
        assert world.everything_is_accounted_for()


async def test_pod_that_still_fits_is_bound() -> None:
    async with World([node("n0"), pod("web", cpu="2")], [Holds]) as world:
        await world.until_waiting(1)
        await others_bind(world, bound("theirs", cpu="2"))
        await let_go(world)
        assert (world.node_of("web"), world.host.binding.filled_count) == ("n0", 0)


async def test_as_many_of_several_waiting_pods_go_back_as_must() -> None:
    pods = [pod(f"web{number}", cpu="1") for number in range(4)]
    async with World([node("n0"), *pods], [Holds]) as world:
        await world.until_waiting(4)
        await others_bind(world, bound("theirs", cpu="2"))
        await let_go(world)
        assert sum(world.node_of(f"web{number}") == "n0" for number in range(4)) == 2
        assert world.host.binding.filled_count == 2
        assert world.host.cache.overfull.names() == []


async def test_node_that_offers_less_sends_its_pod_back() -> None:
    async with World([node("n0"), pod("web", cpu="2")], [Holds]) as world:
        await world.until_waiting(1)
        now = world.server.get("nodes", ObjectRef(name="n0"))
        assert now is not None
        await world.cluster.patch(
            "nodes", now.ref, {"status": {"allocatable": {"cpu": "1"}}}, subresource="status"
        )
        async with asyncio.timeout(PATIENCE_S):
            while world.host.cache.node_info("n0").node.allocatable["cpu"] != 1000:  # type: ignore[union-attr]
                await asyncio.sleep(0)
        await let_go(world)
        assert (world.node_of("web"), world.host.binding.filled_count) == ("", 1)


@pytest.mark.parametrize("version", ["1.36", "1.37"])
async def test_emulated_version_binds_as_kube_scheduler_does(version: str) -> None:
    async with World([node("n0"), pod("web", cpu="2")], [Holds], emulated_version=version) as world:
        await world.until_waiting(1)
        await others_bind(world, bound("theirs", cpu="3"))
        await let_go(world)
        assert (world.node_of("web"), world.host.binding.filled_count) == ("n0", 0)
        assert world.host.cache.overfull.names() == ["n0"]


async def test_profile_that_does_not_judge_room_binds() -> None:
    configuration = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled: [{name: Holds}]
    filter:
      disabled: [{name: NodeResourcesFit}]
"""
    async with World([node("n0"), pod("web", cpu="2")], [Holds], configuration=configuration) as world:
        await world.until_waiting(1)
        await others_bind(world, bound("theirs", cpu="3"))
        await let_go(world)
        assert world.node_of("web") == "n0"


async def test_resource_that_the_profile_ignores_sends_nobody_back() -> None:
    configuration = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: Holds}]}}
  pluginConfig:
  - name: NodeResourcesFit
    args: {ignoredResources: [example.com/license]}
"""
    host = node("n0")
    host["status"]["allocatable"]["example.com/license"] = "1"
    mine, first = pod("web"), bound("first")
    for item, count in ((mine, "1"), (first, "2")):
        for amounts in (item["spec"]["containers"][0]["resources"],):
            amounts["requests"]["example.com/license"] = count
            amounts["limits"] = {"example.com/license": count}
    async with World([host, first, mine], [Holds], configuration=configuration) as world:
        await world.until_waiting(1)
        await others_bind(world, bound("theirs"))
        await let_go(world)
        assert world.node_of("web") == "n0"


@settings(max_examples=examples(15), deadline=None)
@given(
    mine=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    theirs=st.lists(st.integers(1, 4), max_size=4),
)
def test_no_binding_takes_room_that_the_host_knows_to_be_taken(mine: list[int], theirs: list[int]) -> None:
    """Whatever others bind while pods wait, those that the host binds fit beside it, and no other would."""

    async def run() -> None:
        Holds.held.clear()
        pods = [pod(f"web{number}", cpu=str(cpu)) for number, cpu in enumerate(mine)]
        async with World([node("n0", cpu="8"), *pods], [Holds]) as world:
            while world.host.queue.has_ready or world.host.scheduler.is_busy:
                await asyncio.sleep(0)
            await others_bind(world, *(bound(f"o{n}", cpu=str(cpu)) for n, cpu in enumerate(theirs)))
            await let_go(world)
            names = [number for number in range(len(mine)) if world.node_of(f"web{number}")]
            ours = sum(mine[number] for number in names)
            assert not ours or ours + sum(theirs) <= 8
            left = [mine[number] for number in range(len(mine)) if number not in names]
            assert all(cpu + ours + sum(theirs) > 8 for cpu in left)
            assert world.everything_is_accounted_for()

    asyncio.run(run())
