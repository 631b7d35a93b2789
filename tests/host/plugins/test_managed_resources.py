"""A plugin with `managedResources` in a whole host, in process and served: who counts the resource, for which
pods the plugin is asked, and what preemption makes of it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.gpu_memory import EACH, GPUS, MEMORY, NO_ROOM
from support.hosts import World, enabling, node, pod
from support.plugin_processes import plugin_process

PLUGIN = "support.gpu_memory:GpuMemory"
SLOW = "points: {preFilter: {deadline: 10s}, filter: {deadline: 10s}, simulateFilter: {deadline: 10s}}"


def configuration(where: str, *, name: str = "GpuMemory", more: str = "", ignored: bool = True) -> str:
    """Return a profile with the plugin at multiPoint. `where`: its place in BerthConfiguration."""
    return enabling(
        [name],
        f"{more}---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
        f"plugins:\n- name: {name}\n  {where}\n"
        f"  managedResources: [{{name: {MEMORY}, ignoredByScheduler: {str(ignored).lower()}}}]\n",
    )


@pytest.fixture(params=["in process", pytest.param("served", marks=pytest.mark.slow)])
async def where(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Return the place of GpuMemory, in BerthConfiguration's words."""
    if request.param == "in process":
        yield f"inProcess: {PLUGIN}"
        return
    async with plugin_process(tmp_path / "p.sock", PLUGIN) as process:
        yield f"endpoint: {process.endpoint}\n  {SLOW}"


def gpu_node(name: str, gpus: int, **more: Any) -> dict[str, Any]:
    """Return a node with GPUs of 10 each, which does not advertise their memory."""
    return node(name, labels={GPUS: str(gpus), EACH: "10"}, **more)


def gpu_pod(name: str, memory: int, *, cpu: str = "100m", **more: Any) -> dict[str, Any]:
    """Return a pod that wants this much memory of one GPU."""
    made = pod(name, cpu=cpu, **more)
    amount = {MEMORY: str(memory)}
    resources = {"requests": {"cpu": cpu, **amount}, "limits": amount}
    made["spec"]["containers"][0]["resources"] = resources
    return made


def calls(world: World, call: str) -> int:
    return world.host.plugin_stats()["GpuMemory"].of(call).calls


async def test_plugin_alone_counts_the_resource_that_is_left_to_it(where: str) -> None:
    taken = [gpu_pod(f"taken-{i}", 6, nodeName="n1") for i in range(2)]
    objects = [gpu_node("n0", 1), gpu_node("n1", 2), *taken]
    async with World(objects, configuration=configuration(where)) as world:
        # n1 has 8 left, but no GPU with 5. NodeResourcesFit would reject both nodes: neither advertises any.
        for name, memory in (("a", 5), ("b", 5), ("c", 4)):
            world.server.create(gpu_pod(name, memory))
            await world.settle()
        assert [world.node_of(name) for name in "abc"] == ["n0", "n0", "n1"]
        world.server.create(gpu_pod("d", 5))
        await world.settle()
        assert world.node_of("d") == ""
        assert world.message_of("d").startswith(f"0/2 nodes are available: 2 {NO_ROOM}.")


async def test_plugin_is_asked_only_about_pods_that_want_its_resource(where: str) -> None:
    async with World([gpu_node("n0", 1), pod("plain")], configuration=configuration(where)) as world:
        await world.settle()
        assert world.node_of("plain") == "n0"
        assert calls(world, "Filter") == 0
        world.server.create(gpu_pod("gpu", 5))
        await world.settle()
        assert world.node_of("gpu") == "n0"
        assert calls(world, "Filter") == 1


async def test_node_resources_fit_counts_a_managed_resource_that_is_not_left_out(where: str) -> None:
    objects = [gpu_node("n0", 1), gpu_pod("gpu", 5)]
    async with World(objects, configuration=configuration(where, ignored=False)) as world:
        await world.settle()
        assert f"1 Insufficient {MEMORY}" in world.message_of("gpu")


async def test_preemption_asks_the_plugin_what_evictions_would_change(where: str) -> None:
    # Both GPUs of n0 have 4 left. The fewest and least important victims that make room for 8 are `least`.
    objects = [
        gpu_node("n0", 2),
        gpu_node("n1", 0),
        gpu_pod("least", 6, priority=1, nodeName="n0"),
        gpu_pod("more", 6, priority=2, nodeName="n0"),
        pod("plain", priority=0, nodeName="n0"),
        pod("elsewhere", priority=0, nodeName="n1"),
    ]
    async with World(objects, configuration=configuration(where)) as world:
        world.server.create(gpu_pod("high", 8, priority=10))
        await world.settle()
        assert world.node_of("high") == "n0"
        left = [name for name in ("least", "more", "plain", "elsewhere") if world.pod(name) is None]
        assert left == ["least"]
        assert calls(world, "SimulateFilter") > 0


async def test_preemption_does_not_count_the_resource_in_node_resources_fit(where: str) -> None:
    # The node advertises less of the resource than the pod wants. If NodeResourcesFit counted it, no eviction
    # would help. Only the CPU stands in the way.
    small = node("n0", cpu="1", labels={GPUS: "1", EACH: "10"})
    small["status"]["allocatable"][MEMORY] = "1"
    objects = [small, pod("low", cpu="900m", priority=1, nodeName="n0")]
    async with World(objects, configuration=configuration(where)) as world:
        world.server.create(gpu_pod("high", 8, cpu="500m", priority=10))
        await world.settle()
        assert world.node_of("high") == "n0"
        assert world.pod("low") is None


@pytest.mark.parametrize(
    "resources",
    [
        pytest.param({"limits": {MEMORY: "2"}}, id="limit alone"),
        pytest.param({"requests": {MEMORY: "0"}}, id="none of it"),
    ],
)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
async def test_every_container_counts_for_the_question_whether_a_pod_wants_a_resource(
    resources: dict[str, Any], kind: str
) -> None:
    web = pod("web", labels={})
    plain, wanting = web["spec"]["containers"][0], {"name": "w", "image": "app", "resources": resources}
    web["spec"] = (
        {"containers": [plain, wanting]}
        if kind == "containers"
        else {"containers": [plain], "initContainers": [wanting]}
    )
    text = configuration("inProcess: support.gatekeeper:Steady", name="Steady")
    async with World([node("n0"), web, pod("other")], configuration=text) as world:
        await world.settle()
        assert world.node_of("web") == world.node_of("other") == "n0"
        assert world.host.plugin_stats()["Steady"].of("Filter").calls == 1


@pytest.mark.parametrize("serve", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_plugin_is_asked_about_no_other_pod_at_any_point(tmp_path: Path, serve: bool) -> None:
    log = tmp_path / "log"
    args = f"  pluginConfig:\n  - {{name: Everything, args: {{log: '{log}'}}}}\n"

    async def placed(place: str) -> set[tuple[str, str]]:
        text = configuration(place, name="Everything", more=args)
        async with World(
            [node("n0"), node("n1"), pod("plain"), gpu_pod("gpu", 1)], configuration=text
        ) as world:
            await world.settle()
            assert world.node_of("plain") and world.node_of("gpu")
            world.server.create(pod("huge", cpu="64"))
            await world.settle()
        return {(point, name) for point, name, _ in map(json.loads, log.read_text().splitlines())}

    plugin = "support.everything:Everything"
    if serve:
        points = "preEnqueue preFilter filter postFilter preScore score reserve permit preBind bind postBind"
        patient = ", ".join(f"{point}: {{deadline: 10s}}" for point in points.split())
        async with plugin_process(tmp_path / "p.sock", plugin) as process:
            asked = await placed(f"endpoint: {process.endpoint}\n  points: {{{patient}}}")
    else:
        asked = await placed(f"inProcess: {plugin}")
    assert {name for _, name in asked} == {"gpu"}
    assert {"pre_enqueue", "filter", "score", "reserve"} <= {point for point, _ in asked}


@pytest.mark.slow
async def test_pod_waits_while_the_plugin_that_counts_its_resource_is_absent(tmp_path: Path) -> None:
    own = {"berth.io/plugin": "GpuMemory"}
    objects = [gpu_node("n0", 1), pod("plain"), gpu_pod("gpu", 5), gpu_pod("own", 5, labels=own)]
    # A pod that PreEnqueue gates has no condition with the reason.
    gate = "\n  points: {preEnqueue: {policy: Ignore}}"
    for more in (gate, "\n  required: false\n  points: {filter: {policy: Fail}}"):
        text = configuration(f"endpoint: unix://{tmp_path}/nobody.sock{more}")
        async with World(objects, configuration=text) as world:
            await world.settle()
            assert world.node_of("plain") == "n0"
            for name in ("gpu", "own"):
                assert world.node_of(name) == ""
                assert 'plugin "GpuMemory" is not attached' in world.message_of(name)


@pytest.mark.slow
async def test_served_plugin_without_filter_is_refused_when_it_is_attached(tmp_path: Path) -> None:
    async with plugin_process(tmp_path / "p.sock", "support.gpu_memory:NoFilter") as process:
        text = configuration(
            f"endpoint: {process.endpoint}\n  points: {{preEnqueue: {{policy: Ignore}}}}", name="NoFilter"
        )
        async with World([node("n0"), pod("plain"), gpu_pod("gpu", 5)], configuration=text) as world:
            await world.settle()
            assert world.node_of("plain") == "n0"
            assert world.node_of("gpu") == ""
            assert (
                f"does not implement filter, but manages {MEMORY}: give the plugin that method, or leave"
                " managedResources out in its BerthConfiguration" in world.message_of("gpu")
            )
