"""Many pods asked about at once, also on nodes that do not exist: the answers are those of a cluster that has
the nodes, with plugins on either transport, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from berth_host.app import NodeTemplate, Simulate
from berth_host.errors.endpoints import QuestionError
from berth_host.explain.simulated import (
    Placement,
    Rejections,
    SimulationSummary,
    Verdict,
)
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin, PodSensitivity
from berth_sdk.kube_object import ObjectRef
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod
from berth_sdk.status import Status
from berth_sdk.tables import NodeView
from support.hosts import World, enabling, node, pod
from support.plugin_processes import plugin_process

HOSTNAME = "kubernetes.io/hostname"


class NoSpot(Plugin):
    """Keeps pods labelled `steady` off nodes labelled `spot`, and counts what it is told."""

    asked = 0
    reserved = 0

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        NoSpot.asked += 1
        if "steady" in pod.labels and "spot" in node.labels:
            return Status.unschedulable("spot nodes go away")
        return Status.success()

    def score(self, state: CycleState, pod: Pod, node: NodeView) -> int:
        return 10 if "liked" in node.labels else 0

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        NoSpot.reserved += 1
        return Status.success()


class DeclaredNoSpot(NoSpot):
    """The same, with declarations by which the host keeps its answers."""

    needs = (Need.nodes(),)
    depends_on = DependsOn.NODE
    pod_sensitivity = PodSensitivity.NONE


def template(name: str, count: int, *, cpu: str = "4", pods: Sequence[Any] = (), **more: Any) -> NodeTemplate:
    labels = {HOSTNAME: name, "zone": more.pop("zone", "new")} | more.pop("labels", {})
    return NodeTemplate(name=name, node=node(name, cpu=cpu, labels=labels, **more), count=count, pods=pods)


async def simulated(
    world: World, pods: Sequence[Any], templates: Sequence[NodeTemplate] = (), **options: Any
) -> tuple[list[Placement], SimulationSummary]:
    """Ask, and check that nothing is left behind. Return the answers in the order of the question."""
    before = trace(world)
    asked = Simulate(pods=pods, templates=templates, **options)
    simulation = await world.host.ask(asked)
    found = [one async for part in simulation.run() for one in part]
    assert sorted(one.index for one in found) == list(range(len(pods)))
    await world.settle()
    assert trace(world) == before
    return sorted(found, key=lambda one: one.index), simulation.summary()


def trace(world: World) -> tuple[Any, ...]:
    """Return what a question must not change."""
    host = world.host
    host.snapshot.update(host.cache)
    table = host.snapshot.nodes
    return (
        host.queue.counts.pods(),
        [(item.key, item.attempts) for item in host.queue.pods()],
        {name: sorted(one.key for one in table.node(at).pods) for at, name in enumerate(table.names)},
        table.allocatable("cpu").tolist(),
        table.requested("cpu").tolist(),
        host.cache.node_count,
        dict(host.queue.nominated_pods()),
        len(host.diagnoses),
        host.snapshot.held,
        [(item.ref.key, item.get("spec.nodeName")) for item in world.server.list("pods")],
        NoSpot.reserved,
    )


def where(found: Sequence[Placement]) -> list[str]:
    return [
        one.node_name or (f"{one.template}/{one.ordinal}" if one.template else "pending") for one in found
    ]


def spread(key: str, skew: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
        **more,
    }


APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "x"}}}
        ]
    }
}


def some_pod(random: Random, number: int) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "cpu": random.choice(["500m", "1", "2", "3", "9"]),
        "labels": {"app": random.choice("xy")},
    }
    match random.randrange(6):
        case 0:
            spec["topologySpreadConstraints"] = [spread(HOSTNAME)]
        case 1:
            spec["topologySpreadConstraints"] = [spread("zone"), spread(HOSTNAME, 2, minDomains=4)]
        case 2:
            spec["affinity"] = APART
        case 3:
            spec["nodeSelector"] = {"zone": random.choice(["a", "new"])}
        case 4:
            spec["nodeSelector"] = {HOSTNAME: random.choice(["n0", "berth-template-0-1"])}
    return pod(f"p{number:02}", priority=random.choice([0, 0, 5]), **spec)


def cluster(random: Random) -> list[dict[str, Any]]:
    nodes = [node(f"n{i}", cpu="4", labels={HOSTNAME: f"n{i}", "zone": "a"}) for i in range(3)]
    return [*nodes, pod("old", cpu="1", nodeName="n1", labels={"app": "x"})]


def questions(seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[NodeTemplate]]:
    random = Random(seed)
    objects = cluster(random)
    templates = [
        template("small", 3, cpu="2"),
        template("large", 2, cpu="6", zone="b", pods=[pod("agent", cpu="1", labels={"app": "x"})]),
    ]
    return objects, [some_pod(random, number) for number in range(16)], templates


def as_real(templates: Sequence[NodeTemplate]) -> list[dict[str, Any]]:
    """Return the template's nodes and their pods as objects of a cluster."""
    objects = []
    for number, one in enumerate(templates):
        shape: Any = one.node
        running: Sequence[Any] = one.pods
        for ordinal in range(one.count):
            name = f"berth-template-{number}-{ordinal}"
            labels = {**shape["metadata"]["labels"], HOSTNAME: name}
            objects.append({**shape, "metadata": {"name": name, "labels": labels}})
            objects += [
                {
                    **there,
                    "metadata": {
                        **there["metadata"],
                        "name": f"{there['metadata']['name']}-{number}{ordinal}",
                    },
                    "spec": {**there["spec"], "nodeName": name},
                }
                for there in running
            ]
    return objects


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", range(5))
async def test_pods_get_the_nodes_that_they_get_in_a_cluster_that_has_the_nodes(seed: int) -> None:
    objects, pods, templates = questions(seed)
    async with World(objects) as world:
        await world.settle()
        found, summary = await simulated(world, pods, templates)
    async with World([*objects, *as_real(templates)]) as real:
        await real.settle()
        names = {one.name: number for number, one in enumerate(templates)}
        for at in sorted(range(len(pods)), key=lambda at: (-pods[at]["spec"]["priority"], at)):
            one, name = found[at], pods[at]["metadata"]["name"]
            real.server.create({**pods[at], "spec": {**pods[at]["spec"], "preemptionPolicy": "Never"}})
            await real.settle()
            expected = one.node_name
            if one.template:
                expected = f"berth-template-{names[one.template]}-{one.ordinal}"
            assert real.node_of(name) == expected, name
            if not one.is_placed:
                assert real.message_of(name).startswith(one.message)
                real.server.delete("pods", ObjectRef(namespace="default", name=name))  # no second attempt
                await real.settle()
    assert summary.placed_count == sum(one.is_placed for one in found)
    assert summary.placed_count + summary.pending_count == len(pods)
    assert [use.pod_count for use in summary.templates] == [
        sum(one.template == name for one in found) for name in ("small", "large")
    ]


async def ask_all_ways(world: World) -> list[Any]:
    pods = [pod(f"p{i}", cpu="1", labels={"steady": "1"} if i % 2 else {}) for i in range(8)]
    templates = [
        template("spot", 3, labels={"spot": "1", "liked": "1"}),
        template("firm", 2, cpu="2"),
    ]
    await world.settle()
    answers: list[Any] = []
    for options in (
        {},
        {"only_templates": True, "all_verdicts": True},
        {"fills_used_nodes": True},
        {"each_alone": True, "all_verdicts": True},
    ):
        found, summary = await simulated(world, pods, templates, **options)
        answers.append((found, summary.templates, summary.placed_count))
    return answers


@pytest.mark.parametrize("plugin", [NoSpot, DeclaredNoSpot])
async def test_served_plugin_gives_the_answers_that_it_gives_in_process(
    plugin: type[Plugin], tmp_path: Path
) -> None:
    name = plugin.__name__
    objects = [node("n0", cpu="2"), pod("old", cpu="1", nodeName="n0")]
    async with World(objects, [plugin]) as world:
        here = await ask_all_ways(world)
    async with plugin_process(tmp_path / "p.sock", f"host.questions.test_simulating:{name}") as process:
        text = enabling([name]) + (
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
            f"plugins:\n- {{name: {name}, endpoint: '{process.endpoint}', required: true,"
            " points: {filter: {deadline: 10s, policy: Fail}, score: {deadline: 10s, policy: Fail}}}\n"
        )
        async with World(objects, configuration=text) as world:
            there = await ask_all_ways(world)
    assert there == here
    placed = where(here[0][0])
    assert {place.partition("/")[0] for place in placed[::2]} == {"spot"}
    assert "spot" not in {place.partition("/")[0] for place in placed[1::2]}


async def test_existing_nodes_are_left_out_and_still_count_for_affinity() -> None:
    together = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
            ]
        }
    }
    objects = [node("n0", labels={"zone": "a"}), pod("old", nodeName="n0", labels={"app": "x"})]
    async with World(objects) as world:
        await world.settle()
        pods = [pod("web", affinity=together)]
        templates = [template("near", 1, zone="a"), template("far", 1, zone="b")]
        (found,), _ = await simulated(world, pods, templates, only_templates=True, all_verdicts=True)
    assert where([found]) == ["near/0"]
    assert found.verdicts == [
        Verdict("near", 1, []),
        Verdict("far", 0, [Rejections("InterPodAffinity", "node(s) didn't match pod affinity rules", 1)]),
    ]


async def test_few_nodes_are_used_where_used_ones_are_filled_first() -> None:
    async with World([node("n0", cpu="2")]) as world:
        await world.settle()
        pods = [pod(f"p{i}", cpu="1") for i in range(6)]
        spread_out, by_score = await simulated(world, pods, [template("t", 4)], only_templates=True)
        packed, filled = await simulated(world, pods, [template("t", 4)], fills_used_nodes=True)
    assert {one.ordinal for one in spread_out} == {0, 1, 2, 3}
    assert where(packed) == ["n0", "n0", "t/0", "t/0", "t/0", "t/0"]
    assert [by_score.templates[0].used_count, filled.templates[0].used_count] == [4, 1]


async def test_most_important_pod_is_placed_first_and_pods_that_are_asked_alone_take_no_room() -> None:
    async with World([node("n0", cpu="1")]) as world:
        await world.settle()
        pods = [pod("low", cpu="4"), pod("high", cpu="4", priority=7)]
        found, summary = await simulated(world, pods, [template("t", 1)])
        assert where(found) == ["pending", "t/0"]
        assert found[0].message == "0/2 nodes are available: 2 Insufficient cpu."
        assert (summary.placed_count, summary.pending_count) == (1, 1)
        alone, summary = await simulated(world, pods, [template("t", 1)], each_alone=True)
        assert where(alone) == ["t/0", "t/0"]
        assert summary.templates[0].used_count == 1


class Backwards:
    """Sorts by name, the last one first."""

    def less(self, first: QueuedPod, second: QueuedPod) -> bool:
        if "odd" in (first.pod.name, second.pod.name):
            raise RuntimeError("odd")
        return first.pod.name > second.pod.name


class ByName:
    """Sorts by name, the last one first; it has no key for pods named odd."""

    def sort_key(self, pod: QueuedPod) -> bytes:
        return b"" if pod.pod.name == "odd" else bytes(255 - byte for byte in pod.pod.name.encode())


@pytest.mark.parametrize("plugin", [Backwards, ByName])
async def test_pods_are_placed_in_the_order_of_the_queue_sort_plugin(plugin: type) -> None:
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins: {{queueSort: {{enabled: [{{name: {plugin.__name__}}}],"
        " disabled: [{name: PrioritySort}]}}\n"
    )
    async with World([node("n0", cpu="2")], [plugin], configuration=text) as world:
        await world.settle()
        names = ("a", "c", "b")
        found, _ = await simulated(world, [pod(name, cpu="1", priority=i) for i, name in enumerate(names)])
        assert where(found) == ["pending", "n0", "n0"]
        found, sums = await simulated(world, [pod("odd", cpu="1"), pod("z", cpu="1"), pod("b", cpu="1")])
        assert [one.is_placed for one in found][1:] == [True, plugin is ByName]
        (note,) = sums.notes
        failed = (
            "gave no sort key for 1 of 3 pods" if plugin is ByName else "comparisons of pods (RuntimeError"
        )
        assert note.startswith(f"plugin {plugin.__name__} ")
        assert failed in note


async def test_one_unused_node_of_a_template_is_asked_about_for_all() -> None:
    async with World([node("n0")], [NoSpot]) as world:
        await world.settle()
        NoSpot.asked = 0
        found, _ = await simulated(world, [pod("web")], [template("t", 50)], all_verdicts=True)
        assert NoSpot.asked == 2
        assert [one.fitting_count for one in found[0].verdicts] == [1, 50]
        by_name = pod("named", nodeSelector={HOSTNAME: "berth-template-0-07"})
        found, _ = await simulated(world, [by_name], [template("t", 50)], all_verdicts=True)
        assert where(found) == ["t/7"]
        assert [one.fitting_count for one in found[0].verdicts] == [0, 1]


async def test_cycles_run_between_the_slices_of_a_long_question() -> None:
    pods = [pod(f"q{i}", cpu="10m") for i in range(400)]
    async with World([node("n0", cpu="64", pods="2000")]) as world:
        await world.settle()
        simulation = await world.host.ask(Simulate(pods=pods, templates=[template("t", 20)]))
        bound: list[str] = []
        creating = asyncio.create_task(create_while_held(world, pod("urgent")))
        async for part in simulation.run():
            bound += [world.node_of("urgent")] * len(part)
        await creating
        await world.settle()
    assert len(bound) == simulation.summary().placed_count == 400
    assert simulation.summary().slice_count >= 2
    assert (bound[0], bound[-1]) == ("", "n0")


async def create_while_held(world: World, manifest: dict[str, Any]) -> None:
    """Create a pod in the first slice of a question."""
    while not world.host.snapshot.held:
        await asyncio.sleep(0)
    world.server.create(manifest)


async def test_question_about_unknown_profiles_and_taken_names_is_refused_with_the_cure() -> None:
    async with World([node("berth-template-0-0")]) as world:
        await world.settle()
        with pytest.raises(QuestionError, match="schedulerName 'other', and this scheduler places default"):
            await simulated(world, [pod("web", schedulerName="other")])
        found, _ = await simulated(
            world, [pod("web", schedulerName="other")], scheduler_name="default-scheduler"
        )
        assert where(found) == ["berth-template-0-0"]
        with pytest.raises(QuestionError, match=r"a node named berth-template-0-0.*rename that node"):
            await simulated(world, [pod("web")], [template("t", 1)])
        assert not world.host.snapshot.held
