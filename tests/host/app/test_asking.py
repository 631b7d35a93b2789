"""Manifests that users write -> pods as the API server would store them, for a question."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from berth_host.app import Fit, Host, HostOptions, asking
from berth_host.app.asking import ManifestReader, read_classes
from berth_host.config.loading import default_configuration
from berth_host.errors.cluster import ForbiddenError
from berth_host.errors.endpoints import QuestionError
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import KubeObject
from berth_sim.cluster.admitting import server_of_a_question
from berth_sim.cluster.cluster import MemoryCluster
from support.hosts import World, node, pod


def test_pod_of_a_cluster_is_asked_about_without_its_node_and_its_uid() -> None:
    written = pod("web", nodeName="a", priorityClassName="system-node-critical")
    written["metadata"] |= {"uid": "1", "resourceVersion": "7", "labels": {"app": "web"}}
    found = ManifestReader(ManualClock(5.0), server_of_a_question).pod(
        written | {"status": {"phase": "Running"}}
    )
    assert (found.key, found.node_name, dict(found.labels)) == ("default/web", "", {"app": "web"})
    assert (found.priority, found.scheduler_name) == (2_000_001_000, "default-scheduler")
    assert found.uid not in ("", "1")
    assert {item.key for item in found.tolerations} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }


def test_pod_with_a_generated_name_gets_one() -> None:
    written = pod("x")
    written["metadata"] = {"generateName": "web-"}
    assert ManifestReader(ManualClock(5.0), server_of_a_question).pod(written).key == "default/web-x"


def priority_class(name: str, value: int, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **more,
    }


CLASSES = [
    priority_class("gold", 70, preemptionPolicy="Never"),
    priority_class("usual", 5, globalDefault=True),
    priority_class("system-node-critical", 2_000_001_000),
]


@pytest.mark.parametrize(
    ("spec", "priority", "never_preempts"),
    [
        ({"priorityClassName": "gold"}, 70, True),
        ({}, 5, False),
        ({"priorityClassName": "system-node-critical"}, 2_000_001_000, False),
        ({"priority": 7}, 7, False),
        # A pod of a cluster whose class is gone.
        ({"priority": 8, "priorityClassName": "silver"}, 8, False),
    ],
    ids=["class", "default", "system", "number", "class-gone"],
)
async def test_priority_is_that_of_the_cluster_s_class(
    spec: dict[str, Any], priority: int, never_preempts: bool
) -> None:
    async with World([node("a"), *CLASSES]) as world:
        manifest = pod("web", **spec)
        classes = await read_classes(world.port, [manifest])
    found = ManifestReader(world.clock, server_of_a_question, classes).pod(manifest)
    assert (found.priority, found.never_preempts, classes.problem) == (priority, never_preempts, "")


class Unlisted(MemoryCluster):
    """A cluster that does not let its PriorityClasses be listed; with `hangs`, it never answers."""

    hangs = False

    async def list(self, resource: str, *_: Any, **__: Any) -> list[KubeObject]:
        if self.hangs:
            await asyncio.Event().wait()
        raise ForbiddenError(resource, "", "berth cannot list priorityclasses")


@pytest.mark.parametrize("hangs", [False, True], ids=["forbidden", "hangs"])
async def test_answer_says_that_the_classes_could_not_be_read(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(5.0)
    cluster = Unlisted(clock)
    cluster.hangs = hangs
    monkeypatch.setattr(asking, "LIST_S", 0.01)
    classes = await read_classes(cluster, [pod("web", priority=3), pod("web")])
    assert classes.problem.startswith("the cluster's PriorityClasses cannot be read: ")
    assert classes.problem.endswith("give spec.priority, or let the scheduler list priorityclasses")
    assert ManifestReader(clock, server_of_a_question, classes).pod(pod("web")).priority == 0
    assert (await read_classes(cluster, [pod("web", priority=3)])).problem == ""
    with pytest.raises(QuestionError, match=r"gold was found; the cluster's PriorityClasses cannot be read"):
        ManifestReader(clock, server_of_a_question, classes).pod(pod("web", priorityClassName="gold"))


async def test_answer_has_a_note_about_classes_that_could_not_be_read() -> None:
    async with World([node("a")]) as world:
        await world.settle()
        world.cluster.list = Unlisted(world.clock).list  # type: ignore[method-assign]
        found = await world.host.ask(Fit(pod("web")))
    assert (found.node, found.notes[0].split(":")[0]) == (
        "a",
        "the cluster's PriorityClasses cannot be read",
    )


async def test_misspelt_class_is_refused_with_the_nearest_one() -> None:
    async with World([node("a"), *CLASSES]) as world:
        with pytest.raises(QuestionError, match="gld was found; the classes are gold: name one of them"):
            await world.host.ask(Fit(pod("web", priorityClassName="gld")))


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({"kind": "Node", "apiVersion": "v1"}, "must be a Pod"),
        ({"kind": "Pod", "apiVersion": "v1"}, "needs metadata and spec"),
        (pod("x", cpu="much"), "much"),
        (pod("x", schedulerName="other"), "schedulerName 'other', and this scheduler places default-"),
        (pod("x", priorityClassName="gold"), "give spec.priority"),
    ],
    ids=["node", "empty", "quantity", "scheduler", "class"],
)
async def test_question_that_cannot_be_answered_names_the_cure(manifest: dict[str, Any], said: str) -> None:
    async with World([node("a")]) as world:
        with pytest.raises(QuestionError, match=said):
            await world.host.ask(Fit(manifest))


async def test_host_without_an_admission_refuses_manifests() -> None:
    clock = ManualClock(5.0)
    host = Host(default_configuration(), MemoryCluster(clock), HostOptions(clock=clock))
    with pytest.raises(QuestionError, match="give an admission to HostOptions or FrameworkAlone"):
        await host.ask(Fit(pod("web")))
    await host.clients.close()
