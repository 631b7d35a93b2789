"""The answers of a host about pod groups: members against the minimum, and what the next one lacks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from berth_host.explain.group_answer import GroupAnswer
from berth_host.explain.make_group_answer import group_answer, unknown_group_text
from berth_host.explain.make_pod_answer import pod_answer
from berth_host.explain.queue_answer import QueueQuery, queue_answer
from berth_sdk.kube_object import ObjectRef
from support.groups import child_group, condition_of, grouped, member, members, pod_group
from support.hosts import World, node, pod
from support.waiting import PATIENCE_S

TOPOLOGY = {"TopologyAwareWorkloadScheduling": True}
COSCHEDULING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint: {enabled: [{name: Coscheduling}]}
    queueSort: {enabled: [{name: Coscheduling}], disabled: [{name: "*"}]}
"""


async def answer(world: World, name: str, word: str = "podgroup") -> GroupAnswer:
    found = await group_answer(world.host, word, "default", name)
    assert found is not None
    sent = found.as_json()
    assert GroupAnswer.from_json(json.loads(json.dumps(sent))).as_json() == sent, (
        "something is lost on the way"
    )
    return found


async def test_gang_that_does_not_fit_names_members_missing_and_what_the_next_one_lacks() -> None:
    objects = [node("a"), node("b", cpu="3"), pod_group("g", least=5), *members("g", 6, cpu="2")]
    async with grouped(objects) as world:
        await world.settle()
        found = await answer(world, "g")
        assert found.state.value in ("unschedulable", "backoff")
        assert found.message == condition_of(world, "g")[2]
        assert found.members is not None
        assert (found.members.count, found.members.placed, found.members.missing) == (6, 0, 5)
        last = found.last
        assert last is not None
        assert (last.outcome, last.scheduled, last.placed, last.untried) == ("unschedulable", 0, 3, 1)
        assert last.message == found.message
        assert last.post_filter
        assert last.message.endswith(last.post_filter)
        assert last.unfit is not None
        assert last.unfit.pod == "default/g-3"
        assert [(one.plugin, set(one.node_names)) for one in last.unfit.rejections] == [
            ("NodeResourcesFit", {"a", "b"})
        ]
        # The three members that were placed before it count.
        assert [one.text for one in last.unfit.nearest] == ["node b lacks 1 CPU", "node a lacks 2 CPU"]
        assert found.queue is not None
        assert (found.queue.group, found.queue.group_members) == ("podgroup/default/g", 6)
        assert "NodeResourcesFit" in {one.plugin for one in found.requeue_events}


async def test_placed_gang_is_scheduled_and_lacks_nothing() -> None:
    async with grouped([node("a"), pod_group("g", least=3), *members("g", 3)]) as world:
        await world.settle()
        found = await answer(world, "g")
        assert (found.state.value, found.message) == ("scheduled", "all its pods have a node")
        assert found.members is not None
        assert (found.members.placed, found.members.missing) == (3, 0)
        assert found.last is not None
        assert (found.last.outcome, found.last.placed, found.last.unfit) == ("scheduled", 3, None)


async def test_pods_beyond_the_minimum_that_do_not_fit_are_explained() -> None:
    async with grouped([node("a"), pod_group("g", least=3), *members("g", 5)]) as world:
        await world.settle()
        found = await answer(world, "g")
        assert found.members is not None
        assert (found.members.count, found.members.placed, found.members.missing) == (5, 4, 0)
        assert found.last is not None
        assert found.last.unfit is not None
        assert [one.text for one in found.last.unfit.nearest] == ["node a lacks 1 CPU"]


async def test_group_that_was_never_made_is_missing() -> None:
    async with grouped([node("a"), *members("g", 2)]) as world:
        await world.settle()
        found = await answer(world, "g")
        assert (found.state.value, found.members, found.pod_count) == ("missing", None, 2)
        assert found.message == (
            "its pods wait for podgroup/default/g: the scheduler has not seen this object; create it"
        )
        world.server.create(pod_group("g", least=2))
        await world.settle()
        assert (await answer(world, "g")).state.value == "scheduled"


async def test_gated_group_names_the_plugin_and_what_opens_it() -> None:
    async with grouped([node("a"), pod_group("g", least=3), *members("g", 2)]) as world:
        await world.settle()
        found = await answer(world, "g")
        assert found.state.value == "gated"
        assert found.message.startswith("gated: kept out of the queue by plugin GangScheduling: ")
        assert found.as_json()["members"]["notCreated"] == 1
        assert found.queue is not None
        assert found.queue.gated_by == "GangScheduling"
        opening = {(one.plugin, one.resource, one.actions) for one in found.requeue_events}
        assert ("GangScheduling", "UnscheduledPod", ("add",)) in opening
        assert found.last is None
        world.server.create(member("g-2", "g"))
        await world.settle()
        assert (await answer(world, "g")).state.value == "scheduled"


async def test_group_with_a_gate_on_a_pod_names_the_pod() -> None:
    held = member("g-1", "g", schedulingGates=[{"name": "example.com/approval"}])
    async with grouped([node("a"), pod_group("g", least=2), member("g-0", "g"), held]) as world:
        await world.settle()
        found = await answer(world, "g")
        text = "gated: waiting for scheduling gates: example.com/approval (pod default/g-1)"
        assert (found.state.value, found.message) == ("gated", text)


async def test_nearest_placement_is_the_domain_in_which_most_members_fit() -> None:
    nodes = [
        node(name, cpu=cpu, labels={"rack": rack})
        for name, cpu, rack in (("a", "1", "r1"), ("b", "2", "r2"), ("c", "1", "r2"), ("d", "1", "r3"))
    ]
    group = pod_group("g", least=4, schedulingConstraints={"topology": [{"key": "rack"}]})
    async with grouped([*nodes, group, *members("g", 4)], gates=TOPOLOGY) as world:
        await world.settle()
        found = await answer(world, "g")
        assert found.topology_key == "rack"
        last = found.last
        assert last is not None
        assert last.domain_count == 3
        assert [(one.name, one.nodes, one.placed) for one in last.domains] == [
            ("r2", 2, 3),
            ("r1", 1, 1),
            ("r3", 1, 1),
        ]
        assert [one.message for one in last.domains] == [
            "minCount (4) cannot be satisfied: 3 scheduled, 0 remaining",
            "minCount (4) cannot be satisfied: 1 scheduled, 2 remaining",
            "minCount (4) cannot be satisfied: 1 scheduled, 2 remaining",
        ]
        assert last.unfit is not None
        assert {name for one in last.unfit.rejections for name in one.node_names} == {"b", "c"}


async def test_group_of_groups_counts_its_child_groups() -> None:
    composite = {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minGroupCount": 2}}, "priority": 0},
    }
    children = [child_group(name, "all", least=2) for name in ("x", "y")]
    gates = {**TOPOLOGY, "CompositePodGroup": True}
    objects = [node("a", cpu="3"), composite, *children, *members("x", 2), *members("y", 2)]
    async with grouped(objects, gates=gates) as world:
        await world.settle()
        found = await answer(world, "all")
        assert found.kind == "CompositePodGroup"
        assert found.members is not None
        assert (found.members.count, found.members.placed, found.members.missing) == (2, 0, 2)
        assert [(name, one.count) for name, _, one in found.children] == [
            ("default/x", 2),
            ("default/y", 2),
        ]
        assert found.last is not None
        assert found.last.unfit is not None
        assert found.last.unfit.pod == "default/y-1"
        child = await answer(world, "y")
        assert child.root_key == "compositepodgroup/default/all"
        assert child.last is not None
        assert child.last.placed == 1
        world.server.create(node("b"))
        await world.settle()
        assert (await answer(world, "all")).state.value == "scheduled"


async def test_groups_that_form_a_circle_are_named_with_the_cure() -> None:
    def composite(name: str, parent: str) -> dict[str, Any]:
        return {**child_group(name, parent), "kind": "CompositePodGroup"}

    objects = [node("a"), composite("x", "y"), composite("y", "x"), child_group("g", "x"), member("p", "g")]
    async with grouped(objects, gates={**TOPOLOGY, "CompositePodGroup": True}) as world:
        await world.settle()
        cure = "waits until compositepodgroup/default/x is not among its own parents: delete that group"
        assert cure in (await answer(world, "g")).message
        pod_found = await pod_answer(world.host, "default/p")
        assert pod_found is not None
        assert cure in str(pod_found.as_json())
        assert cure in str(await queue_answer(world.host, QueueQuery(limit=5)))


def coscheduled(name: str, *, least: int, count: int) -> list[dict[str, Any]]:
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": least},
    }
    labels = {"scheduling.x-k8s.io/pod-group": name}
    return [group, *(pod(f"{name}-{i}", cpu="1", labels=labels) for i in range(count))]


async def test_podgroup_of_coscheduling_is_explained_without_the_gate() -> None:
    async with World([node("a"), *coscheduled("g", least=6, count=6)], configuration=COSCHEDULING) as world:
        await world.settle()
        found = await answer(world, "g")
        assert found.kind == "PodGroup.scheduling.x-k8s.io"
        assert found.members is not None
        assert (found.members.count, found.members.missing) == (6, 6)
        assert found.last is not None
        assert found.last.unfit is not None
        assert [one.text for one in found.last.unfit.nearest] == ["node a lacks 1 CPU"]
        assert await group_answer(world.host, "compositepodgroup", "default", "g") is None


async def test_attempt_that_ended_before_its_search_says_why() -> None:
    objects = [node("a"), pod_group("g", least=2), member("g-0", "g", priority=5), member("g-1", "g")]
    async with grouped(objects) as world:
        async with asyncio.timeout(PATIENCE_S):
            while world.host.group_records.get("podgroup/default/g") is None:
                await asyncio.sleep(0)
        last = (await answer(world, "g")).last
        assert last is not None
        assert (last.outcome, last.placed, last.unfit) == ("error", 0, None)
        assert last.message.startswith("all pods in a single pod group should have the same priority")


async def test_unknown_group_names_the_cure() -> None:
    async with World([node("a")]) as world:
        await world.settle()
        assert await group_answer(world.host, "podgroup", "default", "g") is None
        text = unknown_group_text(world.host, "podgroup", "default/g")
        assert text.startswith("no podgroup default/g is known here, nor any other: turn on --feature-gates")
    async with grouped([pod_group("g", least=2)]) as world:
        await world.settle()
        assert unknown_group_text(world.host, "podgroup", "shop/g").endswith("did you mean default/g?")
        assert (await answer(world, "g")).state.value == "empty"


async def test_record_of_an_earlier_group_of_the_same_name_is_not_shown() -> None:
    async with grouped([node("a", cpu="1"), pod_group("g", least=2), *members("g", 2)]) as world:
        await world.settle()
        assert (await answer(world, "g")).last is not None
        for name in ("g-0", "g-1"):
            world.server.delete("pods", ObjectRef(namespace="default", name=name), grace_period_s=0)
        world.server.delete("scheduling.k8s.io/podgroups", ObjectRef(namespace="default", name="g"))
        await world.settle()
        world.server.create(pod_group("g", least=2))
        await world.settle()
        assert (await answer(world, "g")).last is None
