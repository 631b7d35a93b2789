"""Questions to a running host: the answers, with plugins on either transport; they leave no trace."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from berth_host.app import FrameworkAlone
from berth_host.errors.endpoints import QuestionError, UnknownObjectError
from berth_host.explain.pod_fit import DrainAnswer, PodFit
from berth_host.questions.drain import Drain
from berth_host.questions.fit import Fit, Refit
from berth_host.questions.group_trials import TryGroup
from berth_host.questions.questions import Question
from berth_host.questions.simulating import Simulate
from berth_host.questions.what_ifs import WhatIf
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.results import QueuedPod
from berth_sdk.scenarios import Scenario
from berth_sdk.status import Status
from berth_sdk.tables import NodeView
from berth_sdk.testing import make_node, make_pod
from berth_sim.cluster.admitting import server_of_a_question
from support.hosts import World, enabling, node, pod
from support.plugin_processes import plugin_process

OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "1", "controller": True}


class NoSmall(Plugin):
    """Lets pods labelled `large` go to nodes whose name has no `small`, and counts what it is told."""

    reserved = 0

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        if "large" in pod.labels and "small" in node.name:
            return Status.unschedulable("too small for large pods")
        return Status.success()

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        if "gated" in pod.pod.labels:
            return Status.unresolvable("waits for a licence")
        return Status.success()

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        NoSmall.reserved += 1
        return Status.success()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        NoSmall.reserved -= 1


def trace(world: World) -> tuple[Any, ...]:
    """Return what a question must not change."""
    host = world.host
    return (
        host.queue.counts.pods(),
        [(item.key, item.attempts) for item in host.queue.pods()],
        {
            name: sorted(one.key for one in info.pods)
            for name in ("a", "b")
            if (info := host.cache.node_info(name))
        },
        dict(host.queue.nominated_pods()),
        len(host.diagnoses),
        [(item.ref.key, item.get("spec.nodeName")) for item in world.server.list("pods")],
        NoSmall.reserved,
    )


async def asked(world: World, manifest: dict[str, Any]) -> PodFit:
    before = trace(world)
    found = await world.host.ask(Fit(manifest))
    await world.settle()
    assert trace(world) == before
    return found


async def drained(world: World, name: str) -> DrainAnswer:
    before = trace(world)
    found = await world.host.ask(Drain(name))
    await world.settle()
    assert trace(world) == before
    return found


async def test_pod_that_fits_gets_the_node_that_it_is_given_afterwards() -> None:
    objects = [node("a", cpu="4"), node("b", cpu="4"), pod("old", cpu="3", nodeName="a")]
    async with World(objects) as world:
        await world.settle()
        found = await asked(world, pod("web", cpu="1"))
        assert (found.node, found.tied, found.message, found.preemption) == ("b", 1, "", None)
        assert [item.node_name for item in found.scores] == ["b", "a"]
        assert found.scores[0].plugins["NodeResourcesFit"] > found.scores[1].plugins["NodeResourcesFit"]
        world.server.create(pod("web", cpu="1"))
        await world.settle()
        assert world.node_of("web") == "b"


async def refitted(world: World, key: str) -> PodFit:
    before = trace(world)
    found = await world.host.ask(Refit(key))
    await world.settle()
    assert trace(world) == before
    assert found is not None
    return found


async def test_pod_on_a_node_is_asked_about_as_if_it_had_left() -> None:
    objects = [node("a", cpu="2"), node("b", cpu="2"), pod("web", cpu="2", nodeName="a")]
    async with World(objects) as world:
        await world.settle()
        found = await refitted(world, "default/web")
        assert (found.left, found.node, found.tied) == ("a", "a", 2)
        world.server.create(pod("late", cpu="1", nodeName="b"))
        await world.settle()
        found = await refitted(world, "default/web")
        assert (found.node, found.verdicts["b"].plugin, len(found.scores)) == ("a", "NodeResourcesFit", 1)
        # A single node that fits is not scored.
        rows = {row[0]: row[1:] for row in found.by_node()["nodes"]}
        assert rows["a"] == ["best", "", "", None, None]
        assert rows["b"] == ["rejected", "NodeResourcesFit", "Insufficient cpu", None, None]
        assert await world.host.ask(Refit("default/none")) is None


async def test_pending_pod_is_asked_about_every_node_in_spite_of_its_nomination() -> None:
    gated = pod("gated", schedulingGates=[{"name": "example.com/wait"}])
    gated["status"] = {"nominatedNodeName": "a"}
    async with World([node("a"), node("b")]) as world:
        world.server.create(gated, restore=True)
        await world.settle()
        known = world.host.objects.pod("default/gated")
        assert known is not None
        assert known.nominated_node == "a"
        found = await refitted(world, "default/gated")
        assert (found.left, [one.node_name for one in found.scores]) == ("", ["a", "b"])


async def test_victims_are_named_and_live_on() -> None:
    objects = [node("a", cpu="2"), node("b", cpu="1"), pod("low", cpu="2", nodeName="a")]
    async with World(objects) as world:
        await world.settle()
        found = await asked(world, pod("high", cpu="2", priority=10))
        assert (found.node, found.preemption and found.preemption.node) == ("", "a")
        assert found.preemption is not None
        assert found.preemption.victims == ["default/low"]
        assert found.message.startswith("0/2 nodes are available: 2 Insufficient cpu. preemption: ")
        assert [item.text for item in found.nearest] == ["node b lacks 1 CPU", "node a lacks 2 CPU"]
        low = await asked(world, pod("equal", cpu="2"))
        assert low.preemption is not None
        assert (low.preemption.node, low.preemption.victims) == ("", [])


@pytest.mark.parametrize("transport", ["in_process", "socket"])
async def test_plugin_answers_the_same_on_either_transport(transport: str, tmp_path: Path) -> None:
    objects = [
        node("small-0"),
        node("large-0"),
        pod("m", nodeName="large-0", labels={"large": "yes"}),
        pod("n", nodeName="large-0"),
    ]
    if transport == "in_process":
        async with World(objects, [NoSmall]) as world:
            await large_pods_stay_away(world)
        return
    async with plugin_process(tmp_path / "p.sock", "host.questions.test_questions:NoSmall") as process:
        text = enabling(["NoSmall"]) + (
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
            f"plugins:\n- {{name: NoSmall, endpoint: '{process.endpoint}', required: true,"
            " points: {filter: {deadline: 10s, policy: Fail}}}\n"
        )
        async with World(objects, configuration=text) as world:
            await large_pods_stay_away(world)


async def large_pods_stay_away(world: World) -> None:
    await world.settle()
    moved = await refitted(world, "default/m")
    assert (moved.left, moved.node, moved.verdicts["small-0"].plugin) == ("large-0", "large-0", "NoSmall")
    found = await asked(world, pod("web", labels={"large": "yes"}))
    assert (found.node, found.verdicts["small-0"].plugin) == ("large-0", "NoSmall")
    answer = await drained(world, "large-0")
    assert [(one.pod, one.node) for one in answer.moves] == [("default/m", ""), ("default/n", "small-0")]
    (stuck,) = answer.stuck
    assert [(item.plugin, item.reason, item.node_names) for item in stuck.rejections] == [
        ("NoSmall", "too small for large pods", ("small-0",))
    ]
    assert "1 node(s) were being drained" in stuck.message
    gated = await asked(
        world, pod("late", labels={"gated": "yes"}, schedulingGates=[{"name": "example.com/a"}])
    )
    assert {gate.plugin: gate.message for gate in gated.gates} == {
        "SchedulingGates": "waiting for scheduling gates: [example.com/a]",
        "NoSmall": "waits for a licence",
    }
    # The rest of the answer is about the time after that.
    assert (bool(gated.node), gated.fits_now, found.gates, found.fits_now) == (True, False, [], True)


async def test_drained_pods_take_room_from_each_other_and_the_most_important_goes_first() -> None:
    objects = [
        node("a", cpu="4"),
        node("b", cpu="3"),
        pod("low", cpu="2", nodeName="a"),
        pod("high", cpu="2", nodeName="a", priority=5),
        {**pod("agent", nodeName="a"), "metadata": {"name": "agent", "ownerReferences": [OWNER]}},
        pod("other", nodeName="a", schedulerName="other"),
    ]
    async with World(objects) as world:
        await world.settle()
        answer = await drained(world, "a")
        assert [(one.pod, one.node) for one in answer.moves] == [("default/high", "b"), ("default/low", "")]
        assert answer.moves[1].message == (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were being drained."
        )
        assert answer.unmanaged == {"default/high", "default/low"}
        assert answer.stay == {
            "default/agent": "belongs to a DaemonSet",
            "default/other": "is placed by another scheduler, other",
        }
        with pytest.raises(UnknownObjectError, match="there is no node aa: did you mean a"):
            await world.host.ask(Drain("aa"))


DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "db", "uid": "2", "controller": True}


def replica(name: str, cpu: str = "1", **more: Any) -> dict[str, Any]:
    """Return a pod of a ReplicaSet, on node a."""
    made = pod(name, cpu=cpu, nodeName="a", labels={"app": "db"}, **more)
    made["metadata"]["ownerReferences"] = [DEPLOYMENT]
    return made


def add_budget(world: World, name: str, allowed: int, *, healthy: int = 3) -> None:
    """Add a PodDisruptionBudget of the pods of db, as the disruption controller has counted it."""
    written = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "db"}}},
        "status": {
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": 2,
            "observedGeneration": 1,
        },
    }
    world.server.create(written, restore=True)


async def test_pods_leave_in_the_rounds_that_their_budget_lets_go() -> None:
    objects = [node("a"), node("b", cpu="2"), *(replica(f"db-{i}") for i in range(3))]
    async with World([*objects, pod("web", nodeName="a")]) as world:
        add_budget(world, "db", 1)
        await world.settle()
        answer = await drained(world, "a")
    # db-0 makes room in the budget once it runs elsewhere, db-1 too; db-2 finds no node, after web and those.
    assert [(one.pod, one.node) for one in answer.moves] == [
        ("default/db-0", "b"),
        ("default/web", "b"),
        ("default/db-1", ""),
        ("default/db-2", ""),
    ]
    assert answer.unmanaged == {"default/web"}
    waits = "PodDisruptionBudget default/db waits for the replacement of "
    assert {pod: (one.round, one.message) for pod, one in answer.refused.items()} == {
        "default/db-1": (2, f"{waits}default/db-0"),
        "default/db-2": (None, f"{waits}default/db-0"),
    }
    assert (answer.blocked, [one.pod for one in answer.stuck]) == (
        ["default/db-2"],
        ["default/db-1", "default/db-2"],
    )
    first, _, second, last = answer.as_json()["moves"]
    assert (first["round"], first["budget"], first["refusal"]) == (1, None, "")
    assert (second["round"], second["budget"], last["round"]) == (2, "default/db", None)


async def test_pods_that_wait_for_their_budget_still_count_on_the_node() -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}
            ]
        }
    }
    zone = {"zone": "z"}
    guest = pod("guest", nodeName="a", priority=5, affinity=apart)
    objects = [node("a", labels=zone), node("b", labels=zone), replica("db-0"), guest]
    async with World(objects) as world:
        add_budget(world, "db", 0, healthy=2)
        await world.settle()
        answer = await drained(world, "a")
    guest_move, db_move = answer.moves
    assert (guest_move.pod, guest_move.node, db_move.node) == ("default/guest", "", "b")
    assert answer.refused["default/db-0"].message == (
        "PodDisruptionBudget default/db needs 2 healthy pods and has 2"
    )
    assert answer.notes == []


async def test_budgets_that_are_not_watched_are_named_in_the_answer() -> None:
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins: {postFilter: {disabled: [{name: '*'}]}}\n"
    )
    async with World([node("a"), replica("db-0")], configuration=text) as world:
        add_budget(world, "db", 0)
        await world.settle()
        answer = await drained(world, "a")
    assert (answer.refused, answer.notes[0].split(":")[0]) == (
        {},
        "PodDisruptionBudgets are not considered",
    )


async def test_questions_wait_for_cycles_and_cycles_for_questions() -> None:
    pods = [pod(f"p{i:02}") for i in range(40)]
    async with World([node("a"), node("b")], [NoSmall]) as world:
        for item in pods:
            world.server.create(item)
        drain = asyncio.ensure_future(world.host.ask(Drain("a")))
        answers = await asyncio.gather(*(world.host.ask(Fit(pod(f"q{i}"))) for i in range(5)))
        assert (await drain).node == "a"
        await world.settle()
        assert all(one.node for one in answers)
        assert all(world.node_of(f"p{i:02}") for i in range(40))


async def test_question_after_the_loop_has_stopped_is_still_answered() -> None:
    async with World([node("a")]) as world:
        await world.settle()
        world.host.scheduler.stop_popping()
        assert (await world.host.ask(Fit(pod("web")))).node == "a"


async def test_cycle_waits_for_one_question_however_many_wait() -> None:
    async with World([node("a")]) as world:
        await world.settle()
        scheduler = world.host.scheduler
        placed: list[str] = []

        async def ask(created: str = "") -> None:
            async with scheduler.undisturbed():
                if created:
                    world.server.create(pod(created))
                for _ in range(50):
                    await asyncio.sleep(0)
                placed.append(world.node_of("urgent"))

        await asyncio.gather(ask("urgent"), *(ask() for _ in range(5)))
        assert placed == ["", "a", "a", "a", "a", "a"]


async def test_question_rests_as_long_as_the_one_before_it_took_while_pods_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rests: list[float] = []

    async def sleep(seconds: float, real: Any = asyncio.sleep) -> None:
        if seconds:
            rests.append(seconds)
        await real(0)

    async with World([node("a")]) as world:
        await world.settle()
        scheduler = world.host.scheduler
        now_s = 100.0
        monkeypatch.setattr("berth_host.cycle.loop.work_s", lambda: now_s)
        monkeypatch.setattr("berth_host.cycle.loop.asyncio.sleep", sleep)
        async with scheduler.undisturbed():
            now_s += 3.0
        async with scheduler.undisturbed():  # nobody waits for a cycle
            now_s += 2.0
        monkeypatch.setattr(type(scheduler.queue), "has_ready", property(lambda _: True))
        async with scheduler.undisturbed():
            now_s += 1.0
        now_s += 1.0
        async with scheduler.undisturbed():
            pass
    assert rests == [2.0]


SHARED = [
    node("a", cpu="4"),
    node("b", cpu="2"),
    pod("old", cpu="1", nodeName="a"),
    pod("other", cpu="1", nodeName="b"),
    {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "none"}}, "minAvailable": 1},
    },
]


@pytest.mark.parametrize(
    "question",
    [
        Fit(pod("web", cpu="1")),
        Fit(pod("web", cpu="1"), nominated=[make_pod("first", cpu="3", nominated="a")]),
        Fit(pod("web", schedulingGates=[{"name": "example.com/a"}])),
        Fit(pod("web", cpu="9"), verdicts_only=True),
        Refit("default/old"),
        Refit("default/none"),
        Drain("a"),
    ],
    ids=["fit", "nominated", "gated", "verdicts", "refit", "nobody", "drain"],
)
async def test_a_host_and_a_framework_alone_give_the_same_answer(question: Question[Any]) -> None:
    alone = FrameworkAlone(admission=server_of_a_question)
    async with World(SHARED) as world:
        await world.settle()
        for item in world.server.list("nodes"):
            alone.add_node(Node.from_object(item))
        for item in world.server.list("pods"):
            alone.add_pod(Pod.from_object(item))
        before = trace(world)
        asked = await world.host.ask(question)
        assert trace(world) == before
    assert await alone.ask(question) == asked
    assert not alone.snapshot.held


async def test_pod_that_fits_nowhere_has_the_same_verdicts_and_shortages_without_a_host() -> None:
    alone = FrameworkAlone(admission=server_of_a_question)
    question = Fit(pod("web", cpu="9"))
    async with World(SHARED) as world:
        await world.settle()
        for item in world.server.list("nodes"):
            alone.add_node(Node.from_object(item))
        asked = await world.host.ask(question)
    found = await alone.ask(question)
    assert found.verdicts == asked.verdicts
    assert [item.node_names for item in found.nearest] == [("a",), ("b",)]
    # Only a host has a preemption.
    assert (found.preemption is None, asked.preemption is None) == (True, False)


async def test_running_host_tries_no_group() -> None:
    async with World([node("a")]) as world:
        question = TryGroup(PodGroup(name="train", is_gang=True, min_count=1), [make_pod("t0")])
        with pytest.raises(QuestionError, match="ask a FrameworkAlone over a copy"):
            await world.host.ask(question)
        assert world.host.cache.groups.state(question.group.key) is None


async def test_running_host_answers_no_what_if() -> None:
    async with World(SHARED) as world:
        await world.settle()
        with pytest.raises(QuestionError, match="ask a FrameworkAlone over a copy"):
            await world.host.ask(WhatIf(make_pod("web"), [Scenario("a")]))


async def test_a_framework_alone_moves_the_pods_of_every_scheduler() -> None:
    alone = FrameworkAlone()
    for name in ("a", "b"):
        alone.add_node(make_node(name, cpu="4"))
    alone.add_pod(replace(make_pod("old", cpu="1", node="a", uid="old"), scheduler_name="other"))
    answer = await alone.ask(Drain("a"))
    assert (answer.stay, [move.node for move in answer.moves]) == ({}, ["b"])


async def test_pods_of_one_record_are_told_apart() -> None:
    alone = FrameworkAlone()
    alone.add_node(make_node("a", cpu="4"))
    bare = replace(make_pod("web", cpu="2"), uid="")
    simulation = await alone.ask(Simulate(pods=[bare, bare, bare]))
    placed, _ = await simulation.placements()
    assert [one.node_name for one in placed] == ["a", "a", ""]
