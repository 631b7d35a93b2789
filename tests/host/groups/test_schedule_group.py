"""The cycle of a pod group in a whole host: all or nothing, its messages, and what goes wrong half-way."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.kube_object import ObjectRef
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_group import GroupView, Placement
from berth_sdk.status import SUCCESS, Status
from support.groups import (
    child_group,
    condition_of,
    grouped,
    member,
    members,
    message_of,
    nodes_of,
    pod_group,
)
from support.held_groups import Counting, Slow
from support.hosts import World, node, pod
from support.waiting import PATIENCE_S, until

PLACED = ("True", "Scheduled", "")


async def test_gang_is_placed_as_a_whole() -> None:
    async with grouped([node("n0"), node("n1"), pod_group("g", least=3), *members("g", 3, cpu="2")]) as world:
        await world.settle()
        assert sorted(nodes_of(world, "g")) == ["g-0", "g-1", "g-2"]
        assert condition_of(world, "g") == PLACED


async def test_gang_that_does_not_fit_places_nobody_and_says_why() -> None:
    async with grouped([node("n0"), pod_group("g", least=3), *members("g", 3, cpu="2")]) as world:
        await world.settle()
        assert nodes_of(world, "g") == {}
        short = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
        status, reason, message = condition_of(world, "g")
        assert (status, reason) == ("False", "Unschedulable")
        assert message.startswith(short)
        assert message_of(world, "g-0").startswith(f"pod group is unschedulable, {short}")
        assert message_of(world, "g-2") == "0/1 nodes are available: 1 Insufficient cpu."
        assert world.host.cache.pod_count == 0
        assert world.host.snapshot.mark() == 0


async def test_members_of_a_basic_group_that_fit_are_placed() -> None:
    async with grouped([node("n0"), pod_group("g"), *members("g", 3, cpu="2")]) as world:
        await world.settle()
        assert sorted(nodes_of(world, "g")) == ["g-0", "g-1"]


async def test_second_of_two_gangs_starts_when_the_first_has_ended() -> None:
    first, second = members("a", 3, cpu="2"), members("b", 3, cpu="2")
    mixed = [one for pair in zip(first, second, strict=True) for one in pair]
    groups = [pod_group("a", least=3), pod_group("b", least=3)]
    async with grouped([node("n0"), node("n1"), *groups, *mixed]) as world:
        await world.settle()
        placed = {name for name in ("a", "b") if nodes_of(world, name)}
        assert len(placed) == 1
        done = placed.pop()
        other = "b" if done == "a" else "a"
        assert len(nodes_of(world, done)) == 3
        for name in list(nodes_of(world, done)):
            world.server.delete("pods", ObjectRef(namespace="default", name=name), grace_period_s=0)
        await world.settle()
        assert len(nodes_of(world, other)) == 3


async def test_members_of_other_priorities_are_an_error_of_the_group() -> None:
    wrong = member("g-0", "g", priority=5)
    async with grouped([node("n0"), pod_group("g", least=2), wrong, member("g-1", "g")]) as world:
        await asyncio.sleep(0)
        await _until(world, lambda: condition_of(world, "g")[0] == "False")
        text = (
            "all pods in a single pod group should have the same priority as the pod group's priority,"
            " got 5 and 0"
        )
        assert condition_of(world, "g") == ("False", "SchedulerError", text)
        assert message_of(world, "g-1") == text
        assert nodes_of(world, "g") == {}


async def _until(world: World, done: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not done():
            world.host.check()
            await asyncio.sleep(0)


async def test_reservations_of_a_trial_are_given_back_and_made_again_for_good() -> None:
    Counting.reset()
    async with grouped([node("n0"), pod_group("g", least=2), *members("g", 2)], [Counting]) as world:
        await world.settle()
        assert Counting.trials == [("g-0", True), ("g-1", True), ("g-0", False), ("g-1", False)]
        assert Counting.held == {"g-0": "n0", "g-1": "n0"}


class Looks(Plugin):
    """Notes at Reserve of each pod which pods are on the node in the snapshot. Refuses the pod `g-2`."""

    needs = (Need.nodes(), Need.pods())
    seen: ClassVar[list[tuple[str, bool, list[str]]]] = []

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        found = self.handle.snapshot().node_named(node_name)
        assert found is not None
        assert state.trial is not None
        self.seen.append((pod.name, state.trial.tentative, sorted(one.name for one in found.pods)))
        return Status.unschedulable("not this one") if pod.name == "g-2" else SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        return None


async def test_snapshot_at_reserve_has_the_members_before_but_not_the_pod_itself() -> None:
    """So a plugin that was written for single pods counts each pod once."""
    Looks.seen.clear()
    async with grouped([node("n0"), pod_group("g", least=3), *members("g", 4)], [Looks]) as world:
        await world.settle()
        assert sorted(nodes_of(world, "g")) == ["g-0", "g-1", "g-3"]
        before = [("g-0", []), ("g-1", ["g-0"]), ("g-2", ["g-0", "g-1"]), ("g-3", ["g-0", "g-1"])]
        trial = [(name, True, there) for name, there in before]
        decided = [(name, False, there) for name, there in before if name != "g-2"]
        assert Looks.seen[:7] == trial + decided
        assert world.host.snapshot.mark() == 0
        assert world.everything_is_accounted_for()


async def test_reservations_of_a_gang_that_fails_are_given_back() -> None:
    Counting.reset()
    async with grouped([node("n0"), pod_group("g", least=3), *members("g", 3, cpu="2")], [Counting]) as world:
        await world.settle()
        assert Counting.trials
        assert Counting.held == {}


async def test_member_that_reserve_rejects_is_not_placed_and_leaves_no_trace() -> None:
    Counting.reset()
    Counting.rejected.add("g-1")
    async with grouped([node("n0"), pod_group("g"), *members("g", 3)], [Counting]) as world:
        await world.settle()
        assert sorted(nodes_of(world, "g")) == ["g-0", "g-2"]
        assert sorted(Counting.held) == ["g-0", "g-2"]
        assert message_of(world, "g-1") == "0/1 nodes are available: 1 not this one."


async def test_plugin_that_fails_for_one_member_fails_the_group_with_its_error() -> None:
    Counting.reset()
    Counting.raises.add("g-1")
    async with grouped([node("n0"), pod_group("g", least=3), *members("g", 3)], [Counting]) as world:
        await _until(world, lambda: condition_of(world, "g")[0] == "False")
        _, reason, message = condition_of(world, "g")
        assert reason == "SchedulerError"
        assert message.startswith("failed to schedule other pod from a pod group: running Reserve plugin")
        assert "no more room in the book" in message_of(world, "g-1")
        assert Counting.held == {}
        assert nodes_of(world, "g") == {}
        Counting.raises.clear()
        await world.settle()
        assert len(nodes_of(world, "g")) == 3


async def test_member_deleted_while_a_plugin_judges_it_is_missing_and_the_condition_says_so() -> None:
    Slow.reset("g-1")
    Counting.reset()
    objects = [node("n0"), pod_group("g", least=3), *members("g", 3)]
    async with grouped(objects, [Slow, Counting]) as world:
        await asyncio.wait_for(Slow.reached.wait(), PATIENCE_S)
        world.server.delete("pods", ObjectRef(namespace="default", name="g-1"), grace_period_s=0)
        await _until(world, lambda: condition_of(world, "g")[0] == "False")
        assert condition_of(world, "g")[2].startswith(
            "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining, deleted meanwhile: default/g-1"
        )
        assert Counting.held == {}
        assert nodes_of(world, "g") == {}


async def test_placed_member_deleted_while_another_is_judged_does_not_count() -> None:
    Slow.reset("g-2")
    Counting.reset()
    objects = [node("n0"), pod_group("g", least=3), *members("g", 3)]
    async with grouped(objects, [Slow, Counting]) as world:
        await asyncio.wait_for(Slow.reached.wait(), PATIENCE_S)
        world.server.delete("pods", ObjectRef(namespace="default", name="g-0"), grace_period_s=0)
        await asyncio.sleep(0)
        Slow.go_on.set()
        await _until(world, lambda: condition_of(world, "g")[0] == "False")
        assert "deleted meanwhile: default/g-0" in condition_of(world, "g")[2]
        assert Counting.held == {}
        assert nodes_of(world, "g") == {}


async def test_host_that_stops_in_a_groups_cycle_gives_everything_back() -> None:
    Slow.reset("g-2")
    Counting.reset()
    objects = [node("n0"), pod_group("g", least=3), *members("g", 3)]
    world = grouped(objects, [Slow, Counting])
    async with world:
        await asyncio.wait_for(Slow.reached.wait(), PATIENCE_S)
        assert world.host.scheduler.is_busy
    assert Counting.held == {}
    assert world.host.cache.assumed_count == 0
    assert {info.pod.name for info in world.host.queue.pods()} == {"g-0", "g-1", "g-2"}
    assert not len(world.host.queue.in_flight)


async def test_plain_pods_are_scheduled_beside_groups() -> None:
    objects = [node("n0"), pod_group("g", least=9), *members("g", 3), pod("alone")]
    async with grouped(objects) as world:
        await world.settle()
        found = world.server.get("pods", ObjectRef(namespace="default", name="alone"))
        assert found is not None
        assert found.get("spec.nodeName") == "n0"
        assert nodes_of(world, "g") == {}


TREES = {"TopologyAwareWorkloadScheduling": True, "CompositePodGroup": True}


def tree(least: int, *children: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a composite group that needs `least` of these groups."""
    root = {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": "root", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minGroupCount": least}}},
    }
    return [root, *children]


def child(name: str, least: int) -> dict[str, Any]:
    return child_group(name, least=least)


async def test_child_that_fits_beside_one_that_cannot_gets_the_text_of_the_tree_once() -> None:
    groups = tree(2, child("a", 1), child("b", 1))
    pods = [*members("a", 2), *members("b", 1, cpu="9")]
    async with grouped([node("n0"), *groups, *pods], gates=TREES) as world:
        await world.settle()
        assert nodes_of(world, "a") == {}
        wanted = (
            "pod group is unschedulable, 0/1 placements are available, first placement status:"
            " minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
        )
        assert [message_of(world, f"a-{i}") for i in range(2)] == [wanted, wanted]
        assert message_of(world, "b-0") == "0/1 nodes are available: 1 Insufficient cpu."


async def test_error_about_one_child_is_the_error_of_all_groups_of_the_tree() -> None:
    class Fails(Plugin):
        needs = (Need.nodes(),)

        def filter(self, state: CycleState, pod: Pod, node: object) -> Status:
            return Status.error("out of order") if pod.name.startswith("b") else SUCCESS

    groups = tree(1, child("a", 1), child("b", 1))
    async with grouped(
        [node("n0"), *groups, *members("a", 1), *members("b", 1)], [Fails], gates=TREES
    ) as world:
        await world.settle()
        for name in ("a", "b"):
            status, reason, message = condition_of(world, name)
            assert (status, reason) == ("False", "SchedulerError")
            assert message.startswith("composite pod group evaluation failed due to child error:")
            assert message_of(world, f"{name}-0") == message


async def test_child_whose_members_all_run_does_not_keep_its_tree_back() -> None:
    groups = tree(2, child("a", 1), child("b", 1))
    async with grouped([node("n0"), *groups, *members("a", 1), *members("b", 1)], gates=TREES) as world:
        await world.settle()
        assert len(nodes_of(world, "a")) == len(nodes_of(world, "b")) == 1
        world.server.create(members("b", 2)[1])
        await world.settle()
        assert sorted(nodes_of(world, "b")) == ["b-0", "b-1"]


async def test_gang_with_a_topology_that_lost_a_member_is_unschedulable_not_an_error() -> None:
    zone = "topology.kubernetes.io/zone"
    group = pod_group("g", least=2, schedulingConstraints={"topology": [{"key": zone}]})
    gates = {"TopologyAwareWorkloadScheduling": True}
    pods = members("g", 2, cpu="3")
    async with grouped([node("n0", labels={zone: "a"}), group, *pods], gates=gates) as world:
        await world.settle()
        world.server.delete("pods", ObjectRef(namespace="default", name="g-0"), grace_period_s=0)
        await world.settle()
        status, reason, message = condition_of(world, "g")
        assert (status, reason) == ("False", "Unschedulable")
        assert "0/1 placements are available, first placement status: pod group is unsched" in message


async def test_gang_whose_members_are_deleted_before_they_are_tried_is_unschedulable_not_an_error() -> None:
    class Deletes(Plugin):
        """Deletes the first member of a gang whose cycle has begun."""

        async def placement_generate(
            self, state: CycleState, group: GroupView, parent: Placement
        ) -> list[Placement]:
            ref = ObjectRef(namespace="default", name="g-0")
            if world.server.get("pods", ref) is not None:
                world.server.delete("pods", ref, grace_period_s=0)
            await until(lambda: world.host.objects.pod("default/g-0") is None)
            return [parent]

    world = grouped([node("n0"), pod_group("g", least=2), *members("g", 2)], [Deletes])
    async with world:
        await _until(world, lambda: condition_of(world, "g")[0] == "False")
        status, reason, message = condition_of(world, "g")
        assert (status, reason) == ("False", "Unschedulable")
        assert "deleted meanwhile: default/g-0" in message
