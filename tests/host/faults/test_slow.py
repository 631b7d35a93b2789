"""Row 22 of the failure table, with real processes: a plugin that takes its time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.faults import (
    FailingProcess,
    RawPlugin,
    as_time_passes,
    attached,
    configuration,
    in_time,
    running,
)
from support.hosts import World, node, pod
from support.raw_plugin import HOLD
from support.scripted_plugin import descriptor

pytestmark = pytest.mark.slow


async def test_row_22_a_plugin_that_hangs_costs_a_cycle_its_budget_and_no_more(tmp_path: Path) -> None:
    plugin = RawPlugin(tmp_path, descriptor("Raw", "PRE_FILTER", "FILTER", "PRE_SCORE", "SCORE"))
    for rpc in ("PreFilter", "Filter", "PreScore", "Score"):
        plugin.on(rpc, HOLD)
    text = configuration(
        plugin, more="required: false", budget="500ms", Raw="preFilter filter preScore score"
    )
    for point in ("preFilter", "filter", "preScore", "score"):
        text = text.replace(f" {point}: {{deadline: 10s", f" {point}: {{policy: Ignore, deadline: 10s")
    async with running(plugin), World([node("n0"), node("n1")], configuration=text) as world:
        await in_time(lambda: attached(world, "Raw"))
        began_s = time.monotonic()
        world.server.create(pod("a"))
        await in_time(lambda: world.node_of("a"))
        assert 0.4 < time.monotonic() - began_s < 9
        stats = world.host.plugin_stats()["Raw"]
        assert stats.of("PreFilter").failures == {"timeout": 1}
        assert not [rpc for rpc in ("Filter", "PreScore", "Score") if plugin.requests(rpc)]


async def test_row_22_a_stopped_plugin_delays_no_other_one(tmp_path: Path) -> None:
    """Pods wait in binding for the one that was stopped; those that do not need it are bound meanwhile."""
    slow = FailingProcess(tmp_path / "slow")
    quick = RawPlugin(tmp_path / "quick", descriptor("Raw", "RESERVE", "PRE_BIND"))
    scope = "required: true\n  scope: {podSelector: {matchLabels: {kind: slow}}}"
    text = configuration(slow, quick, more=scope, Failing="preBind", Raw="reserve preBind")
    objects = [node("n0", pods="500")]
    async with running(slow, quick), World(objects, configuration=text) as world:
        await in_time(lambda: attached(world) and attached(world, "Raw"))
        slow.stop()
        for i in range(20):
            world.server.create(pod(f"slow-{i}", cpu="1m", labels={"kind": "slow"}))
        await in_time(lambda: len(world.host.binding) == 20)
        for i in range(20):
            world.server.create(pod(f"quick-{i}", cpu="1m"))
        await in_time(lambda: all(world.node_of(f"quick-{i}") for i in range(20)))
        assert not any(world.node_of(f"slow-{i}") for i in range(20))
        slow.go_on()
        await in_time(lambda: all(world.node_of(f"slow-{i}") for i in range(20)))


async def test_row_22_rounds_of_pre_bind_without_end_are_ended_by_one_deadline(tmp_path: Path) -> None:
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, deadline="2s", Failing="preBind")
    web = pod("web", labels={"rounds": "endless"})
    async with running(plugin), World([node("n0"), web], configuration=text) as world:
        # The time between two rounds is the host's clock's.
        await as_time_passes(world, lambda: bool(world.message_of("web")))
        assert 'plugin "Failing" did not answer within 2000 ms at PreBind' in world.message_of("web")
        assert len(plugin.did("round")) > 2


async def test_row_22_the_circuit_of_a_slow_point_opens_and_its_deadline_is_waited_for_no_more(
    tmp_path: Path,
) -> None:
    plugin = RawPlugin(tmp_path, descriptor("Raw", "FILTER"))
    plugin.on("Filter", HOLD)
    text = configuration(plugin, more="required: false", deadline="50ms", Raw="filter")
    text = text.replace("{deadline: 50ms", "{policy: Ignore, deadline: 50ms")
    async with running(plugin), World([node("n0")], configuration=text) as world:
        await in_time(lambda: attached(world, "Raw"))
        for i in range(20):
            world.server.create(pod(f"p{i}"))
        await in_time(lambda: all(world.node_of(f"p{i}") for i in range(20)))
        failures = world.host.plugin_stats()["Raw"].of("Filter").failures
        assert 5 <= failures["timeout"] < 10
        assert failures["circuit_open"] > 10
