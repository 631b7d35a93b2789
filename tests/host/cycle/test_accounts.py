"""A plugin in the place of NodeResourcesFit that declares what it accounts for, in process and served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from berth_host.explain.make_pod_answer import pod_answer
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process
from support.waiting import PATIENCE_S

PLUGIN = "support.own_fit:OwnFit"


@pytest.fixture(params=["in process", pytest.param("served", marks=pytest.mark.slow)])
async def configuration(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Return a configuration with OwnFit in the place of NodeResourcesFit."""
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
        "- plugins: {multiPoint: {enabled: [{name: OwnFit}], disabled: [{name: NodeResourcesFit}]}}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
        "plugins:\n- name: OwnFit\n  "
    )
    if request.param == "in process":
        yield f"{text}inProcess: {PLUGIN}\n"
        return
    async with plugin_process(tmp_path / "p.sock", PLUGIN) as process:
        yield f"{text}endpoint: {process.endpoint}\n"


async def test_what_a_node_lacks_is_said_of_a_rejection_by_any_plugin_that_counts_resources(
    configuration: str,
) -> None:
    objects = [node("a", cpu="2"), node("b", cpu="4"), pod("huge", cpu="6")]
    async with World(objects, configuration=configuration) as world:
        await world.settle()
        found = await pod_answer(world.host, "default/huge", node="a")
        assert found is not None
        assert [item.text for item in found.explanation.nearest] == [
            "node b lacks 2 CPU",
            "node a lacks 4 CPU",
        ]
        assert found.on_node is not None
        assert found.on_node.text == "OwnFit rejected a: no CPU by my count; node a lacks 4 CPU"


async def test_pod_whose_node_others_filled_goes_back_where_another_plugin_counts_resources(
    configuration: str,
) -> None:
    async with World([node("n0"), pod("held", cpu="2")], configuration=configuration) as world:
        await world.until_waiting(1)
        world.server.create(pod("theirs", cpu="3", nodeName="n0", schedulerName="other"))
        async with asyncio.timeout(PATIENCE_S):
            while world.host.objects.pod("default/theirs") is None:
                await asyncio.sleep(0.01)
        for waiting in world.host.waiting_pods.list():
            world.host.waiting_pods.allow("OwnFit", waiting.pod.uid, waiting.cycle_id)
        await world.settle()
        assert world.host.binding.filled_count == 1
        assert world.node_of("held") == ""
