"""The hold of room for a group in a whole host: whom it keeps out, whom it lets in, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from berth_host.app import Host
from berth_host.app.reload import reload
from berth_host.cli.rendering.why import pod_answer_text
from berth_host.cli.rendering.why_group import group_answer_text
from berth_host.config.loading import load_configuration
from berth_host.explain.group_answer import GroupAnswer
from berth_host.explain.make_group_answer import group_answer
from berth_host.explain.make_pod_answer import pod_answer
from berth_host.explain.pod_answer import PodAnswer
from berth_host.groups.gang_holds import NO_ROOM, REST_S, Roomless
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import COSCHEDULING_LABEL, Pod
from berth_sdk.pod_group import Assignment
from berth_sdk.results import Trial
from berth_sdk.status import SUCCESS
from support.coscheduling import COSCHEDULING_PROFILE, their_group
from support.groups import (
    GROUPS,
    HOLDS,
    condition_of,
    full,
    gang,
    members,
    nodes_of,
    pod_group,
    running,
    world_of,
)
from support.hosts import World, node, pod

HOUR_S = 3600
PROFILES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
"""
GROUP = "scheduling.k8s.io/podgroups"


def add(world: World, *objects: Mapping[str, Any]) -> None:
    for one in objects:
        world.server.create(one)


def end(world: World, *names: str) -> None:
    for name in names:
        world.server.delete("pods", ObjectRef(namespace="default", name=name), grace_period_s=0)


def nominated(world: World, group: str) -> list[str]:
    """Return the nodes in the statuses of a group's pods, without those that have none."""
    found = (one for one in world.server.list("pods") if one.ref.name.startswith(f"{group}-"))
    return [name for one in found if (name := one.get("status.nominatedNodeName"))]


def holder(world: World) -> str:
    """Return the name of the group that holds room; "" for none."""
    hold = world.host.holds.current
    return "" if hold is None else hold.key.rpartition("/")[2]


def outcomes(world: World) -> dict[str, float]:
    return {labels[0]: count for labels, count in world.host.metrics.groups.holds.items()}


def annotate(world: World, group: str, annotations: Mapping[str, str]) -> None:
    ref = ObjectRef(namespace="default", name=group)
    world.server.patch(GROUP, ref, {"metadata": {"annotations": dict(annotations)}})


# --- whom it keeps out, and lets in --------------------------------------------------------------------


async def test_group_starts_although_single_pods_come_all_the_time() -> None:
    async with world_of(full(4)) as world:
        add(world, gang("a"), *members("a", 6))
        await world.settle()
        assert holder(world) == "a"
        assert sorted(nominated(world, "a")) == ["n0"] * 3 + ["n1"] * 3
        text = "holds room for 6 pods on 2 nodes until 2026-01-01T10:00:00Z; when it starts is not known"
        assert condition_of(world, "a")[2].endswith(text)
        order = [f"{name}-{i}" for i in range(4) for name in ("n0", "n1")]
        for step, name in enumerate(order[:6]):
            add(world, pod(f"single-{step}", cpu="1"))
            assert not nodes_of(world, "a")
            end(world, name)
            await world.settle()
        assert len(nodes_of(world, "a")) == 6
        assert not any(world.node_of(f"single-{step}") for step in range(6))
        assert (holder(world), outcomes(world)) == ("", {"placed": 1})
        assert world.everything_is_accounted_for()


async def test_without_a_hold_single_pods_keep_the_group_waiting() -> None:
    async with world_of(full(4)) as world:
        add(world, gang("a", holds={}), *members("a", 6))
        await world.settle()
        assert (holder(world), nominated(world, "a")) == ("", [])
        order = [f"{name}-{i}" for i in range(4) for name in ("n0", "n1")]
        for step, name in enumerate(order):
            add(world, pod(f"single-{step}", cpu="1"))
            end(world, name)
            await world.settle()
        assert not nodes_of(world, "a")


async def test_pods_that_end_before_the_group_starts_are_let_in() -> None:
    async with world_of(full(3, ends_s=4 * HOUR_S)) as world:
        add(world, gang("a"), *members("a", 6))
        await world.settle()
        assert condition_of(world, "a")[2].endswith("; it is expected to start at 2026-01-01T04:00:03Z")
        add(world, pod("short", cpu="1", activeDeadlineSeconds=HOUR_S))
        add(world, pod("long", cpu="1", activeDeadlineSeconds=5 * HOUR_S), pod("endless", cpu="1"))
        await world.settle()
        assert world.node_of("short")
        assert not world.node_of("long")
        assert not world.node_of("endless")
        assert "2 Insufficient cpu" in world.message_of("long")
        hold = world.host.holds.current
        assert hold is not None
        assert hold.backfilled == 1
        # The same pod is too long later, when the group's start is near.
        world.clock.advance(3 * HOUR_S)
        add(world, pod("later", cpu="1", activeDeadlineSeconds=HOUR_S + 1))
        await world.settle()
        assert not world.node_of("later")


async def test_why_shows_the_held_room() -> None:
    async with world_of(full(3, ends_s=4 * HOUR_S)) as world:
        add(world, gang("a"), *members("a", 6))
        await world.settle()
        add(world, pod("short", cpu="1", activeDeadlineSeconds=HOUR_S), pod("endless", cpu="1"))
        await world.settle()
        about_group = await group_answer(world.host, "podgroup", "default", "a")
        assert about_group is not None
        assert GroupAnswer.from_json(about_group.as_json()).hold == about_group.hold
        text = group_answer_text(about_group)
        assert (
            "HELD ROOM\n  6 pods on n0, n1\n  since 2026-01-01 00:00:00, until 2026-01-01 10:00:00\n" in text
        )
        assert "  expected start: 2026-01-01 04:00:03\n  1 other pod was let in\n" in text
        kept_out = await pod_answer(world.host, "default/endless")
        assert kept_out is not None
        assert PodAnswer.from_json(kept_out.as_json()).held_room == kept_out.held_room == about_group.hold
        assert (
            "room on n0, n1 is held for podgroup/default/a until 2026-01-01 10:00:00;"
            " a pod that ends before 2026-01-01 04:00:03 (activeDeadlineSeconds) gets it"
        ) in pod_answer_text(kept_out)
        own_node = nominated(world, "a")[0]
        about_member = await pod_answer(world.host, "default/a-0", node=own_node)
        assert about_member is not None
        assert about_member.held_room is None
        assert about_member.on_node is not None
        assert about_member.on_node.text.endswith("room is held there, until its whole group fits")


async def test_room_that_is_not_held_is_free_for_all() -> None:
    async with world_of([*full(3), node("n2", cpu="1")]) as world:
        add(world, gang("a"), *members("a", 6))
        await world.settle()
        assert holder(world) == "a"
        free = {"n0", "n1", "n2"} - set(nominated(world, "a"))
        add(world, pod("single", cpu="1"))
        await world.settle()
        assert bool(world.node_of("single")) == bool(free)


@pytest.mark.parametrize("policy", ["PreemptLowerPriority", "Never"])
async def test_pods_of_lower_priority_are_let_in_where_the_group_may_evict_them(policy: str) -> None:
    async with world_of(full(3, priority=5)) as world:
        own: dict[str, Any] = {"priority": 5, "preemptionPolicy": policy}
        add(world, gang("a", priority=5), *members("a", 6, **own), pod("lower", cpu="1", priority=4))
        await world.settle()
        assert holder(world) == "a"
        assert bool(world.node_of("lower")) == (policy != "Never")
        end(world, "n0-0", "n0-1", "n1-0", "n1-1")
        await world.settle()
        assert len(nodes_of(world, "a")) == 6


async def test_pods_of_higher_priority_take_held_room() -> None:
    async with world_of(full(3)) as world:
        add(world, gang("a"), *members("a", 6))
        await world.settle()
        add(world, pod("higher", cpu="1", priority=1))
        await world.settle()
        assert world.node_of("higher")
        assert holder(world) == "a"


async def test_hold_that_a_group_has_no_more_hope_for_ends() -> None:
    async with world_of(full(3)) as world:
        add(world, gang("a"), *members("a", 6))
        await world.settle()
        end(world, "n0-0")
        add(world, *(pod(f"higher-{i}", cpu="1", priority=1) for i in range(3)))
        await world.settle()
        assert condition_of(world, "a")[2].endswith(NO_ROOM)
        assert (holder(world), nominated(world, "a")) == ("", [])
        assert outcomes(world) == {"unfit": 1}


async def test_group_that_would_never_fit_holds_nothing() -> None:
    async with world_of(full(3)) as world:
        add(world, gang("a", 9), *members("a", 9), pod("single", cpu="1"))
        await world.settle()
        assert (holder(world), nominated(world, "a")) == ("", [])
        assert condition_of(world, "a")[2].endswith(NO_ROOM)
        assert world.node_of("single")
        # A node more, and it would.
        add(world, node("n2", cpu="2"))
        await world.settle()
        assert holder(world) == "a"


async def test_pods_that_stay_are_not_expected_to_leave() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    objects = full(3)
    for one in objects[2:5]:
        one["metadata"]["ownerReferences"] = [owner]
    async with world_of(objects) as world:
        add(world, gang("a"), *members("a", 6))
        await world.settle()
        assert condition_of(world, "a")[2].endswith(NO_ROOM)


async def test_only_gangs_below_their_minimum_hold_room() -> None:
    async with world_of([node("n0", cpu="3")]) as world:
        basic = pod_group("basic")
        basic["metadata"]["annotations"] = HOLDS
        add(world, basic, *members("basic", 1, cpu="4"), gang("a", 2), *members("a", 4))
        await world.settle()
        assert len(nodes_of(world, "a")) == 3
        assert holder(world) == ""


# --- what happens in life ---------------------------------------------------------------------------------


async def test_held_node_goes_and_the_next_attempt_finds_others() -> None:
    objects = [*full(3), node("n2", cpu="4"), *(running(f"n2-{i}", "n2", after_s=60) for i in range(4))]
    async with world_of(objects) as world:
        add(world, gang("a"), *members("a", 6))
        await world.settle()
        assert set(nominated(world, "a")) == {"n0", "n1"}
        world.server.delete("nodes", ObjectRef(name="n0"))
        await world.settle()
        assert set(nominated(world, "a")) == {"n1", "n2"}
        world.server.patch("nodes", ObjectRef(name="n2"), {"spec": {"unschedulable": True}})
        await world.settle()
        assert (holder(world), nominated(world, "a")) == ("", [])


async def test_member_goes_and_its_room_with_it() -> None:
    async with world_of(full(3)) as world:
        add(world, gang("a"), *members("a", 6))
        await world.settle()
        end(world, "a-5")
        await world.settle()
        # Below its minimum the group is not tried, and keeps its room for the member's replacement.
        assert len(nominated(world, "a")) == 5
        assert holder(world) == "a"
        end(world, *(f"a-{i}" for i in range(5)))
        add(world, pod("single", cpu="2"))
        await world.settle()
        assert (holder(world), outcomes(world)) == ("", {"deleted": 1})
        end(world, "n0-0")
        await world.settle()
        assert world.node_of("single") == "n0"


async def test_deletion_of_the_group_frees_its_room() -> None:
    async with world_of(full(3)) as world:
        add(world, gang("a"), *members("a", 6), pod("single", cpu="1"))
        await world.settle()
        assert not world.node_of("single")
        world.server.delete(GROUP, ObjectRef(namespace="default", name="a"))
        await world.settle()
        assert world.node_of("single")
        assert (holder(world), nominated(world, "a"), outcomes(world)) == ("", [], {"deleted": 1})


async def test_setting_that_is_taken_back_frees_the_room() -> None:
    async with world_of(full(3)) as world:
        add(world, gang("a"), *members("a", 6), pod("single", cpu="1"))
        await world.settle()
        annotate(world, "a", {"gangs.berth.io/hold-room": "false"})
        await world.settle()
        assert world.node_of("single")
        assert (holder(world), nominated(world, "a"), outcomes(world)) == ("", [], {"given_up": 1})


async def test_binding_of_the_members_by_another_scheduler_ends_the_hold() -> None:
    async with world_of(full(3)) as world:
        add(world, gang("a"), *members("a", 6))
        await world.settle()
        add(world, node("n2"))
        for i in range(6):
            world.server.bind(ObjectRef(namespace="default", name=f"a-{i}"), "n2")
        await world.settle()
        assert (holder(world), outcomes(world)) == ("", {"deleted": 1})


async def test_preemption_that_becomes_possible_takes_the_place_of_the_hold() -> None:
    async with world_of(full(4, priority=5)) as world:
        add(world, gang("a", priority=5), *members("a", 6, priority=5))
        await world.settle()
        assert holder(world) == "a"
        lower = [pod(f"lower-{i}", cpu="1", priority=1) for i in range(6)]
        add(world, *lower)
        end(world, *(f"n0-{i}" for i in range(4)))
        await world.settle()
        assert holder(world) == "a"
        end(world, "n1-0", "n1-1")
        await world.settle()
        assert len(nodes_of(world, "a")) == 6
        assert holder(world) == ""


async def test_time_for_which_room_is_held_ends() -> None:
    async with world_of(full(3)) as world:
        add(world, gang("a", holds={**HOLDS, "gangs.berth.io/timeout": "1h"}), *members("a", 6))
        add(world, pod("single", cpu="1"))
        await world.settle()
        assert not world.node_of("single")
        world.clock.advance_to(HOUR_S)
        await world.settle()
        assert outcomes(world) == {"timed_out": 1}
        assert world.node_of("single")
        # No other group is in line, so it is this one's turn again, after a rest.
        world.clock.advance(REST_S)
        await world.settle()
        assert holder(world) == "a"
        reasons = [one.reason for one in world.server.events.recent]
        assert (reasons.count("HoldingRoom"), reasons.count("HoldEnded")) == (2, 1)


@pytest.mark.parametrize("gone", ["group", "members", "time"])
async def test_group_that_goes_while_it_looks_for_room_holds_nothing(gone: str) -> None:
    async with world_of(full(3)) as world:
        add(world, gang("a", holds={**HOLDS, "gangs.berth.io/timeout": "1h"}), *members("a", 6))
        await world.settle()
        holds, host = world.host.holds, world.host
        hold = holds.current
        assert hold is not None
        host.scheduler.stop_popping()
        nodes = hold.nodes
        pods = [pod for uid in nodes if (pod := host.objects.pod_by_uid(uid)) is not None]
        root = host.cache.groups.object(hold.key)
        assert root is not None

        class Trials:
            async def run_without(self, removed: Sequence[Pod]) -> Trial:
                if gone == "group":
                    world.server.delete(GROUP, ObjectRef(namespace="default", name="a"))
                elif gone == "members":
                    end(world, *(f"a-{i}" for i in range(6)))
                else:
                    world.clock.advance_to(HOUR_S)
                while host.cluster.undelivered_count:
                    await asyncio.sleep(0)
                return Trial(SUCCESS, tuple(Assignment(pod, nodes[pod.uid]) for pod in pods))

        group = Roomless(root=root, pods=pods, profile="default-scheduler", may_preempt=True)
        promised = await holds.failed(group, Trials())
        assert promised is not None
        assert set(promised.nodes.values()) == {""}
        assert holder(world) == ""


@pytest.mark.parametrize("is_whole", [True, False], ids=["all", "some"])
async def test_members_that_are_being_deleted_hold_no_room(is_whole: bool) -> None:
    async with world_of(full(3)) as world:
        pods = members("a", 6)
        for one in pods:
            one["metadata"]["finalizers"] = ["tests/stays"]
        add(world, gang("a"), *pods)
        await world.settle()
        end(world, *(f"a-{i}" for i in range(6 if is_whole else 2)))
        add(world, pod("single", cpu="1"))
        await world.settle()
        assert len(nominated(world, "a")) == (0 if is_whole else 4)
        assert holder(world) == ("" if is_whole else "a")
        assert bool(world.node_of("single")) == is_whole


async def test_pods_of_lower_priority_are_kept_out_of_a_group_that_no_plugin_preempts_for() -> None:
    off = PROFILES + "  plugins: {multiPoint: {disabled: [{name: DefaultPreemption}]}}\n"
    async with world_of(full(4, priority=5), configuration=off) as world:
        add(world, gang("a", priority=5), *members("a", 6, priority=5))
        await world.settle()
        assert holder(world) == "a"
        for step, name in enumerate(f"{name}-{i}" for i in range(3) for name in ("n0", "n1")):
            add(world, pod(f"lower-{step}", cpu="1", priority=1))
            end(world, name)
            await world.settle()
        assert len(nodes_of(world, "a")) == 6


# --- the line ---------------------------------------------------------------------------------------------


async def test_one_group_holds_and_the_others_wait_in_line() -> None:
    async with world_of(full(3)) as world:
        add(world, gang("a", holds={**HOLDS, "gangs.berth.io/timeout": "1h"}), *members("a", 6))
        await world.settle()
        add(world, gang("b", 5), *members("b", 5), gang("c", 5), *members("c", 5))
        await world.settle()
        assert (holder(world), nominated(world, "b")) == ("a", [])
        behind = "waits in line to hold room, behind podgroup/default/a"
        assert condition_of(world, "b")[2].endswith(behind)
        world.clock.advance(HOUR_S)
        await world.settle()
        assert (holder(world), nominated(world, "a")) == ("b", [])
        end(world, "n0-0", "n0-1", "n1-0")
        await world.settle()
        assert len(nodes_of(world, "b")) == 5
        assert holder(world) == "c"
        end(world, *nodes_of(world, "b"))
        await world.settle()
        assert len(nodes_of(world, "c")) == 5
        assert holder(world) == "a"


async def test_two_groups_that_take_turns_leave_room_to_others_in_between() -> None:
    short = {**HOLDS, "gangs.berth.io/timeout": "1h"}
    async with world_of(full(3)) as world:
        add(world, gang("a", holds=short), *members("a", 6), gang("b", holds=short), *members("b", 6))
        await world.settle()
        add(world, pod("single", cpu="1"))
        await world.settle()
        assert (holder(world), world.node_of("single")) == ("a", "")
        world.clock.advance_to(HOUR_S)
        await world.settle()
        assert world.node_of("single")
        world.clock.advance(REST_S)
        await world.settle()
        assert holder(world) == "b"


async def test_group_of_higher_priority_takes_the_turn_of_another_one() -> None:
    async with world_of(full(3)) as world:
        add(world, gang("a"), *members("a", 6))
        await world.settle()
        assert holder(world) == "a"
        urgent: dict[str, Any] = {"priority": 7, "preemptionPolicy": "Never"}
        add(world, gang("b", 5, priority=7), *members("b", 5, **urgent))
        await world.settle()
        assert (holder(world), len(nominated(world, "b")), nominated(world, "a")) == ("b", 5, [])
        assert outcomes(world) == {"displaced": 1}


async def test_group_that_lost_members_refills_ahead_of_the_line() -> None:
    async with world_of([node("n0", cpu="4"), node("n1", cpu="4")]) as world:
        add(world, gang("a", 4, holds={"gangs.berth.io/repair": "Refill"}), *members("a", 4))
        await world.settle()
        assert len(nodes_of(world, "a")) == 4
        add(world, *(pod(f"single-{i}", cpu="1") for i in range(4)))
        add(world, gang("b", 4), *members("b", 4))
        await world.settle()
        assert holder(world) == "b"
        end(world, "a-0")
        add(world, pod("filler", cpu="1", priority=1))
        await world.settle()
        add(world, {**members("a", 5)[4]})
        await world.settle()
        assert (holder(world), len(nominated(world, "a"))) == ("a", 1)
        end(world, "single-0")
        add(world, pod("other", cpu="1"))
        await world.settle()
        assert len(nodes_of(world, "a")) == 4
        assert not world.node_of("other")
        assert holder(world) == "b"


async def test_group_that_refills_and_would_not_fit_leaves_the_hold_of_another_one() -> None:
    nodes = [node(name, cpu="4", labels={"name": name}) for name in ("n0", "n1")]
    on_n0: dict[str, Any] = {"nodeSelector": {"name": "n0"}}
    on_n1: dict[str, Any] = {"nodeSelector": {"name": "n1"}}
    async with world_of(nodes) as world:
        refills = members("a", 5, **on_n1)
        add(world, gang("a", 4, holds={"gangs.berth.io/repair": "Refill"}), *refills[:4])
        await world.settle()
        add(world, *(pod(f"single-{i}", cpu="1") for i in range(4)), gang("b", 4), *members("b", 4, **on_n0))
        await world.settle()
        assert (holder(world), len(nodes_of(world, "a"))) == ("b", 4)
        end(world, "a-0")
        # Nothing that leaves makes room for the new member.
        add(world, pod("filler", cpu="1", priority=1, **on_n1))
        await world.settle()
        add(world, refills[4])
        await world.settle()
        assert (holder(world), outcomes(world)) == ("b", {})
        add(world, pod("small", cpu="1", **on_n0))
        end(world, "single-0")
        await world.settle()
        assert not world.node_of("small")


# --- hosts -----------------------------------------------------------------------------------------------


async def test_next_host_takes_up_the_hold() -> None:
    world = world_of(full(3))
    await world.__aenter__()
    add(world, gang("a"), *members("a", 6))
    await world.settle()
    held = [found.get("status.nominatedNodeName") for i in range(5) if (found := world.pod(f"a-{i}"))]
    await world.host.stop()
    end(world, "a-5")  # below its minimum, the group is not tried
    after = Host(world.host.configuration, world.cluster, world.host.options)
    world.host = after
    await after.start()
    try:
        assert holder(world) == "a"
        add(world, pod("single", cpu="1"))
        await world.settle()
        assert nominated(world, "a") == held
        assert not world.node_of("single")
        world.clock.advance(10 * HOUR_S)
        await world.settle()
        assert world.node_of("single")
        assert nominated(world, "a") == []
    finally:
        await after.stop()


async def test_another_configuration_leaves_the_hold() -> None:
    async with world_of(full(3, ends_s=4 * HOUR_S)) as world:
        add(world, gang("a"), *members("a", 6))
        await world.settle()
        hold = world.host.holds.current
        assert hold is not None
        world.host = await reload(world.host, world.host.configuration)
        await world.settle()
        now = world.host.holds.current
        assert now is not None
        assert (now.since_s, now.until_s, now.nodes) == (hold.since_s, hold.until_s, hold.nodes)
        add(world, pod("single", cpu="1"))
        await world.settle()
        assert not world.node_of("single")


@pytest.mark.parametrize("lacks", ["setting", "profile"])
async def test_configuration_that_lets_the_group_hold_no_room_frees_it(lacks: str) -> None:
    other = "- schedulerName: other\n"
    holds = "  pluginConfig: [{name: GangScheduling, args: {timeoutSeconds: 36000, holdRoom: true}}]\n"
    async with world_of(full(3), configuration=f"{PROFILES}{other}{holds}") as world:
        add(world, gang("a", holds={}), *members("a", 6, schedulerName="other"), pod("single", cpu="1"))
        await world.settle()
        assert (holder(world), world.node_of("single")) == ("a", "")
        after = PROFILES if lacks == "profile" else f"{PROFILES}{other}"
        world.host = await reload(world.host, load_configuration(after, source="after", feature_gates=GROUPS))
        await world.settle()
        # The members of a profile that is gone are another scheduler's.
        annotate(world, "a", {"tests/anything": "else"})
        await world.settle()
        assert (holder(world), outcomes(world)) == ("", {"given_up": 1})
        assert world.node_of("single")


async def test_profile_without_the_plugin_holds_nothing() -> None:
    off = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint: {disabled: [{name: GangScheduling}]}
"""
    async with world_of(full(3), configuration=off) as world:
        add(world, gang("a"), *members("a", 6, cpu="3"))
        await world.settle()
        assert holder(world) == ""


async def test_group_of_coscheduling_holds_room() -> None:
    async with world_of(full(3), configuration=COSCHEDULING_PROFILE) as world:
        theirs = their_group("a", minMember=6)
        add(world, {**theirs, "metadata": {**theirs["metadata"], "annotations": HOLDS}})
        add(world, *(pod(f"a-{i}", cpu="1", labels={COSCHEDULING_LABEL: "a"}) for i in range(6)))
        await world.settle()
        assert (holder(world), len(nominated(world, "a"))) == ("a", 6)
        add(world, pod("single", cpu="1"))
        end(world, "n0-0", "n0-1", "n1-0", "n1-1")
        await world.settle()
        assert not world.node_of("single")
        assert len({name for name in (world.node_of(f"a-{i}") for i in range(6)) if name}) == 2
