"""A plugin hears of changes of the kinds that it waits for, without a need of them, in process and served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.hosts import World, enabling, node, pod
from support.plugin_processes import plugin_process
from support.requeue_objects import Json, controller, service
from support.second_try import SecondTry

OBJECTS: dict[str, Json] = {
    "Service": service("one", app="web"),
    **{kind: controller(kind, "one", app="web") for kind in ("ReplicaSet", "StatefulSet")},
    "ReplicationController": controller("ReplicationController", "one", app="web"),
    "PodDisruptionBudget": {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "one", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    },
    "PriorityClass": {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "one"},
        "value": 5,
    },
}


@pytest.fixture(params=["in_process", "served"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """Yield a host whose one pod was rejected by SecondTry."""
    objects = [node("n1"), pod("web")]
    if request.param == "in_process":
        async with World(objects, [SecondTry]) as made:
            yield await made.settle()
        return
    async with plugin_process(tmp_path / "p.sock", "support.second_try:SecondTry") as process:
        text = enabling(
            ["SecondTry"],
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
            f"plugins: [{{name: SecondTry, endpoint: '{process.endpoint}',"
            " points: {preFilter: {deadline: 10s}}}]\n",
        )
        async with World(objects, configuration=text) as made:
            yield await made.settle()


@pytest.mark.parametrize("kind", OBJECTS)
async def test_change_of_a_kind_requeues_the_pod_that_waits_for_it(world: World, kind: str) -> None:
    assert world.node_of("web") == ""
    world.server.create(OBJECTS[kind])
    await world.settle()
    assert world.node_of("web") == "n1"
