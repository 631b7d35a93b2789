"""A group that changes while its cycle runs, or has members that do not belong together: nothing is lost or
stays reserved, and the conditions say what happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest
from berth_bench.life.faulty_cluster import Fault, Faults
from berth_host.explain.make_group_answer import group_answer
from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import COSCHEDULING_LABEL, Pod
from berth_sdk.pod_group import COSCHEDULING
from berth_sdk.status import Status
from support.coscheduling import their_group
from support.groups import GROUPS, condition_of, grouped, member, members, message_of, nodes_of, pod_group
from support.held_groups import Counting, Slow
from support.hosts import World, node, pod
from support.waiting import PATIENCE_S

REF = ObjectRef(namespace="default", name="g")
RESOURCE = "scheduling.k8s.io/podgroups"
PLACED = ("True", "Scheduled", "")
SHORT = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
NOBODY = "pod group preemption: No preemption victims found for incoming preemptor"


def delete(world: World) -> None:
    world.server.delete(RESOURCE, REF)


def with_minimum(count: int) -> Callable[[World], None]:
    """Return a change of the group's minCount."""

    def change(world: World) -> None:
        world.server.patch(RESOURCE, REF, {"spec": {"schedulingPolicy": {"gang": {"minCount": count}}}})

    return change


def observed_generation(world: World) -> int:
    found = world.server.get(RESOURCE, REF)
    assert found is not None
    (condition,) = found.get("status.conditions")
    return int(condition["observedGeneration"])


def kept(world: World) -> dict[str, str]:
    """Return the members that are bound, after a check that the others wait and hold nothing."""
    bound = nodes_of(world, "g")
    assert Counting.held == bound
    assert world.host.cache.assumed_count == 0
    assert world.host.snapshot.mark() == 0
    assert world.everything_is_accounted_for()
    return bound


class InTheMiddle:
    """`async with`: a gang of three on one node of 4 CPUs, whose second member is being judged.

    `go_on` lets the cycle end, and waits until the members have their outcome.
    """

    def __init__(self, cpu: str, least: int = 3) -> None:
        Slow.reset("g-1")
        Counting.reset()
        objects = [node("n0"), pod_group("g", least=least), *members("g", 3, cpu=cpu)]
        self.world = grouped(objects, [Slow, Counting])

    async def __aenter__(self) -> InTheMiddle:
        await self.world.__aenter__()
        await asyncio.wait_for(Slow.reached.wait(), PATIENCE_S)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.world.__aexit__(*exc)

    async def go_on(self, change: Callable[[World], None]) -> World:
        world = self.world
        seen = world.host.cache.groups.object("podgroup/default/g")
        change(world)
        await _until(world, lambda: world.host.cache.groups.object("podgroup/default/g") is not seen)
        Slow.waits_for = ""
        Slow.go_on.set()
        await _until(world, lambda: bool(nodes_of(world, "g") or message_of(world, "g-0")))
        return world


async def _until(world: World, done: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not done():
            world.host.check()
            await asyncio.sleep(0)


async def test_members_of_a_group_that_is_deleted_in_its_cycle_are_placed_if_they_fit() -> None:
    async with InTheMiddle("1") as middle:
        world = await middle.go_on(delete)
        await world.settle()
        assert kept(world) == {"g-0": "n0", "g-1": "n0", "g-2": "n0"}


async def test_members_of_a_group_that_is_deleted_in_its_cycle_wait_for_it_and_say_so() -> None:
    async with InTheMiddle("2") as middle:
        world = await middle.go_on(delete)
        await world.settle()
        assert kept(world) == {}
        said = f"pod group is unschedulable, {SHORT}, {NOBODY}, the group was deleted meanwhile"
        assert message_of(world, "g-0") == said
        answer = await group_answer(world.host, "podgroup", "default", "g")
        assert answer is not None
        assert answer.message.startswith("its pods wait for podgroup/default/g: the scheduler has not seen")
        world.server.create(pod_group("g", least=2))
        await world.settle()
        assert len(kept(world)) == 2
        assert condition_of(world, "g") == PLACED


async def test_minimum_raised_in_the_cycle_concerns_the_next_one() -> None:
    async with InTheMiddle("1", least=2) as middle:
        world = await middle.go_on(with_minimum(4))
        await world.settle()
        assert len(kept(world)) == 3
        assert condition_of(world, "g") == PLACED
        assert observed_generation(world) == 1


async def test_group_that_needs_more_members_since_its_cycle_began_says_so_and_waits_for_them() -> None:
    async with InTheMiddle("2") as middle:
        world = await middle.go_on(with_minimum(4))
        await world.settle()
        assert kept(world) == {}
        text = f"{SHORT}, {NOBODY}, minCount is 4 meanwhile"
        assert condition_of(world, "g") == ("False", "Unschedulable", text)
        assert message_of(world, "g-0") == f"pod group is unschedulable, {text}"
        world.server.create(node("n1"))
        world.server.create(member("g-3", "g", cpu="2"))
        await world.settle()
        assert len(kept(world)) == 4
        assert condition_of(world, "g") == PLACED


async def test_minimum_lowered_in_the_cycle_lets_the_next_one_place_the_group() -> None:
    async with InTheMiddle("2") as middle:
        world = await middle.go_on(with_minimum(2))
        assert condition_of(world, "g")[2].endswith(", minCount is 2 meanwhile")
        assert kept(world) == {}
        await world.settle()
        assert len(kept(world)) == 2
        assert condition_of(world, "g") == PLACED
        assert observed_generation(world) == 2


class SlowForGood(Counting):
    """Counts, and waits for the test where the last member is reserved for good."""

    reached: ClassVar[asyncio.Event]
    go_on: ClassVar[asyncio.Event]

    async def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:  # type: ignore[override]
        if pod.name == "g-2" and state.trial is not None and not state.trial.tentative:
            self.reached.set()
            await self.go_on.wait()
        return super().reserve(state, pod, node_name)


async def test_members_whose_gang_shrinks_while_they_wait_at_permit_give_everything_back() -> None:
    Counting.reset()
    SlowForGood.reached, SlowForGood.go_on = asyncio.Event(), asyncio.Event()
    objects = [node("n0"), pod_group("g", least=3), *members("g", 3)]
    async with grouped(objects, [SlowForGood]) as world:
        await asyncio.wait_for(SlowForGood.reached.wait(), PATIENCE_S)
        await _until(world, lambda: len(world.host.waiting_pods) == 2)
        world.server.delete("pods", ObjectRef(namespace="default", name="g-2"), grace_period_s=0)
        await world.settle()  # the time at Permit passes
        assert kept(world) == {}
        for name in ("g-0", "g-1"):
            assert "GangScheduling" in message_of(world, name)
        world.server.create(member("g-3", "g"))
        SlowForGood.go_on.set()
        await world.settle()
        assert len(kept(world)) == 3
        assert condition_of(world, "g") == PLACED


PROFILES = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler}, {schedulerName: second}]
"""


async def test_members_of_two_schedulers_of_this_host_are_an_error_that_names_both() -> None:
    objects = [node("n0"), pod_group("g", least=3), *members("g", 2)]
    stranger = member("g-2", "g", schedulerName="second")
    async with World([*objects, stranger], configuration=PROFILES, gates=GROUPS) as world:
        await _until(world, lambda: condition_of(world, "g")[0] == "False")
        text = (
            "all pods in a single pod group should have the same .spec.schedulerName set,"
            ' got: "default-scheduler" and "second"'
        )
        assert condition_of(world, "g") == ("False", "SchedulerError", text)
        assert {message_of(world, f"g-{number}") for number in range(3)} == {text}
        assert nodes_of(world, "g") == {}


async def test_member_of_a_scheduler_elsewhere_does_not_count_and_is_an_error_once_it_is_bound() -> None:
    Counting.reset()
    stranger = member("g-2", "g", schedulerName="of-others")
    objects = [node("n0"), pod_group("g", least=3), *members("g", 2), stranger]
    async with grouped(objects, [Counting]) as world:
        await world.settle()
        assert nodes_of(world, "g") == Counting.held == {}
        answer = await group_answer(world.host, "podgroup", "default", "g")
        assert answer is not None
        assert answer.members is not None
        assert (answer.state.value, answer.members.missing) == ("gated", 3)
        world.server.bind(ObjectRef(namespace="default", name="g-2"), "n0")
        await _until(world, lambda: condition_of(world, "g")[0] == "False")
        text = (
            "all pods in a single pod group should have the same .spec.schedulerName set,"
            ' got: "default-scheduler" and "of-others"'
        )
        assert condition_of(world, "g") == ("False", "SchedulerError", text)
        assert Counting.held == {}
        world.server.delete("pods", ObjectRef(namespace="default", name="g-2"), grace_period_s=0)
        world.server.create(member("g-3", "g"))
        await world.settle()
        assert len(kept(world)) == 3
        assert condition_of(world, "g") == PLACED


@pytest.mark.parametrize(
    ("more", "why"),
    [
        pytest.param({"cpu": "100"}, "1 Insufficient cpu.", id="larger than every node"),
        pytest.param(
            {"nodeSelector": {"disk": "none-has-it"}},
            "1 node(s) didn't match Pod's node affinity/selector.",
            id="for nodes that do not exist",
        ),
    ],
)
async def test_member_that_no_node_can_take_is_named_and_holds_the_gang_back(
    more: Mapping[str, Any], why: str
) -> None:
    Counting.reset()
    objects = [node("n0"), pod_group("g", least=3), *members("g", 2), member("g-2", "g", **more)]
    async with grouped(objects, [Counting]) as world:
        await world.settle()
        assert kept(world) == {}
        assert condition_of(world, "g") == ("False", "Unschedulable", f"{SHORT}, {NOBODY}")
        assert message_of(world, "g-2") == f"0/1 nodes are available: {why}"
        assert message_of(world, "g-0") == f"pod group is unschedulable, {SHORT}, {NOBODY}"


async def test_api_server_that_goes_away_while_half_of_a_gang_is_bound_loses_nothing() -> None:
    Counting.reset()
    objects = [node("n0"), pod_group("g", least=4), *members("g", 4)]
    async with grouped(objects, [Counting], faults=Faults(turns=30), seed=3) as world:
        cluster = world.faulty
        assert cluster is not None
        with cluster.always("patch", Fault.UNAVAILABLE_BEFORE):
            await _until(world, lambda: len(nodes_of(world, "g")) == 2)
            cluster.die()
            await _until(world, lambda: any(call == "get" for call, _ in cluster.calls))
        assert len(nodes_of(world, "g")) == 2
        assert condition_of(world, "g") == ("", "", "")
        cluster.revive()
        await world.settle()
        assert len(kept(world)) == 4
        assert condition_of(world, "g") == PLACED


WITH_COSCHEDULING = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint: {enabled: [{name: Coscheduling}, {name: Slow}, {name: Counting}]}
    queueSort: {enabled: [{name: Coscheduling}], disabled: [{name: "*"}]}
"""
OF_COSCHEDULING = "scheduling.x-k8s.io/podgroups"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"spec": {"minMember": 4}}, "minMember is 4 meanwhile", id="needs more"),
        pytest.param(None, "the group was deleted meanwhile", id="deleted"),
    ],
)
async def test_members_of_a_group_of_coscheduling_say_what_changed_in_its_cycle(
    change: Mapping[str, Any] | None, said: str
) -> None:
    Slow.reset("g-1")
    Counting.reset()
    group = their_group("g", minMember=3)
    pods = [pod(f"g-{i}", cpu="2", labels={COSCHEDULING_LABEL: "g"}) for i in range(3)]
    async with World([node("n0"), group, *pods], [Slow, Counting], configuration=WITH_COSCHEDULING) as world:
        await asyncio.wait_for(Slow.reached.wait(), PATIENCE_S)
        key = f"{COSCHEDULING.lower()}/default/g"
        seen = world.host.cache.groups.object(key)
        assert seen is not None
        if change is None:
            world.server.delete(OF_COSCHEDULING, REF)
        else:
            world.server.patch(OF_COSCHEDULING, REF, change)
        await _until(world, lambda: world.host.cache.groups.object(key) is not seen)
        Slow.waits_for = ""
        Slow.go_on.set()
        await _until(world, lambda: bool(message_of(world, "g-0")))
        assert message_of(world, "g-0").endswith(f", {said}")
        await world.settle()
        assert Counting.held == {}
        assert world.host.cache.assumed_count == 0
        assert world.everything_is_accounted_for()
