"""Would a group fit? Asked of a Framework without a scheduler; nothing is left afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from berth_host.app import Fit, FrameworkAlone, TryGroup
from berth_host.config.loading import load_configuration
from berth_host.errors.plugins import PluginLoadError
from berth_host.plugins.registry import ClassRegistry
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_group import COSCHEDULING, PodGroup
from berth_sdk.status import Status
from berth_sdk.testing import make_node, make_pod
from support.coscheduling import COSCHEDULING_PROFILE
from support.groups import GROUPS, grouped, nodes_of, pod_group
from support.groups import members as manifests
from support.hosts import enabling, node
from support.plugin_processes import plugin_process

TOPOLOGY = {**GROUPS, "TopologyAwareWorkloadScheduling": True}
EMPTY = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def alone(
    nodes: Mapping[str, str],
    *,
    text: str = EMPTY,
    gates: Mapping[str, bool] = TOPOLOGY,
    plugins: Iterable[type] = (),
) -> FrameworkAlone:
    """Return a framework over nodes, with their CPUs; a name before `/` is the node's rack."""
    classes = {cls.__name__: cls for cls in plugins}
    configuration = load_configuration(
        text, source="x", registered=ClassRegistry(classes).points(), feature_gates=gates
    )
    made = FrameworkAlone(configuration, plugins=classes)
    for name, cpu in nodes.items():
        made.add_node(make_node(name.replace("/", "-"), cpu=cpu, labels={"rack": name.partition("/")[0]}))
    return made


def gang(least: int, **more: Any) -> PodGroup:
    return PodGroup(name="train", is_gang=True, min_count=least, **more)


def pods(count: int, cpu: str = "2", **more: Any) -> list[Pod]:
    return [make_pod(f"t{i}", cpu=cpu, **more) for i in range(count)]


async def test_group_gets_its_nodes_and_nothing_is_left() -> None:
    framework = alone({"a/1": "4", "a/2": "4"})
    for _ in range(2):
        answer = await framework.ask(TryGroup(gang(3), pods(3)))
        assert (answer.fits, answer.message, answer.unfit, answer.untried) == (True, "", {}, [])
        assert answer.assignments == {"default/t0": "a-1", "default/t1": "a-2", "default/t2": "a-1"}
    assert list(framework.cache.groups.group_keys()) == []
    assert list(framework.cache.groups.objects()) == []
    assert (framework.snapshot.held, framework.snapshot.nodes.pod_count.tolist()) == (False, [0, 0])
    assert (await framework.ask(Fit(make_pod("web", cpu="4")))).verdicts["a-1"].is_success


async def test_members_that_do_not_fit_say_why() -> None:
    framework = alone({"a/1": "4"}, gates=GROUPS)
    answer = await framework.ask(TryGroup(gang(4), pods(5)))
    assert not answer.fits
    assert answer.message == "minCount (4) cannot be satisfied: 2 scheduled, 1 remaining"
    assert sorted(answer.assignments) == ["default/t0", "default/t1"]
    assert answer.unfit == {f"default/t{i}": "0/1 nodes are available: 1 Insufficient cpu." for i in (2, 3)}
    assert answer.untried == ["default/t4"]


async def test_running_and_nominated_pods_take_room_and_running_members_count() -> None:
    framework = alone({"a/1": "4", "a/2": "4"})
    framework.add_pod(make_pod("other", cpu="3", node="a-1"))
    assert (await framework.ask(TryGroup(gang(2), pods(2)))).fits
    first = make_pod("first", cpu="1", nominated="a-2", priority=5)
    assert not (await framework.ask(TryGroup(gang(2), pods(2), [first]))).fits
    # A member may take the room that another one was promised.
    own = [make_pod("t1", cpu="2", nominated="a-2")]
    assert (await framework.ask(TryGroup(gang(2), pods(2), own))).fits
    framework.add_pod(replace(make_pod("t9", cpu="1", node="a-1"), group_key=gang(2).key))
    assert (await framework.ask(TryGroup(gang(2), pods(2), [first]))).fits


async def test_best_rack_is_chosen_and_the_others_say_why_not() -> None:
    framework = alone({"a/1": "4", "b/1": "4", "b/2": "4"})
    answer = await framework.ask(TryGroup(gang(4, topology_key="rack"), pods(4)))
    assert (answer.fits, answer.placement) == (True, "b")
    assert set(answer.assignments.values()) == {"b-1", "b-2"}
    assert [(one.name, one.nodes, one.placed) for one in answer.placements] == [("b", 2, 4), ("a", 1, 2)]
    answer = await framework.ask(TryGroup(gang(6, topology_key="rack"), pods(6)))
    assert (answer.fits, answer.placement, len(answer.assignments)) == (False, "b", 4)
    assert "0/2 placements are available" in answer.message
    assert answer.unfit == {"default/t4": "0/2 nodes are available: 2 Insufficient cpu."}


@pytest.mark.parametrize("cpu", ["2", "3", "5"])
async def test_answer_is_that_of_the_cycle_of_a_group(cpu: str) -> None:
    shape = {"n0": "4", "n1": "7"}
    objects = [node(name, cpu=size) for name, size in shape.items()]
    async with grouped([*objects, pod_group("train", least=3), *manifests("train", 4, cpu=cpu)]) as world:
        await world.settle()
        placed = nodes_of(world, "train")
    framework = alone({}, gates=GROUPS)
    for name, size in shape.items():
        framework.add_node(make_node(name, cpu=size))
    asked = [make_pod(f"train-{i}", cpu=cpu) for i in range(4)]
    answer = await framework.ask(TryGroup(gang(3), asked))
    assert answer.fits == bool(placed)
    if answer.fits:
        assert answer.assignments == {f"default/{name}": where for name, where in placed.items()}


class Noting(Plugin):
    """Notes the reservations of trials."""

    needs: Sequence[Need] = ()
    noted: ClassVar[list[tuple[str, str, bool]]] = []

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self.noted.clear()

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        assert state.trial is not None
        self.noted.append(("reserve", pod.name, state.trial.tentative))
        return Status.success()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.noted.append(("unreserve", pod.name, True))


async def test_every_reservation_is_tentative_and_given_back() -> None:
    framework = alone({"a/1": "4"}, text=enabling(["Noting"]), plugins=[Noting])
    assert (await framework.ask(TryGroup(gang(2), pods(2)))).fits
    assert Noting.noted == [
        ("reserve", "t0", True),
        ("reserve", "t1", True),
        ("unreserve", "t1", True),
        ("unreserve", "t0", True),
    ]


@pytest.mark.slow
async def test_served_plugin_is_asked_about_a_group(tmp_path: Path) -> None:
    async with plugin_process(tmp_path / "p.sock", "support.only_even:OnlyEven") as process:
        text = enabling(["OnlyEven"]) + (
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 10s\n"
            f"plugins:\n- {{name: OnlyEven, endpoint: '{process.endpoint}',"
            " points: {filter: {deadline: 10s}}}\n"
        )
        framework = alone({}, text=text)
        for i in range(4):
            framework.add_node(make_node(f"n{i}", cpu="4"))
        with pytest.raises(PluginLoadError, match="attaches it for the block"):
            await framework.ask(TryGroup(gang(2), pods(2)))
        async with framework:
            answer = await framework.ask(TryGroup(gang(4), pods(4)))
            assert set(answer.assignments.values()) == {"n0", "n2"}
            assert not (await framework.ask(TryGroup(gang(5), pods(5)))).fits


async def test_group_of_coscheduling_needs_its_plugin() -> None:
    group = gang(2, kind=COSCHEDULING)
    with pytest.raises(ValueError, match="enable the plugin Coscheduling"):
        await alone({"a/1": "4"}).ask(TryGroup(group, pods(2)))
    framework = alone({"a/1": "4"}, text=COSCHEDULING_PROFILE, gates={})
    assert (await framework.ask(TryGroup(group, pods(2)))).fits
    short = gang(2, kind=COSCHEDULING, min_resources={"cpu": 9000})
    assert "resource gap: cpu 5000m" in (await framework.ask(TryGroup(short, pods(2)))).unfit["default/t0"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "no pods of podgroup/default/train were given"),
        ([make_pod("a", node="a-1")], "is on node a-1 already: give it to add_pod instead"),
        ([make_pod("a"), make_pod("a")], "pod default/a is there twice"),
        ([make_pod("a", namespace="other")], "pod other/a is not in the namespace of podgroup/default/train"),
        (
            [make_pod("a", priority=5), make_pod("b")],
            "priority as the pod group's priority, got 5 and 0: give the group and its pods the same",
        ),
    ],
    ids=["no pods", "runs", "twice", "namespace", "priorities"],
)
async def test_pods_that_cannot_be_tried_are_refused_with_the_cure(given: list[Pod], text: str) -> None:
    framework = alone({"a/1": "4"})
    with pytest.raises(ValueError) as refused:
        await framework.ask(TryGroup(gang(1), given))
    assert text in str(refused.value)
    assert list(framework.cache.groups.group_keys()) == []
    assert (await framework.ask(TryGroup(gang(1), pods(1)))).fits


async def test_pod_of_another_group_is_refused() -> None:
    stranger = replace(make_pod("a"), group_key="podgroup/default/other")
    with pytest.raises(ValueError, match="belongs to podgroup/default/other, not to podgroup/default/train"):
        await alone({"a/1": "4"}).ask(TryGroup(gang(1), [stranger]))


async def test_groups_that_the_configuration_does_not_schedule_are_refused() -> None:
    with pytest.raises(ValueError, match="load it with feature_gates="):
        await alone({"a/1": "4"}, gates={}).ask(TryGroup(gang(1), pods(1)))
    composite = PodGroup(kind="CompositePodGroup", name="job")
    with pytest.raises(ValueError, match="try its PodGroups, one by one"):
        await alone({"a/1": "4"}).ask(TryGroup(composite, pods(1)))
