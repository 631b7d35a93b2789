"""The queue uses the `events` of a plugin class, for default plugins too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from berth_host.config.default_plugins import EXTENDER
from berth_host.config.emulation import NO_EMULATION
from berth_host.model.clock import ManualClock
from berth_host.queue.interfaces import GateQuestion, HintQuestion
from berth_host.queue.plugin_calls import AnswerSink, PluginQuestions
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.registrations import registrations_of
from berth_host.queue.wiring import QueueWiring
from berth_sdk.events import ClusterEvent
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.status import Status
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process

EDITED = "support.edited_events:TaintToleration"
TAINTS = [{"key": "level", "value": "7", "effect": "NoSchedule"}]
PLAIN = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def configuration(where: str) -> str:
    """Return the default profile with a served TaintToleration."""
    return (
        f"{PLAIN}---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"cycleBudget: 30s\nplugins:\n- name: TaintToleration\n  {where}\n  required: true\n"
        "  points: {filter: {deadline: 10s}, preScore: {deadline: 10s}, score: {deadline: 10s}}\n"
    )


@pytest.fixture(params=["in process", "served"])
async def edited(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Return the configuration with other events for TaintToleration."""
    if request.param == "in process":
        yield configuration(f"inProcess: {EDITED}")
        return
    socket_path = tmp_path / "p.sock"
    async with plugin_process(socket_path, EDITED) as process:
        yield configuration(f"endpoint: {process.endpoint}")


async def rejected(world: World) -> None:
    """Return a pod that the only node's taint rejects."""
    world.server.create(pod("web"))
    await world.settle()
    assert "untolerated taint" in world.message_of("web")


async def changed(world: World, change: dict[str, Any]) -> str:
    """Return the node of the pod, after the only node changed."""
    await world.cluster.patch("nodes", ObjectRef(name="n0"), change)
    await world.settle()
    return world.node_of("web")


async def test_the_class_says_which_events_help_its_pods(edited: str) -> None:
    async with World([node("n0", taints=TAINTS)], configuration=edited) as world:
        await rejected(world)
        assert await changed(world, {"spec": {"taints": None}}) == ""
        assert await changed(world, {"metadata": {"labels": {"disk": "ssd"}}}) == "n0"


async def test_the_default_plugin_says_that_a_lost_taint_helps() -> None:
    async with World([node("n0", taints=TAINTS)], configuration=PLAIN) as world:
        await rejected(world)
        assert await changed(world, {"spec": {"taints": None}}) == "n0"


class Declaring:
    """A client that counts the reads of its plugin's declaration."""

    local = None
    is_scoped = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.reads = 0

    @property
    def descriptor(self) -> Descriptor:
        self.reads += 1
        return Descriptor(name=self.name, points=(ExtensionPoint.FILTER,), events=())

    def in_scope(self, _pod: Pod) -> bool:
        return True


async def unused() -> None:
    """Do nothing."""


def test_attaching_a_plugin_costs_the_same_however_many_are_attached() -> None:
    clients = {name: Declaring(name) for name in ("Bind", "First", "Second")}
    enabled = [SimpleNamespace(name=name) for name in ("First", "Second", "Missing")]
    profile: Any = SimpleNamespace(
        scheduler_name="own", plugins_at=lambda point: enabled if point == "filter" else []
    )
    known: Any = {"own": clients}
    points: Any = {"own": {ExtensionPoint.PRE_ENQUEUE: []}}
    wiring = QueueWiring(ManualClock(), unused, NO_EMULATION)
    wiring.profiles([profile], known, points)
    before = {name: client.reads for name, client in clients.items()}
    assert before == {"Bind": 0, "First": 1, "Second": 1}
    assert list(wiring.registrations_of("First")) == [("own", registrations_of(()))]
    assert {name: client.reads for name, client in clients.items()} == before | {"First": 2}
    assert list(wiring.registrations_of("Bind")) == []  # it rejects no pod
    assert list(wiring.registrations_of("Missing")) == []


EXTENDERS = f"""{PLAIN}extenders:
- {{urlPrefix: 'http://127.0.0.1:1', managedResources: [{{name: example.com/none}}], VERBfilterVerb: filter}}
"""
CHANGES: list[tuple[str, ObjectRef, dict[str, Any]]] = [
    ("pods", ObjectRef(namespace="default", name="web"), {"status": {"message": "its own status"}}),
    ("pods", ObjectRef(namespace="default", name="other"), {"metadata": {"annotations": {"a": "b"}}}),
    ("nodes", ObjectRef(name="n0"), {"metadata": {"annotations": {"a": "b"}}}),
]


@pytest.mark.parametrize("change", CHANGES, ids=["its own status", "a bound pod", "a node"])
@pytest.mark.parametrize(
    ("text", "again"),
    [
        pytest.param(EXTENDERS.replace("VERB", ""), True, id="an extender that filters"),
        pytest.param(EXTENDERS.replace("VERBfilterVerb: filter", ""), True, id="an extender without verbs"),
        pytest.param(PLAIN, False, id="no extender"),
    ],
)
async def test_any_event_requeues_a_pod_that_extenders_rejected(
    text: str, again: bool, change: tuple[str, ObjectRef, dict[str, Any]]
) -> None:
    resource, ref, patch = change
    async with World([node("n0")], configuration=text) as world:
        world.server.create(pod("other"))
        world.server.create(pod("web", nodeSelector={"disk": "ssd"}))
        await world.settle()
        pool = world.host.queue.places.pool
        info = pool.get("default/web")
        assert isinstance(info, QueuedPodInfo)
        assert (info.attempts, info.unschedulable_plugins) == (1, {"NodeAffinity"})
        info.unschedulable_plugins = {EXTENDER}
        pool.put(info)
        await world.cluster.patch(resource, ref, patch, subresource="status" if "status" in patch else "")
        await world.settle()
        assert info.attempts == (2 if again else 1)


async def test_all_resources_are_watched_where_an_extender_may_reject() -> None:
    few = "profiles: [{plugins: {multiPoint: {disabled: [{name: '*'}]}, queueSort: {enabled: [{name: \
PrioritySort}]}, bind: {enabled: [{name: DefaultBinder}]}}}]\n"
    async with World(configuration=f"{PLAIN}{few}") as world:
        assert world.host.watching.needed == {"pods", "nodes"}
    extended = f"{PLAIN}{few}extenders: [{{urlPrefix: 'http://127.0.0.1:1'}}]\n"
    async with World(configuration=extended) as world:
        assert world.host.watching.needed >= {
            "persistentvolumes",
            "storage.k8s.io/csinodes",
            "resource.k8s.io/deviceclasses",
        }


GUARDED = {"guarded": "yes"}
IN_GUARDED = (
    "inProcess: berth_plugins.taint_toleration:TaintToleration\n"
    "  scope: {namespaceSelector: {matchLabels: {guarded: 'yes'}}}"
)


@pytest.mark.parametrize(("labels", "want"), [({"guarded": "no"}, "n0"), ({"other": "x"}, "")])
async def test_pod_whose_namespace_leaves_the_operators_scope_is_tried_again(
    labels: dict[str, str], want: str
) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": GUARDED}}
    objects = [namespace, node("n0", taints=TAINTS)]
    async with World(objects, configuration=configuration(IN_GUARDED)) as world:
        await rejected(world)
        await world.cluster.patch("namespaces", ObjectRef(name="default"), {"metadata": {"labels": labels}})
        await world.settle()
        assert world.node_of("web") == want


class Outside(Declaring):
    """A client whose plugin has a scope without pods."""

    is_scoped, is_served = True, False

    def in_scope(self, _pod: Pod) -> bool:
        return False

    def queueing_hint_at_once(self, event: ClusterEvent, pod: Pod) -> bool:
        raise AssertionError(f"asked about {pod.key}")


def test_hint_about_a_pod_outside_the_scope_is_not_asked() -> None:
    clients: Any = {"Plugin": Outside("Plugin")}
    questions = PluginQuestions(ManualClock(), AnswerSink(), set(), unused)
    event = ClusterEvent(resource="Node", action="add")
    question = HintQuestion("Plugin", event, Pod(name="web"), 1, "NodeAdd")
    assert questions.hint(clients)(question) is True


@pytest.mark.parametrize("answers_before", [True, False])
async def test_plugin_that_cannot_answer_is_not_asked_again_after_the_stop(answers_before: bool) -> None:
    asked = []

    async def pre_enqueue(pods: list[Pod]) -> list[Status]:
        asked.append(len(pods))
        return [Status.error("away") for _ in pods]

    async def refresh() -> None:
        return None

    clock, sink, busy = ManualClock(), AnswerSink(), set[asyncio.Future[None]]()
    sink.gate = lambda question, status: True
    questions = PluginQuestions(clock, sink, busy, refresh)
    client: Any = SimpleNamespace(
        is_served=False, is_scoped=False, pre_enqueue_at_once=lambda pod: None, pre_enqueue=pre_enqueue
    )
    ask = questions.gate(client)
    queued: Any = QueuedPodInfo(Pod.from_object(pod("web")), timestamp_us=0)
    question = GateQuestion("Gate", queued)
    ask(question)
    if answers_before:
        await asyncio.wait(busy)
        assert questions.retry_count == 1
    questions.stop()
    if busy:
        await asyncio.wait(busy)
    assert asked == [1]
    assert questions.retry_count == 0
    assert clock.next_timer_s() is None
