"""Gangs that lost members: refilled, evicted after the grace, or left alone; with a whole host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from berth_bench.life.faulty_cluster import Fault, Faults
from berth_host.cluster.port import EventRecord
from berth_host.explain.make_group_answer import group_answer
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import COSCHEDULING_LABEL
from berth_sdk.rfc3339 import format_time
from support.coscheduling import COSCHEDULING_PROFILE, their_group
from support.groups import GROUPS, condition_of, member, members, pod_group
from support.hosts import START_S, World, node, pod
from support.waiting import PATIENCE_S

PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: GangScheduling
    args: {graceSeconds: 60, repair: REPAIR}
"""
EVICT = PROFILE.replace("REPAIR", "Evict")
REFILL = PROFILE.replace("REPAIR", "Refill")
KEY = "podgroup/default/g"
GRACE_S = 60.0
FINALIZER = "tests/stays"
AT_ONCE = Faults(turns=0, reorder=False)
NODES = [node(f"n{i}", cpu="1") for i in range(3)]


def gang(least: int = 3, **annotations: str) -> dict[str, Any]:
    made = pod_group("g", least=least)
    made["metadata"]["annotations"] = {
        f"gangs.berth.io/{name.replace('_', '-')}": text for name, text in annotations.items()
    }
    return made


def a_world(
    objects: list[dict[str, Any]] | None = None, *, configuration: str = EVICT, faults: Faults | None = None
) -> World:
    """Return a world with a gang of three on three nodes, one member on each."""
    given = [*NODES, gang(), *members("g", 3)] if objects is None else objects
    return World(given, configuration=configuration, gates=GROUPS, faults=faults)


def ref(name: str) -> ObjectRef:
    return ObjectRef(namespace="default", name=name)


def lose(world: World, name: str) -> None:
    """Lose a member and its node."""
    world.server.delete("nodes", ObjectRef(name=world.node_of(name)))
    world.server.delete("pods", ref(name))


def turn(world: World, name: str, phase: str) -> None:
    world.server.patch("pods", ref(name), {"status": {"phase": phase}}, subresource="status")


def names(world: World) -> list[str]:
    return sorted(item.ref.name for item in world.server.list("pods"))


async def after(world: World, seconds: float) -> None:
    """Settle, now and after so many seconds."""
    await world.settle()
    world.clock.advance(seconds)
    await world.settle()


async def until(world: World, condition: Callable[[], object]) -> None:
    """Run the loop, and move the clock, until a condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            for _ in range(20):
                await asyncio.sleep(0)
            world.clock.advance(0.5)


def events(world: World, reason: str) -> list[EventRecord]:
    return [event for event in world.server.events.recent if event.reason == reason]


def refilling(world: World) -> bool:
    return world.host.repair.is_refilling(KEY)


# --- evicted, or refilled in time --------------------------------------------------------------------


async def test_what_is_left_is_evicted_after_the_grace_and_the_group_starts_anew() -> None:
    async with a_world() as world:
        await world.settle()
        lose(world, "g-0")
        await after(world, GRACE_S - 1)
        assert names(world) == ["g-1", "g-2"]
        assert refilling(world)
        lost = events(world, "GangLostMembers")
        assert [(one.regarding.name, one.regarding_kind, one.type) for one in lost] == [
            ("g", "PodGroup", "Warning")
        ]
        assert lost[0].note == (
            "2 members have a node, 3 are needed; those that are left are evicted at 2026-01-01T00:01:00Z "
            "unless the lost ones are replaced"
        )
        await after(world, 1)
        assert names(world) == []
        assert not refilling(world)
        evicted = {one.regarding.name: one for one in events(world, "GangEvicted")}
        assert set(evicted) == {"g", "g-1", "g-2"}
        why = "pod group default/g had fewer than 3 members with a node for 1m0s"
        assert evicted["g-1"].note == f"Evicted: {why}"
        assert evicted["g"].note == f"evicts the 2 other members, so that the group starts anew: {why}"
        assert world.host.repair.evicted_count == 2

        for made in members("g", 3):
            world.server.create(made)
        await after(world, 10 * GRACE_S)
        assert [world.node_of(f"g-{i}") for i in range(3)] == [""] * 3, "two nodes, none of them kept"
        world.server.create(node("new", cpu="1"))
        await world.settle()
        assert {world.node_of(f"g-{i}") for i in range(3)} == {"n1", "n2", "new"}
        await after(world, 10 * GRACE_S)
        assert names(world) == ["g-0", "g-1", "g-2"]


async def test_members_are_marked_before_they_are_deleted() -> None:
    objects = [*NODES, gang(), *members("g", 3)]
    for made in objects[-3:]:
        made["metadata"]["finalizers"] = [FINALIZER]
    async with a_world(objects) as world:
        await world.settle()
        world.server.patch("pods", ref("g-0"), {"metadata": {"finalizers": None}})
        lose(world, "g-0")
        await after(world, GRACE_S)
        for name in ("g-1", "g-2"):
            left = world.pod(name)
            assert left is not None
            assert left.get("metadata.deletionTimestamp") is not None
            marks = [one for one in left.get("status.conditions", []) if one["type"] == "DisruptionTarget"]
            assert [(one["status"], one["reason"], one["message"]) for one in marks] == [
                (
                    "True",
                    "EvictionByGangRepair",
                    "default-scheduler: evicting what is left of pod group default/g",
                )
            ]
        await after(world, 10 * GRACE_S)
        assert world.host.repair.evicted_count == 2, "none is evicted twice"
        # Members that are leaving do not count for the new start.
        for made in members("g", 4)[3:]:
            world.server.create(made)
        world.server.create(node("new", cpu="1"))
        await world.settle()
        assert world.node_of("g-3") == ""


async def test_member_that_is_replaced_in_the_last_second_saves_the_group() -> None:
    async with a_world() as world:
        await world.settle()
        lose(world, "g-0")
        await after(world, GRACE_S - 1)
        world.server.create(node("new", cpu="1"))
        world.server.create(member("again", "g"))
        await world.settle()
        assert world.node_of("again") == "new"
        assert not refilling(world)
        await after(world, 10 * GRACE_S)
        assert names(world) == ["again", "g-1", "g-2"]
        assert events(world, "GangEvicted") == []


async def test_replacement_counts_from_the_moment_in_which_it_has_a_node() -> None:
    async with a_world(faults=AT_ONCE) as world:
        await world.settle()
        assert world.faulty is not None
        lose(world, "g-0")
        await world.settle()
        gate = world.faulty.gate("bind")
        world.server.create(member("again", "g"))
        world.server.create(node("new", cpu="1"))
        await asyncio.wait_for(gate.arrived.wait(), PATIENCE_S)
        world.clock.advance(10 * GRACE_S)
        for _ in range(50):
            await asyncio.sleep(0)
        assert names(world) == ["again", "g-1", "g-2"]
        world.faulty.script("get", Fault.FORBIDDEN)
        gate.open.set()
        await world.settle()
        assert names(world) == ["again", "g-1", "g-2"]


async def test_member_on_a_node_that_is_gone_counts_as_lost_while_it_terminates() -> None:
    objects = [*NODES, gang(), *members("g", 3)]
    objects[-3]["metadata"]["finalizers"] = [FINALIZER]
    async with a_world(objects) as world:
        await world.settle()
        world.server.delete("pods", ref("g-0"))
        await world.settle()
        assert refilling(world)
        world.server.create(member("again", "g"))
        world.server.create(node("new", cpu="1"))
        await world.settle()
        assert world.node_of("again") == "new"
        assert not refilling(world)


@pytest.mark.parametrize("configuration", [REFILL, EVICT], ids=["refill", "evict"])
async def test_room_of_a_terminating_member_is_kept_for_its_replacement(configuration: str) -> None:
    pods = members("g", 4)
    pods[0]["metadata"]["finalizers"] = [FINALIZER]
    async with a_world([*NODES, gang(), *pods[:3]], configuration=configuration) as world:
        await world.settle()
        # It has waited for longer than the replacement.
        world.server.create(pod("single", cpu="1"))
        await world.settle()
        world.server.delete("pods", ref("g-0"))
        await world.settle()
        world.server.create(pods[3])
        await world.settle()
        world.server.patch("pods", ref("g-0"), {"metadata": {"finalizers": None}})
        await world.settle()
        assert world.node_of("g-3") == "n0"
        assert not world.node_of("single")


async def test_grace_of_0_evicts_at_once() -> None:
    async with a_world([*NODES, gang(grace="0s"), *members("g", 3)]) as world:
        await world.settle()
        assert len(names(world)) == 3, "nothing is evicted while the group starts"
        lose(world, "g-0")
        await world.settle()
        assert names(world) == []


async def test_grace_that_is_changed_meanwhile_counts_from_the_loss() -> None:
    async with a_world() as world:
        await world.settle()
        lose(world, "g-0")
        await after(world, 30)
        longer = {"metadata": {"annotations": {"gangs.berth.io/grace": "2m"}}}
        world.server.patch("scheduling.k8s.io/podgroups", ref("g"), longer)
        await after(world, 89)
        assert names(world) == ["g-1", "g-2"]
        await after(world, 1)
        assert names(world) == []


# --- what is no loss -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "configuration", [REFILL, PROFILE.replace("REPAIR", "Leave")], ids=["Refill", "Leave"]
)
async def test_nothing_is_evicted_without_evict(configuration: str) -> None:
    async with a_world(configuration=configuration) as world:
        await world.settle()
        lose(world, "g-0")
        await after(world, 10 * GRACE_S)
        assert names(world) == ["g-1", "g-2"]
        assert refilling(world) is (configuration == REFILL)
        lose(world, "g-1")
        await after(world, 10 * GRACE_S)
        assert names(world) == ["g-2"]
        assert refilling(world) is (configuration == REFILL)


async def test_annotation_leave_ends_the_repair() -> None:
    async with a_world() as world:
        await world.settle()
        lose(world, "g-0")
        await after(world, GRACE_S - 1)
        leave = {"metadata": {"annotations": {"gangs.berth.io/repair": "Leave"}}}
        world.server.patch("scheduling.k8s.io/podgroups", ref("g"), leave)
        await after(world, 10 * GRACE_S)
        assert names(world) == ["g-1", "g-2"]
        assert not refilling(world)


async def test_members_that_succeeded_are_no_loss() -> None:
    async with a_world() as world:
        await world.settle()
        turn(world, "g-0", "Succeeded")
        await after(world, 10 * GRACE_S)
        turn(world, "g-1", "Succeeded")
        await after(world, 10 * GRACE_S)
        assert names(world) == ["g-0", "g-1", "g-2"]
        assert events(world, "GangLostMembers") == []


async def test_pods_of_a_deleted_group_of_the_same_name_are_no_members() -> None:
    world = a_world([*NODES])
    for i in range(3):
        ended = {"terminated": {"finishedAt": format_time(START_S - 60)}}
        old = member(f"old-{i}", "g", nodeName="n0")
        old["metadata"]["creationTimestamp"] = format_time(START_S - 3600)
        old["status"] = {"phase": "Succeeded", "containerStatuses": [{"name": "c", "state": ended}]}
        world.server.create(old, restore=True)
    async with world:
        for one in (gang(), *members("g", 3)):
            world.server.create(one)
        await world.settle()
        lose(world, "g-0")
        await after(world, GRACE_S)
        assert names(world) == ["old-0", "old-1", "old-2"]


async def test_members_that_failed_are_a_loss() -> None:
    async with a_world() as world:
        await world.settle()
        turn(world, "g-0", "Failed")
        await after(world, GRACE_S)
        assert names(world) == ["g-0"]


async def test_group_that_could_not_start_anew_after_members_succeeded_is_left_alone() -> None:
    async with a_world() as world:
        await world.settle()
        turn(world, "g-0", "Succeeded")
        lose(world, "g-1")
        await after(world, 10 * GRACE_S)
        assert names(world) == ["g-0", "g-2"]
        for made in members("g", 6)[4:]:  # now there are three to start anew, and no room for all
            world.server.create(made)
        world.server.delete("nodes", ObjectRef(name="n0"))
        await world.settle()
        assert names(world) == ["g-0", "g-4", "g-5"]


async def test_raised_minimum_is_no_loss() -> None:
    async with a_world() as world:
        await world.settle()
        raised = {"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}
        world.server.patch("scheduling.k8s.io/podgroups", ref("g"), raised)
        await after(world, 10 * GRACE_S)
        assert names(world) == ["g-0", "g-1", "g-2"]
        assert not refilling(world)
        lose(world, "g-0")
        await after(world, GRACE_S)
        assert names(world) == []


async def test_group_that_never_had_its_minimum_is_left_alone() -> None:
    bound = member("g-0", "g")
    bound["spec"]["nodeName"] = "n0"
    async with a_world([*NODES, gang(), bound]) as world:
        await after(world, 10 * GRACE_S)
        assert names(world) == ["g-0"]
        assert condition_of(world, "g")[0] != "True"


async def test_basic_groups_and_groups_of_other_schedulers_are_left_alone() -> None:
    basic = pod_group("g", priority=0)
    basic["metadata"]["annotations"] = {"gangs.berth.io/repair": "Evict", "gangs.berth.io/grace": "0s"}
    other = gang(grace="soon")
    other["metadata"]["name"] = "other"
    theirs = member("other-0", "other", schedulerName="theirs")
    async with a_world([*NODES, basic, *members("g", 3), other, theirs]) as world:
        await world.settle()
        lose(world, "g-0")
        await after(world, 10 * GRACE_S)
        assert names(world) == ["g-1", "g-2", "other-0"]
        assert events(world, "InvalidGangAnnotation") == []


async def test_group_that_is_deleted_in_the_grace_is_left_alone() -> None:
    async with a_world() as world:
        await world.settle()
        lose(world, "g-0")
        await after(world, GRACE_S - 1)
        world.server.delete("scheduling.k8s.io/podgroups", ref("g"))
        await after(world, 10 * GRACE_S)
        assert names(world) == ["g-1", "g-2"]
        world.server.create(gang())  # another group of this name, which never had its minimum
        await after(world, 10 * GRACE_S)
        assert names(world) == ["g-1", "g-2"]


# --- a cluster in trouble, and other leaders -------------------------------------------------------------


async def test_rest_is_evicted_when_the_api_server_is_back_and_nothing_twice() -> None:
    async with a_world([*NODES, gang(grace="0s"), *members("g", 3)], faults=AT_ONCE) as world:
        await world.settle()
        assert world.faulty is not None
        world.faulty.script("delete", Fault.NONE, Fault.UNAVAILABLE_BEFORE)
        with world.faulty.always("get", Fault.UNAVAILABLE_BEFORE):
            lose(world, "g-0")
            await until(world, lambda: len(names(world)) == 1)
        await until(world, lambda: not names(world))
        deleted = [key for call, key in world.faulty.done if call == "delete"]
        assert sorted(deleted) == ["default/g-1", "default/g-2"]
        assert [one.regarding.name for one in events(world, "GangNotEvicted")] == ["g"]


async def test_member_that_succeeds_while_the_others_are_listed_is_no_loss() -> None:
    async with a_world([*NODES, gang(grace="10s"), *members("g", 3)], faults=AT_ONCE) as world:
        await world.settle()
        assert world.faulty is not None
        lose(world, "g-0")
        await world.settle()
        gate = world.faulty.gate("list", after=True)
        world.clock.advance(10)
        await asyncio.wait_for(gate.arrived.wait(), PATIENCE_S)
        turn(world, "g-1", "Succeeded")
        await until(world, lambda: world.host.objects.pod("default/g-1") is None)
        gate.open.set()
        await after(world, 600)
        assert names(world) == ["g-1", "g-2"]


async def test_defects_of_the_client_are_survived() -> None:
    async with a_world([*NODES, gang(grace="0s"), *members("g", 3)], faults=AT_ONCE) as world:
        await world.settle()
        assert world.faulty is not None
        for call in ("list", "delete"):
            world.faulty.script(call, Fault.RAISES)
        lose(world, "g-0")
        await until(world, lambda: not names(world))
        world.host.check()


@pytest.mark.parametrize("fault", [Fault.TIME_OUT_AFTER, Fault.UNAVAILABLE_AFTER, Fault.CONFLICT], ids=str)
async def test_pod_that_took_the_name_of_an_evicted_one_stays(fault: Fault) -> None:
    async with a_world([*NODES, gang(grace="0s"), *members("g", 3)], faults=AT_ONCE) as world:
        await world.settle()
        assert world.faulty is not None
        world.faulty.script("delete", fault)
        lose(world, "g-0")
        await until(world, lambda: "g-1" not in names(world) or fault is Fault.CONFLICT)
        if "g-1" not in names(world):
            world.server.create(member("g-1", "g"))
        await until(world, lambda: "g-2" not in names(world))
        await after(world, 600)
        assert ("g-1" in names(world)) is True


async def test_group_that_is_whole_again_before_its_members_are_marked_stays() -> None:
    async with a_world([*NODES, gang(grace="0s"), *members("g", 3)], faults=AT_ONCE) as world:
        await world.settle()
        assert world.faulty is not None
        gate = world.faulty.gate("list")
        lose(world, "g-0")
        await asyncio.wait_for(gate.arrived.wait(), PATIENCE_S)
        world.server.create(member("again", "g"))
        world.server.create(node("new", cpu="1"))
        await until(world, lambda: world.node_of("again"))
        gate.open.set()
        await after(world, 600)
        assert names(world) == ["again", "g-1", "g-2"]


async def test_nothing_is_evicted_before_the_members_that_succeeded_were_listed() -> None:
    async with a_world([*NODES, gang(grace="0s"), *members("g", 3)], faults=AT_ONCE) as world:
        await world.settle()
        assert world.faulty is not None
        with world.faulty.always("list", Fault.FORBIDDEN):
            turn(world, "g-0", "Succeeded")
            await until(world, lambda: [c for c, _ in world.faulty.calls if c == "list"][3:])  # type: ignore[union-attr]
            assert names(world) == ["g-0", "g-1", "g-2"]
        await after(world, 600)
        assert names(world) == ["g-0", "g-1", "g-2"]


async def test_group_that_loses_another_member_goes_on_refilling_while_its_members_are_listed() -> None:
    async with a_world(configuration=REFILL, faults=AT_ONCE) as world:
        await world.settle()
        assert world.faulty is not None
        lose(world, "g-0")
        await world.settle()
        world.server.create(member("g-3", "g"))
        await world.settle()
        assert refilling(world)
        with world.faulty.always("list", Fault.FORBIDDEN):
            before = len(world.faulty.calls)
            lose(world, "g-1")
            await until(world, lambda: [c for c, _ in world.faulty.calls[before:] if c == "list"])  # type: ignore[union-attr]
            assert refilling(world)


async def test_host_that_lost_the_lead_evicts_nothing_and_the_next_one_counts_anew() -> None:
    first = a_world()
    await first.host.start()
    await first.settle()
    lose(first, "g-0")
    await after(first, GRACE_S - 1)
    await first.host.abandon()
    first.clock.advance(10 * GRACE_S)
    await asyncio.sleep(0)
    assert names(first) == ["g-1", "g-2"]
    async with next_one(first) as second:
        await after(second, GRACE_S - 1)
        assert names(second) == ["g-1", "g-2"]
        await after(second, 1)
        assert names(second) == []


async def test_next_host_finishes_an_eviction_at_once() -> None:
    first = a_world([*NODES, gang(grace="10s"), *members("g", 3)], faults=AT_ONCE)
    await first.host.start()
    await first.settle()
    assert first.faulty is not None
    lose(first, "g-0")
    await first.settle()
    first.faulty.script("delete", Fault.NONE, Fault.FORBIDDEN)
    first.clock.advance(10)
    await until(first, lambda: len(names(first)) == 1)
    await first.host.abandon()
    assert len(names(first)) == 1
    async with next_one(first) as second:
        await second.settle()
        assert names(second) == []


async def test_standby_host_and_draining_host_evict_nothing() -> None:
    world = a_world()
    await world.host.start()
    await world.settle()
    lose(world, "g-0")
    await world.settle()
    await world.host.drain(1.0)
    world.clock.advance(10 * GRACE_S)
    for _ in range(20):
        await asyncio.sleep(0)
    assert names(world) == ["g-1", "g-2"]
    await world.host.stop()
    second = next_one(world)
    await second.host.connect(stands_by=True)
    second.clock.advance(10 * GRACE_S)
    for _ in range(20):
        await asyncio.sleep(0)
    assert names(second) == ["g-1", "g-2"]
    await second.host.stop()


def next_one(before: World) -> World:
    """Return a world with another host on the same API server."""
    after = a_world([])
    after.cluster.server = after.server = before.server
    return after


# --- groups of coscheduling, annotations, and what users see ---------------------------------------------

THEIRS = f"""{COSCHEDULING_PROFILE.rstrip()}
  pluginConfig:
  - name: GangScheduling
    args: {{graceSeconds: 60, repair: Evict}}
"""


def coscheduled(**annotations: str) -> list[dict[str, Any]]:
    group = their_group("g", minMember=3)
    group["metadata"]["annotations"] = {f"gangs.berth.io/{name}": text for name, text in annotations.items()}
    return [*NODES, group, *(pod(f"g-{i}", cpu="1", labels={COSCHEDULING_LABEL: "g"}) for i in range(3))]


@pytest.mark.parametrize(
    ("annotations", "grace_s"), [({}, 60.0), ({"grace": "5s"}, 5.0)], ids=["argument", "annotation"]
)
async def test_group_of_coscheduling_is_evicted_as_well(
    annotations: Mapping[str, str], grace_s: float
) -> None:
    async with World(coscheduled(**annotations), configuration=THEIRS) as world:
        await world.settle()
        lose(world, "g-0")
        await after(world, grace_s - 1)
        assert names(world) == ["g-1", "g-2"]
        await after(world, 1)
        assert names(world) == []


async def test_next_host_knows_a_group_of_coscheduling_by_its_bound_members() -> None:
    first = World(coscheduled(), configuration=THEIRS)
    await first.host.start()
    await first.settle()
    await first.host.abandon()
    lose(first, "g-0")
    second = World(configuration=THEIRS)
    second.cluster.server = second.server = first.server
    async with second:
        await after(second, GRACE_S)
        assert names(second) == []


async def test_next_host_does_not_take_a_raised_minimum_for_a_loss() -> None:
    first = World(coscheduled(), configuration=THEIRS)
    await first.host.start()
    await first.settle()
    first.server.patch("scheduling.x-k8s.io/podgroups", ref("g"), {"spec": {"minMember": 5}})
    await after(first, GRACE_S)
    await first.host.abandon()
    second = World(configuration=THEIRS)
    second.cluster.server = second.server = first.server
    async with second:
        await after(second, GRACE_S)
        assert names(second) == ["g-0", "g-1", "g-2"]
        lose(second, "g-0")
        await after(second, GRACE_S)
        assert names(second) == []


async def test_bad_annotation_of_a_group_of_groups_is_told_when_its_members_come() -> None:
    root = {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {
            "name": "root",
            "namespace": "default",
            "annotations": {"gangs.berth.io/timeout": "soon"},
        },
        "spec": {"schedulingPolicy": {"gang": {"minGroupCount": 1}}},
    }
    gates = {**GROUPS, "CompositePodGroup": True, "TopologyAwareWorkloadScheduling": True}
    async with World([*NODES, root], configuration=EVICT, gates=gates) as world:
        await world.settle()
        leaf = gang(1)
        leaf["spec"]["parentCompositePodGroupName"] = "root"
        leaf["spec"]["workloadRef"] = {"workloadName": "w", "templateName": "t"}
        world.server.create(leaf)
        world.server.create(member("g-0", "g"))
        await world.settle()
        told = events(world, "InvalidGangAnnotation")
        assert [(one.regarding.name, one.regarding_kind) for one in told] == [("root", "CompositePodGroup")]


async def test_why_says_what_is_wrong_with_annotations_and_when_members_are_evicted() -> None:
    async with a_world([*NODES, gang(grace="soon", hold_room="perhaps"), *members("g", 3)]) as world:
        await world.settle()
        problems = [
            'annotation gangs.berth.io/grace: "soon": invalid duration "soon": '
            "write it as 500ms, 10s or 1m30s; 1m0s of the configuration counts",
            'annotation gangs.berth.io/hold-room: "perhaps": must be one of true, false; '
            "false of the configuration counts",
        ]
        told = events(world, "InvalidGangAnnotation")
        assert [(one.regarding.name, one.type, one.note) for one in told] == [
            ("g", "Warning", problem) for problem in problems
        ]
        found = await group_answer(world.host, "podgroup", "default", "g")
        assert found is not None
        assert (found.repair, list(found.problems)) == (None, problems)
        lose(world, "g-0")
        await after(world, 30)
        found = await group_answer(world.host, "podgroup", "default", "g")
        assert found is not None
        assert found.repair is not None
        lost_s = world.clock.now_s() - 30
        assert found.repair.as_json() == {
            "since": "2026-01-01T00:00:00.000000Z",
            "repair": "Evict",
            "evictsAt": "2026-01-01T00:01:00.000000Z",
            "evicting": False,
        }
        assert found.repair.since_s == lost_s
        mended = {"metadata": {"annotations": None}}
        world.server.patch("scheduling.k8s.io/podgroups", ref("g"), mended)
        await world.settle()
        found = await group_answer(world.host, "podgroup", "default", "g")
        assert found is not None
        assert list(found.problems) == []
