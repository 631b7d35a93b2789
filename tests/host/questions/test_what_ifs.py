"""Nodes that do not exist are judged as in a cluster that has them, by every default plugin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from berth_host.app import Fit, FrameworkAlone, NodeTemplate, Simulate, WhatIf
from berth_host.config.loading import load_configuration
from berth_host.errors.state import InvariantError
from berth_host.questions.what_ifs import IncompleteNodeError
from berth_sdk.extension_points import ExtensionPoint, Plugin
from berth_sdk.needs import Need
from berth_sdk.node import Node
from berth_sdk.scenarios import Scenario
from berth_sdk.status import Status
from berth_sdk.testing import make_node, make_pod
from support.decision_configuration import served_at
from support.hosts import enabling
from support.new_nodes import TEMPLATE, Question, question, world
from support.served import default_plugin_server

WORLDS = 6
QUESTIONS = 30
REJECTING = {
    "DynamicResources",
    "InterPodAffinity",
    "NodeAffinity",
    "NodeDeclaredFeatures",
    "NodePorts",
    "NodeResourcesFit",
    "NodeUnschedulable",
    "NodeVolumeLimits",
    "PodTopologySpread",
    "TaintToleration",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
}
"""All default Filter plugins but NodeName: a pod that waits names no node."""


def questions(seed: int) -> list[Question]:
    random = Random(1000 + seed)
    return [question(random, number) for number in range(QUESTIONS)]


async def truth(alone: FrameworkAlone, asked: Question) -> Status:
    """Return the verdict on the node after it really came to the cluster, and take it out again."""
    node = asked.scenario.node
    assert node is not None
    alone.add_node(node)
    for pod in asked.scenario.added:
        alone.add_pod(pod)
    try:
        return (await alone.ask(Fit(asked.pod, verdicts_only=True))).verdicts[TEMPLATE]
    finally:
        for pod in asked.scenario.added:
            alone.cache.remove_pod(pod)
        alone.cache.remove_node(TEMPLATE)


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with default_plugin_server(tmp_path_factory.mktemp("plugins")) as address:
        yield address


async def test_verdict_on_a_new_node_is_that_of_a_cluster_that_has_the_node() -> None:
    rejecting: set[str] = set()
    passed = 0
    for seed in range(WORLDS):
        alone, real = FrameworkAlone(), FrameworkAlone()
        for one in (alone, real):
            world(seed, one)
        for asked in questions(seed):
            (verdict,) = await alone.ask(WhatIf(asked.pod, [asked.scenario]))
            assert verdict == await truth(real, asked)
            rejecting.add(verdict.plugin)
            passed += verdict.is_success
    assert rejecting >= REJECTING
    assert passed > WORLDS


def renamed(node: Node | None, name: str) -> Node:
    assert node is not None and node.object is not None
    raw = node.object.parsed
    labels = {**raw["metadata"]["labels"], "kubernetes.io/hostname": name}
    return Node.from_object({**raw, "metadata": {**raw["metadata"], "name": name, "labels": labels}})


@pytest.mark.long
async def test_simulation_gives_the_verdict_of_the_what_if() -> None:
    for seed in range(WORLDS // 2):
        alone = FrameworkAlone()
        world(seed, alone)
        for asked in questions(seed):
            # Objects that name the node, such as its CSINode, are not those of a template's node.
            node = renamed(asked.scenario.node, "berth-template-0-0")
            added = asked.scenario.added
            (verdict,) = await alone.ask(WhatIf(asked.pod, [Scenario(node=node, added=added)]))
            template = NodeTemplate(name="t", node=node, count=1, pods=added)
            question = Simulate(pods=[asked.pod], templates=[template], only_templates=True)
            (found,), summary = await (await alone.ask(question)).placements()
            assert found.is_placed is verdict.is_success
            assert summary.placed_count == verdict.is_success
            if not verdict.is_success:
                (judged,) = found.verdicts
                reasons = {(one.plugin, one.reason) for one in judged.rejections}
                assert reasons == {(verdict.plugin, reason) for reason in verdict.reasons}


async def test_served_plugins_give_the_verdicts_on_new_nodes_that_they_give_in_process(endpoint: str) -> None:
    text = f"---\n{enabling([])}\n---\n{served_at(endpoint)}"
    here = FrameworkAlone()
    world(1, here)
    async with FrameworkAlone(load_configuration(text, source="x")) as there:
        world(1, there)
        for asked in questions(1)[:20]:
            what_if = WhatIf(asked.pod, [asked.scenario])
            assert await there.ask(what_if) == await here.ask(what_if)


async def test_new_nodes_leave_no_trace_and_do_not_see_each_other() -> None:
    alone = FrameworkAlone()
    for i in range(16):
        alone.add_node(make_node(f"n{i}", cpu="1", labels={"zone": "a"}))
    alone.add_pod(make_pod("old", cpu="1", node="n0", labels={"app": "x"}))
    pod = make_pod("web", cpu="1")
    before = (await alone.ask(Fit(pod, verdicts_only=True))).verdicts
    asked = [
        Scenario("n0"),
        Scenario(node=make_node("new", cpu="2")),
        Scenario("n0", removed=(alone.snapshot.nodes.node(0).pods[0],)),
        Scenario(node=make_node("new", cpu="2"), added=(make_pod("daemon", cpu="1500m"),)),
    ]
    verdicts = await alone.ask(WhatIf(pod, asked))
    assert [status.message for status in verdicts] == ["Insufficient cpu", "", "", "Insufficient cpu"]
    assert (await alone.ask(Fit(pod, verdicts_only=True))).verdicts == before
    assert len(alone.snapshot.nodes) == 16
    assert alone.snapshot.pods.position("daemon") is None


async def test_what_if_of_a_node_that_exists_names_it() -> None:
    alone = FrameworkAlone()
    alone.add_node(make_node("n0"))
    with pytest.raises(InvariantError, match="node n0 cannot come on trial: the snapshot has it"):
        await alone.ask(WhatIf(make_pod("web"), [Scenario(node=make_node("n0"))]))
    assert not alone.snapshot.held


async def test_new_node_without_its_object_is_refused_where_a_plugin_declared_objects() -> None:
    class ReadsObjects(Plugin):
        needs = (Need.node_objects(),)

        def filter(self, state: object, pod: object, node: object) -> Status:
            return Status.success()

    registered = {"ReadsObjects": frozenset({"filter"})}
    configuration = load_configuration(enabling(["ReadsObjects"]), source="x", registered=registered)
    alone = FrameworkAlone(configuration, plugins={"ReadsObjects": ReadsObjects})
    bare = Scenario(node=Node(name="new", allocatable={"pods": 10}))
    with pytest.raises(IncompleteNodeError, match="plugin ReadsObjects declared the objects of nodes"):
        await alone.ask(WhatIf(make_pod("web"), [bare]))
    assert bare.node is not None
    with pytest.raises(IncompleteNodeError, match="give the node as a core/v1 Node"):
        template = NodeTemplate(name="t", node=bare.node, count=1)
        await alone.ask(Simulate(pods=[make_pod("web")], templates=[template]))


async def test_nomination_to_another_node_does_not_answer_for_the_new_node() -> None:
    alone = FrameworkAlone()
    alone.add_node(make_node("large", cpu="8"))
    small = Scenario(node=make_node("small", cpu="1"))
    promised = make_pod("web", cpu="4", nominated="large")
    (verdict,) = await alone.ask(WhatIf(promised, [small]))
    assert verdict.message == "Insufficient cpu"
    wide = NodeTemplate(name="wide", node=make_node("wide", cpu="16"), count=1)
    both = Simulate(pods=[promised], templates=[wide])
    (anywhere,), _ = await (await alone.ask(both)).placements()
    (new,), _ = await (await alone.ask(replace(both, only_templates=True))).placements()
    assert (anywhere.node_name, new.template) == ("large", "wide")


async def test_pre_filter_rejects_the_pod_on_new_nodes_too() -> None:
    class Never(Plugin):
        def pre_filter(self, state: object, pod: object, nodes: object) -> Status:
            return Status.unresolvable("never")

    registered = {"Never": frozenset({"preFilter"})}
    configuration = load_configuration(enabling(["Never"]), source="x", registered=registered)
    alone = FrameworkAlone(configuration, plugins={"Never": Never})
    (verdict,) = await alone.ask(WhatIf(make_pod("web"), [Scenario(node=make_node("new"))]))
    assert (verdict.message, verdict.plugin) == ("never", "Never")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"node": Node(name="")}, "has no name"),
        ({"node": Node(name="a"), "node_name": "b"}, "is about node 'b'"),
        ({"node": Node(name="a"), "removed": (make_pod("x"),)}, "no pods can leave it"),
    ],
    ids=["nameless", "two names", "pods that leave"],
)
def test_scenarios_that_contradict_themselves_are_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Scenario(**fields)


def test_each_default_filter_plugin_is_among_those_that_reject() -> None:
    names = {client.name for client in FrameworkAlone().framework.plugins_at(ExtensionPoint.FILTER)}
    assert names - REJECTING == {"NodeName"}
