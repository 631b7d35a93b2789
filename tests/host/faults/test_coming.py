"""Rows 1 to 3 of the failure table, with real processes: a plugin that is not there yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.faults import FailingProcess, attached, configuration, in_time, metric, running
from support.hosts import World, node, pod

pytestmark = pytest.mark.slow


async def test_row_1_an_optional_plugin_counts_for_nothing_until_it_comes_unless_its_point_may_not(
    tmp_path: Path,
) -> None:
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, more="required: false", Failing="filter score")
    text = text.replace("filter: {deadline: 10s}", "filter: {deadline: 10s, policy: Ignore}")
    strict = text.replace("policy: Ignore", "policy: Fail")
    objects = [node("n0"), pod("web"), pod("refused", labels={"faulty": "unfit"})]
    async with World(objects, configuration=strict) as world:
        await world.settle()
        assert not world.node_of("web")
        assert 'plugin "Failing" is not attached' in world.message_of("web")
    async with World(objects, configuration=text) as world:
        await world.settle()
        assert world.node_of("web") == world.node_of("refused") == "n0"
        assert await metric(world, "berth_plugin_absent", "Failing") == 0
        async with running(plugin):
            await in_time(lambda: attached(world))
            world.server.create(pod("unfit", labels={"faulty": "unfit"}))
            await in_time(lambda: world.message_of("unfit"))
            assert "not yet" in world.message_of("unfit")


async def test_row_2_pods_in_the_scope_of_a_required_plugin_wait_until_its_process_is_there(
    tmp_path: Path,
) -> None:
    plugin = FailingProcess(tmp_path)
    scope = "required: true\n  scope: {podSelector: {matchLabels: {kind: gpu}}}"
    text = configuration(plugin, more=scope, Failing="filter")
    objects = [node("n0"), pod("plain"), pod("gpu", labels={"kind": "gpu"})]
    async with World(objects, configuration=text) as world:
        await world.settle()
        assert world.node_of("plain") == "n0"
        assert not world.node_of("gpu")
        assert 'plugin "Failing" is not attached' in world.message_of("gpu")
        assert await metric(world, "berth_plugin_absent", "Failing") == 1
        assert world.everything_is_accounted_for()
        now_s = world.clock.monotonic_s()
        async with running(plugin):
            # No time passes on the host's clock: the plugin's coming alone brings the pod back.
            await in_time(lambda: world.node_of("gpu"))
            assert world.clock.monotonic_s() == now_s
            assert await metric(world, "berth_plugin_absent", "Failing") == 0
            assert [words[2] for words in plugin.asked("Filter")] == ["gpu"]


@pytest.mark.long
async def test_row_3_a_plugin_is_never_asked_about_its_own_pods(tmp_path: Path) -> None:
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, Failing="filter reserve")
    own = {"berth.io/plugin": "Failing"}
    objects = [node("n0"), pod("own-0", labels=own), pod("other")]
    async with World(objects, configuration=text) as world:
        await in_time(lambda: world.node_of("own-0"))
        await world.settle()
        assert not world.node_of("other")
        async with running(plugin):
            await in_time(lambda: world.node_of("other"))
            world.server.create(pod("own-1", labels=own))
            await in_time(lambda: world.node_of("own-1"))
            assert [words[2] for words in plugin.asked("Filter")] == ["other"]
            assert len(plugin.did("reserve")) == 1
