"""The nodes that a PreFilter plugin rules out, in process and served: the plugin is to blame for them in the
queue, the metrics and the diagnosis, its events requeue the pod, and preemption leaves these nodes alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from berth_host.explain.explanation import rejected_nodes
from berth_host.explain.make_pod_answer import pod_answer
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_sdk.extension_points import Plugin
from berth_sdk.status import Status
from support.holding_world import TRANSPORTS
from support.hosts import World, enabling, node, pod
from support.narrows import Left, Right
from support.plugin_processes import plugin_process

each_transport = pytest.mark.parametrize("transport", TRANSPORTS)
NAMES = ("Left", "Right")
NODES = [node("n0"), node("n1", cpu="1"), node("n2")]
ALL = ("n0", "n1", "n2")


@asynccontextmanager
async def narrowing_world(
    transport: str, folder: Path, objects: Iterable[Mapping[str, Any]]
) -> AsyncIterator[World]:
    if transport == "in_process":
        async with World(objects, [Left, Right]) as world:
            yield world
        return
    served = [f"support.narrows:{name}" for name in NAMES]
    async with plugin_process(folder / "p.sock", *served) as process:
        text = enabling(
            NAMES,
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
            "plugins:\n"
            + "".join(
                f"- {{name: {name}, endpoint: '{process.endpoint}', required: true,"
                " points: {preFilter: {deadline: 10s, policy: Fail}}}\n"
                for name in NAMES
            ),
        )
        async with World(objects, configuration=text) as world:
            yield world


def rows_of(world: World, name: str) -> dict[str, tuple[str, ...]]:
    """Plugin -> the nodes that it rejected, by the pod's latest attempt."""
    found = rejected_nodes(world.host.diagnoses.find(f"default/{name}"))
    assert len({item.plugin for item in found}) == len(found), found
    return {item.plugin: item.node_names for item in found}


def blamed(world: World, name: str) -> set[str]:
    """Return the plugins whose events requeue the pod."""
    found = world.host.queue.places.find(f"default/{name}")
    assert found is not None
    assert isinstance(found[1], QueuedPodInfo)
    return set(found[1].unschedulable_plugins)


@each_transport
@pytest.mark.parametrize(
    ("told", "rows"),
    [
        pytest.param({"Left": "n1"}, {"Left": ("n0", "n2"), "NodeResourcesFit": ("n1",)}, id="one narrows"),
        pytest.param(
            {"Left": "n0.n1", "Right": "n1.n2"},
            {"Left": ("n2",), "Right": ("n0",), "NodeResourcesFit": ("n1",)},
            id="two narrow",
        ),
        pytest.param(
            {"Left": "n1", "Right": "n1"},
            {"Left": ("n0", "n2"), "Right": ("n0", "n2"), "NodeResourcesFit": ("n1",)},
            id="two leave out the same nodes",
        ),
        pytest.param(
            {"Left": "n0.n1.n2", "Right": "n1"},
            {"Right": ("n0", "n2"), "NodeResourcesFit": ("n1",)},
            id="one leaves out no node",
        ),
        pytest.param(
            {"Left": "n0", "Right": "n2"},
            {"Left": ("n1", "n2"), "Right": ("n0", "n1")},
            id="two leave no node together",
        ),
        pytest.param({"Left": "gone.lost"}, {"Left": ALL}, id="no such node"),
        pytest.param(
            {"Left": "gone.n0", "Right": "gone.n1"},
            {"Left": ("n1", "n2"), "Right": ("n0", "n2")},
            id="no such node is left",
        ),
        pytest.param({"Left": "none"}, {"Left": ALL}, id="no node at all"),
        pytest.param(
            {"Left": "skip", "Right": "n1"},
            {"Right": ("n0", "n2"), "NodeResourcesFit": ("n1",)},
            id="one skips",
        ),
        pytest.param({"Left": "n0", "Right": "no"}, {"Left": ("n1", "n2"), "Right": ALL}, id="and a no"),
        pytest.param({"Left": "no", "Right": "never"}, {"Left": ALL, "Right": ALL}, id="no and never"),
        pytest.param({"Left": "never", "Right": "n0"}, {"Left": ALL}, id="never ends it"),
    ],
)
async def test_nodes_that_pre_filter_excludes_are_rejected_by_its_plugin(
    transport: str, told: dict[str, str], rows: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    async with narrowing_world(transport, tmp_path, [*NODES, pod("web", cpu="2", labels=told)]) as world:
        await world.settle()
        assert rows_of(world, "web") == rows
        assert blamed(world, "web") == set(rows)
        by_plugin = world.host.queue.places.blamed()
        assert {plugin for plugin, _ in by_plugin} == set(rows)
        found = world.host.diagnoses.find("default/web")
        assert found is not None
        assert found.attempt == 1, "it was tried again although nothing changed"
        for plugin, names in rows.items():
            answer = await pod_answer(world.host, "default/web", node=names[0])
            assert answer is not None
            assert answer.on_node is not None
            assert answer.on_node.verdict == "rejected"
            if sum(names[0] in others for others in rows.values()) == 1:
                assert answer.on_node.plugin == plugin


@each_transport
async def test_events_of_the_narrowing_plugin_requeue_the_pod(transport: str, tmp_path: Path) -> None:
    objects = [*NODES, pod("lost", labels={"Left": "gone"})]
    async with narrowing_world(transport, tmp_path, objects) as world:
        await world.settle()
        assert world.node_of("lost") == ""
        world.server.create(node("gone"))
        await world.settle()
        assert world.node_of("lost") == "gone"
        found = world.host.diagnoses.find("default/lost")
        assert found is not None
        assert found.attempt == 2


@each_transport
async def test_preemption_leaves_nodes_alone_that_pre_filter_ruled_out(
    transport: str, tmp_path: Path
) -> None:
    low = [
        pod("keep", cpu="3", nodeName="n2", priority=-5),
        pod("yield", cpu="3", nodeName="n0", priority=0),
    ]
    high = pod("high", cpu="3", priority=10, labels={"Left": "n0", "Right": "crowded"})
    async with narrowing_world(transport, tmp_path, [*NODES, *low, high]) as world:
        await world.settle()
        assert world.node_of("high") == "n0"
        assert (world.pod("yield"), world.node_of("keep")) == (None, "n2")


@each_transport
async def test_nominated_node_that_pre_filter_rules_out_is_not_taken(transport: str, tmp_path: Path) -> None:
    promised = pod("web", labels={"Left": "n0"}) | {"status": {"nominatedNodeName": "n2"}}
    async with narrowing_world(transport, tmp_path, [*NODES, promised]) as world:
        await world.settle()
        assert world.node_of("web") == "n0"


async def test_node_that_reserve_or_permit_rejects_is_explained_with_its_plugin() -> None:
    class Refuses(Plugin):
        def reserve(self, state: object, pod: object, node_name: str) -> Status:
            return Status.unschedulable("no licence left")

    async with World([node("n0"), node("n1"), pod("web")], [Refuses]) as world:
        await world.settle()
        assert rows_of(world, "web") == {"Refuses": ("n0",)}
        answers = [await pod_answer(world.host, "default/web", node=name) for name in ("n0", "n1")]
        told = [answer.on_node for answer in answers if answer is not None and answer.on_node is not None]
        assert [(one.verdict, one.plugin) for one in told] == [("rejected", "Refuses"), ("fits", "")]
