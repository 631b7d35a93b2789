"""A plugin that reads what it did not declare fails as by any other error, in process and served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process

CLASS = "support.reads_annotations:ReadsAnnotations"
REFUSAL = (
    "UndeclaredError: ReadsAnnotations reads node.annotations, which it did not declare:"
    " add Need.nodes(annotation_prefixes=('...',)) to `needs`"
)


@pytest.fixture(params=["in process", "served"])
async def where(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Where the plugin lives, as BerthConfiguration says it."""
    if request.param == "in process":
        yield f"inProcess: '{CLASS}'"
        return
    async with plugin_process(tmp_path / "p.sock", CLASS) as process:
        yield f"endpoint: '{process.endpoint}'"


def configuration(where: str, policy: str = "") -> str:
    chosen = f", policy: {policy}" if policy else ""
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins: {filter: {enabled: [{name: ReadsAnnotations}]}}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
        f"plugins:\n- name: ReadsAnnotations\n  {where}\n  points: {{filter: {{deadline: 10s{chosen}}}}}\n"
    )


async def test_pod_is_not_placed_and_the_error_names_the_need(where: str) -> None:
    async with World([node("n0"), pod("web")], configuration=configuration(where)) as world:
        await world.settle()
        assert world.node_of("web") == ""
        assert REFUSAL in world.message_of("web")


async def test_policy_of_the_point_decides_what_follows(where: str) -> None:
    async with World([node("n0"), pod("web")], configuration=configuration(where, "Ignore")) as world:
        await world.settle()
        assert world.node_of("web") == "n0"
        event = world.server.events.latest("PluginLeftOut", "default/web")
        assert event is not None and REFUSAL in event.note
