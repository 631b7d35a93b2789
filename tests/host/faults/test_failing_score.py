"""A plugin that fails at scoring, in process and served: the attempt ends, as in kube-scheduler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from support import one_plugin
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process

CLASS = "support.raising_score:RaisingScore"


@pytest.fixture(params=one_plugin.WAYS)
async def where(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Where the plugin runs."""
    async with one_plugin.running(CLASS, request.param, tmp_path) as place:
        yield place


configuration = partial(one_plugin.configuration, "RaisingScore", "score")


async def test_score_plugin_that_raises_places_no_pod(where: str) -> None:
    async with World([node("n0"), node("n1"), pod("web")], configuration=configuration(where)) as world:
        await world.settle()
        assert world.node_of("web") == ""
        said = world.message_of("web")
        assert said.startswith('running Score plugins: plugin "RaisingScore" failed with: ')
        assert "no price for this node" in said


async def test_score_plugin_that_raises_is_left_out_where_its_policy_is_neutral(where: str) -> None:
    objects = [node("n0"), node("n1"), pod("web")]
    async with World(objects, configuration=configuration(where, "Neutral")) as world:
        await world.settle()
        assert world.node_of("web")
        event = world.server.events.latest("PluginLeftOut", "default/web")
        assert event is not None
        assert event.note.startswith('placed without plugin "RaisingScore" at Score: it failed: ValueError')
        assert event.note.endswith("(policy: Neutral)")


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("RefusingScore", "Score plugins"),
        ("RefusingScores", "Score plugins"),
        ("RefusingNormalize", "Normalize on Score plugins"),
    ],
)
async def test_status_in_place_of_scores_ends_the_attempt_in_the_plugins_words(
    name: str, step: str, served: bool, tmp_path: Path
) -> None:
    cls = f"support.raising_score:{name}"
    objects = [node("n0"), node("n1"), pod("web")]
    wanted = f'running {step}: plugin "{name}" failed with: no price for this node'

    async def message(where: str) -> str:
        text = configuration(where).replace("RaisingScore", name)
        async with World(objects, configuration=text) as world:
            await world.settle()
            assert world.node_of("web") == ""
            return world.message_of("web")

    if not served:
        assert await message(f"inProcess: '{cls}'") == wanted
        return
    async with plugin_process(tmp_path / "p.sock", cls) as process:
        assert await message(f"endpoint: '{process.endpoint}'") == wanted
