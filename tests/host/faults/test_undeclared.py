"""A plugin that reads what it did not declare fails as by any other error, in process and served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from support import one_plugin
from support.hosts import World, node, pod

CLASS = "support.reads_annotations:ReadsAnnotations"
REFUSAL = (
    "UndeclaredError: ReadsAnnotations reads node.annotations, which it did not declare:"
    " add Need.nodes(annotation_prefixes=('...',)) to `needs`"
)


@pytest.fixture(params=one_plugin.WAYS)
async def where(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Where the plugin runs."""
    async with one_plugin.running(CLASS, request.param, tmp_path) as place:
        yield place


configuration = partial(one_plugin.configuration, "ReadsAnnotations", "filter")


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
