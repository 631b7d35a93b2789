"""A shadow beside a real scheduler on the embedded cluster: what it decides, compares, and never writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest
from berth_host.app.reload import reload
from berth_host.cluster.port import EventRecord
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import load_configuration
from berth_host.errors.state import InvariantError
from berth_host.explain.make_pod_answer import pod_answer
from berth_host.plugins.registry import ClassRegistry
from berth_host.shadow.record import ShadowOutcome
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.results import PermitResult
from berth_sdk.status import Status
from berth_sdk.tables import NodeView
from support.beside import Beside, stored
from support.hosts import World, enabling, node, pod
from support.raw_http import Request, answer, raw_server
from support.scripted_plugin import WAYS, ScriptedPlugin, descriptor

BEST_FIT = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
  plugins: {multiPoint: {disabled: [{name: NodeResourcesBalancedAllocation}]}}
"""
DEFAULTS = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
NO_TAINTS = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {multiPoint: {disabled: [{name: TaintToleration}]}}}]
"""


EXTENDER = """\
extenders:
- {{urlPrefix: '{url}', filterVerb: filter, prioritizeVerb: prioritize, bindVerb: bind, weight: 1,
   nodeCacheCapable: true}}
"""
PREEMPTS = "preemptVerb: preempt"
SERVED = """\
---
apiVersion: config.berth.io/v1alpha1
kind: BerthConfiguration
plugins: [{{name: Acts, endpoint: '{endpoint}', required: true}}]
"""


class Gate(Plugin):
    """Gates every pod."""

    def pre_enqueue(self, pod: Pod) -> Status:
        return Status.unresolvable("not yet")


class Watched(Plugin):
    """Notes its calls."""

    calls: ClassVar[list[str]] = []

    def pre_enqueue(self, pod: Pod) -> Status:
        self.calls.append("PreEnqueue")
        return Status.success()

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        self.calls.append("Filter")
        return Status.success()

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.calls.append("Reserve")
        return Status.success()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.calls.append("Unreserve")

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult:
        self.calls.append("Permit")
        return PermitResult(Status.success())

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.calls.append("PostBind")


def loaded(text: str, *plugins: type) -> LoadedConfiguration:
    registered = ClassRegistry({one.__name__: one for one in plugins}).points()
    return load_configuration(text, source="shadow.yaml", registered=registered)


async def test_shadow_agrees_with_the_real_scheduler_and_writes_nothing() -> None:
    async with World([node("a"), node("b")]) as world, Beside(world) as shadow:
        for i in range(6):
            world.server.create(pod(f"p{i}", cpu="500m"))
        await shadow.counted(ShadowOutcome.SAME, 6)
        report = shadow.record.as_json()
        assert (report["compared"], report["agreed"], report["open"]) == (6, 6, 0)
        assert report["decisionMs"]["pods"] == report["realMs"]["pods"] == 6
        assert report["differences"] == []
        assert shadow.port.writes == []
        assert not shadow.host.cache.assumed_count
        assert not shadow.host.binding.bound_count


async def test_shadow_alone_decides_every_pod_and_leaves_the_server_unchanged() -> None:
    world = World([node("a", cpu="1"), pod("low", cpu="1", priority=0, nodeName="a")])
    async with Beside(world) as shadow:
        world.server.create(pod("high", cpu="1", priority=10))
        world.server.create(pod("small", cpu="0", priority=10))
        before = stored(world)
        await shadow.until(lambda: len(shadow.record.open) == 2)
        await shadow.settle()
        assert stored(world) == before
        assert shadow.port.writes == []
        decisions = {one.pod.name: one for one in shadow.record.open.values()}
        assert decisions["high"].node_name == ""
        assert decisions["high"].nominated_node == "a"
        assert decisions["high"].victims == ("default/low",)
        assert decisions["small"].node_name == "a"
        assert shadow.host.cache.is_assumed(decisions["small"].pod.uid)


async def test_difference_names_the_plugin_whose_score_decided() -> None:
    objects = [node("a"), node("b"), pod("big", cpu="2", nodeName="a")]
    async with World(objects) as world, Beside(world, loaded(BEST_FIT)) as shadow:
        world.server.create(pod("web"))
        await shadow.counted(ShadowOutcome.OTHER_NODE)
        (line,) = shadow.differences()
        assert (line["pod"], line["shadowNode"], line["realNode"]) == ("default/web", "a", "b")
        assert line["plugin"] == "NodeResourcesFit"
        assert "NodeResourcesFit scores the two nodes" in line["reason"]
        # The room is counted where the pod is, and nowhere else.
        for name, expected in (("a", 1), ("b", 1)):
            found = shadow.host.cache.node_info(name)
            assert found is not None
            assert len(found.pods) == expected
        text = {("other_node", "NodeResourcesFit"): 1.0}
        assert dict(shadow.metrics.shadow.differences.items()) == text


async def test_difference_names_the_plugin_that_rejected_the_real_node() -> None:
    tainted = node("a", taints=[{"key": "k", "effect": "NoSchedule"}])
    async with (
        World([tainted, node("b", cpu="1")], configuration=NO_TAINTS) as world,
        Beside(world, loaded(DEFAULTS)) as shadow,
    ):
        world.server.create(pod("one"))
        await shadow.counted(ShadowOutcome.OTHER_NODE)
        world.server.create(pod("two", cpu="2"))
        await shadow.counted(ShadowOutcome.ONLY_REAL)
        two, one = shadow.differences()
        assert (one["shadowNode"], one["realNode"], one["plugin"]) == ("b", "a", "TaintToleration")
        assert (two["shadowNode"], two["realNode"], two["plugin"]) == ("", "a", "TaintToleration")
        assert "taint" in two["reason"]


async def test_pod_that_only_the_shadow_places_is_counted_once_and_frees_its_room() -> None:
    tainted = node("a", cpu="1", taints=[{"key": "k", "effect": "NoSchedule"}])
    async with World([tainted]) as world, Beside(world, loaded(NO_TAINTS)) as shadow:
        world.server.create(pod("web", cpu="1"))
        await shadow.counted(ShadowOutcome.ONLY_SHADOW)
        await shadow.settle()
        (line,) = shadow.differences()
        assert (line["shadowNode"], line["realNode"]) == ("a", "")
        assert "untolerated taint" in line["reason"]
        assert not shadow.host.cache.assumed_count
        # An event requeues the pod, and the new decision stands until the real scheduler has one.
        world.server.create(node("b"))
        await shadow.counted(ShadowOutcome.SAME)
        assert shadow.record.as_json()["outcomes"]["only_shadow"] == 1


async def test_pod_that_neither_places_agrees_and_is_decided_again_after_an_event() -> None:
    async with World([node("a", cpu="1")]) as world, Beside(world) as shadow:
        world.server.create(pod("web", cpu="2"))
        await shadow.counted(ShadowOutcome.UNSCHEDULABLE)
        world.server.create(node("b"))
        await world.settle()
        assert world.node_of("web") == "b"
        await shadow.until(lambda: not shadow.record.open)
        report = shadow.record.as_json()
        assert report["agreed"] + report["outcomes"]["only_real"] == report["compared"] == 2


async def test_assumed_room_lapses_when_the_real_scheduler_says_nothing() -> None:
    world = World([node("a")])
    async with Beside(world, assumed_s=0.01) as shadow:
        world.server.create(pod("web"))
        await shadow.counted(ShadowOutcome.ONLY_SHADOW)
        assert not shadow.host.cache.assumed_count
        (line,) = shadow.differences()
        assert line["reason"] == "the real scheduler has not bound the pod in 0.01 s"


async def test_deleted_pod_leaves_no_decision_and_no_room() -> None:
    world = World([node("a")])
    async with Beside(world) as shadow:
        world.server.create(pod("web"))
        await shadow.until(lambda: len(shadow.record.open) == 1)
        world.server.delete("pods", ObjectRef(namespace="default", name="web"))
        await shadow.until(lambda: not shadow.record.open)
        assert not shadow.host.cache.assumed_count
        assert shadow.record.as_json()["compared"] == 0


async def test_shadow_decides_pods_that_are_bound_before_it_tries_them() -> None:
    world = World([node("a", cpu="1"), node("b", cpu="1")])
    async with Beside(world) as shadow:
        for name in ("one", "two"):
            world.server.create(pod(name, cpu="1"))
        for name, target in (("one", "a"), ("two", "b")):
            world.server.bind(ObjectRef(namespace="default", name=name), target)
        await shadow.counted(ShadowOutcome.SAME, 2)
        assert shadow.record.count(ShadowOutcome.UNDECIDED) == 0


async def test_bound_pod_that_a_plugin_of_the_shadow_gates_names_the_gate() -> None:
    text = enabling(["Gate"])
    async with (
        World([node("a")]) as world,
        Beside(world, loaded(text, Gate), {"Gate": Gate}) as shadow,
    ):
        world.server.create(pod("web"))
        await shadow.counted(ShadowOutcome.ONLY_REAL)
        (line,) = shadow.differences()
        assert (line["plugin"], line["realNode"], line["reason"]) == ("Gate", "a", "not yet")
        assert not list(shadow.host.queue.pods())


async def test_plugins_in_process_are_asked_to_decide_and_not_to_act() -> None:
    Watched.calls = []
    world = World([node("a")])
    async with Beside(world, loaded(enabling(["Watched"]), Watched), {"Watched": Watched}) as shadow:
        world.server.create(pod("web"))
        await shadow.until(lambda: len(shadow.record.open) == 1)
        world.server.bind(ObjectRef(namespace="default", name="web"), "a")
        await shadow.counted(ShadowOutcome.SAME)
    assert Watched.calls == ["PreEnqueue", "Filter"]


@pytest.mark.parametrize("way", WAYS)
async def test_served_plugin_is_asked_to_decide_and_not_to_act(tmp_path: Path, way: str) -> None:
    points = ("PRE_ENQUEUE", "PRE_FILTER", "FILTER", "SCORE", "RESERVE", "PERMIT", "PRE_BIND", "POST_BIND")
    plugin = type("Plugin", (ScriptedPlugin,), {"features": WAYS[way]})(descriptor("Acts", *points))
    path = tmp_path / "p.sock"
    text = enabling(["Acts"], SERVED.format(endpoint=f"unix://{path}"))
    world = World([node("a"), node("b")])
    async with plugin.serving(path), Beside(world, loaded(text)) as shadow:
        world.server.create(pod("web"))
        await shadow.until(lambda: len(shadow.record.open) == 1)
        world.server.bind(ObjectRef(namespace="default", name="web"), "a")
        await shadow.until(lambda: shadow.record.as_json()["compared"] == 1)
        await shadow.settle()
        acts = {"Reserve", "Unreserve", "Permit", "PreBindPreFlight", "PreBind", "Bind", "PostBind"}
        asked = {rpc for rpc, _ in plugin.asked}
        assert not asked & acts
        assert asked >= {"PreEnqueue", "Filter"}
        assert not shadow.host.reservations().get("Acts")


async def test_write_of_a_shadow_is_an_error() -> None:
    world = World([node("a"), pod("web", nodeName="a")])
    shadow = Beside(world)
    port, ref = shadow.host.cluster, ObjectRef(namespace="default", name="web")
    event = EventRecord(regarding=ref, reason="Odd", note="odd", reporter="berth")
    with pytest.raises(InvariantError, match="about to bind pod default/web to a"):
        await port.bind(ref, "a")
    with pytest.raises(InvariantError, match="about to patch pods default/web"):
        await port.patch("pods", ref, {})
    with pytest.raises(InvariantError, match="about to update pods default/web"):
        await port.update("pods", pod("web"))
    with pytest.raises(InvariantError, match="about to create pods default/web"):
        await port.create("pods", ref, pod("web"))
    with pytest.raises(InvariantError, match="about to delete pods default/web"):
        await port.delete("pods", ref)
    with pytest.raises(InvariantError, match="about to write the event Odd"):
        port.create_event(event)
    assert shadow.port.writes == []


async def test_decisions_outlive_a_reload() -> None:
    world = World([node("a"), node("b")])
    async with Beside(world) as shadow:
        world.server.create(pod("web"))
        await shadow.until(lambda: len(shadow.record.open) == 1)
        shadow.host = await reload(shadow.host, loaded(DEFAULTS))
        world.server.create(pod("second"))
        await shadow.until(lambda: len(shadow.record.open) == 2)
        for decision in list(shadow.record.open.values()):
            world.server.bind(decision.pod.ref, decision.node_name)
        await shadow.counted(ShadowOutcome.SAME, 2)
        assert not shadow.host.cache.assumed_count
        assert shadow.record.as_json()["compared"] == 2
        assert shadow.port.writes == []


async def test_extender_is_asked_to_decide_and_never_to_bind() -> None:
    asked: list[str] = []

    async def answering(request: Request) -> bytes:
        verb = request.line.rpartition("/")[2]
        asked.append(verb)
        body = request.json
        return answer(json.dumps([] if verb == "prioritize" else {"NodeNames": body["NodeNames"]}))

    world = World([node("a"), node("b")])
    async with raw_server(answering) as server:
        text = DEFAULTS + EXTENDER.format(url=server.url)
        async with Beside(world, loaded(text)) as shadow:
            world.server.create(pod("web"))
            await shadow.until(lambda: len(shadow.record.open) == 1)
            world.server.bind(ObjectRef(namespace="default", name="web"), "a")
            await shadow.counted(ShadowOutcome.SAME)
    assert asked == ["filter", "prioritize"]


async def test_extender_is_asked_whom_to_preempt_and_its_answer_changes_nothing() -> None:
    asked: list[str] = []

    async def answering(request: Request) -> bytes:
        verb, body = request.line.rpartition("/")[2], request.json
        asked.append(verb)
        if verb != "preempt":
            return answer(json.dumps({"NodeNames": body["NodeNames"]}))
        # Of the two candidates the extender leaves the one that the host alone would not choose.
        left = {name: one for name, one in body["NodeNameToMetaVictims"].items() if name == "b"}
        return answer(json.dumps({"NodeNameToMetaVictims": left}))

    objects = [node(name, cpu="1") for name in ("a", "b")]
    objects += [pod(f"low-{name}", cpu="1", priority=0, nodeName=name) for name in ("a", "b")]
    async with raw_server(answering) as server:
        text = DEFAULTS + EXTENDER.format(url=server.url).replace("prioritizeVerb: prioritize", PREEMPTS)
        world = World(objects)
        async with Beside(world, loaded(text)) as shadow:
            world.server.create(pod("high", cpu="1", priority=10))
            before = stored(world)
            await shadow.until(lambda: len(shadow.record.open) == 1)
            await shadow.settle()
            (decision,) = shadow.record.open.values()
            assert (decision.nominated_node, decision.victims) == ("b", ("default/low-b",))
            assert "preempt" in asked
            assert stored(world) == before
            # The real scheduler evicts and binds; the extender hears nothing of it from the shadow.
            world.server.delete("pods", ObjectRef(namespace="default", name="low-b"))
            world.server.bind(ObjectRef(namespace="default", name="high"), "b")
            await shadow.until(lambda: shadow.record.as_json()["agreed"] == 1)
            await shadow.settle()
            assert shadow.port.writes == []
        assert set(asked) == {"filter", "preempt"}
        # A deciding host with the same configuration asks the same extender to bind.
        asked.clear()
        async with World(objects, configuration=text) as deciding:
            deciding.server.create(pod("high", cpu="1", priority=10))
            await deciding.settle()
        assert {"filter", "preempt", "bind"} == set(asked)


async def test_pod_of_a_shadow_can_be_explained() -> None:
    world = World([node("a")])
    async with Beside(world) as shadow:
        world.server.create(pod("web"))
        await shadow.until(lambda: len(shadow.record.open) == 1)
        found = await pod_answer(shadow.host, "default/web")
        assert found is not None
        (attempt,) = found.last_attempts
        assert (attempt["outcome"], attempt["node"]) == ("decided", "a")
        assert found.timeline[-1].text == "a chosen; a shadow binds nothing"
