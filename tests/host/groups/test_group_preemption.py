"""The preemption of a group in a whole host, by version: its nodes, and the nominations that it clears."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.kube_object import ObjectRef
from support.groups import grouped, members, nodes_of, pod_group
from support.hosts import node, pod


def low(name: str, on: str, **spec: Any) -> dict[str, Any]:
    return pod(name, cpu="2", nodeName=on, **{"priority": 1, **spec})


@pytest.mark.parametrize(("version", "kept"), [("1.37", ["n0", "n1", "n2"]), ("1.38", ["", "", "n2"])])
async def test_group_clears_lower_nominations_on_all_its_nodes_since_1_38(
    version: str, kept: list[str]
) -> None:
    names = ["n0", "n1", "n2"]
    nodes = [node(name, cpu="2") for name in names]
    running = [low(f"low-{name}", name) for name in names[:2]] + [low("equal", "n2", priority=9)]
    waiting = [pod(f"gated-{name}", cpu="1", schedulingGates=[{"name": "closed"}]) for name in names]
    for item, name in zip(waiting, names, strict=True):
        item["status"] = {"nominatedNodeName": name}
    gang = [pod_group("g", least=2, priority=9), *members("g", 2, cpu="2", priority=9)]
    async with grouped([*nodes, *running], emulated_version=version) as world:
        for item in waiting:
            world.server.create(item, restore=True)
        await world.settle()
        for item in gang:
            world.server.create(item)
        await world.settle()
        found = [
            world.server.get("pods", ObjectRef(namespace="default", name=f"gated-{name}")) for name in names
        ]
        assert [one.get("status.nominatedNodeName") or "" for one in found if one is not None] == kept
        world.clock.advance(60)
        await world.settle()
        assert sorted(nodes_of(world, "g").values()) == ["n0", "n1"]


OFF = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    {point}:
      disabled: [{{name: DefaultPreemption}}]
"""


@pytest.mark.parametrize(
    ("version", "configuration", "chosen"),
    [
        pytest.param("1.37", "", "roomy", id="1.37"),
        pytest.param("1.38", "", "cheap", id="1.38"),
        pytest.param("1.38", OFF.format(point="reserve"), "roomy", id="1.38, not at Reserve"),
    ],
)
async def test_nodes_are_ranked_by_victims_where_default_preemption_is_at_both_points(
    version: str, configuration: str, chosen: str
) -> None:
    nodes = [node("roomy", cpu="4"), node("cheap", cpu="2")]
    running = [low(f"dear-{i}", "roomy", priority=5) for i in range(2)] + [low("low", "cheap")]
    gang = [pod_group("g", least=1, priority=9), *members("g", 1, cpu="2", priority=9)]
    more: dict[str, Any] = {"configuration": configuration, "emulated_version": version}
    async with grouped([*nodes, *running], **more) as world:
        await world.settle()
        for item in gang:
            world.server.create(item)
        await world.settle()
        world.clock.advance(60)
        await world.settle()
        assert list(nodes_of(world, "g").values()) == [chosen]
