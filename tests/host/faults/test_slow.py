"""Rows 22 and 23 of the failure table, with real processes: a plugin that takes its time, or hangs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from berth_host.attach import probing
from berth_host.attach.state import State
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
from support.waiting import until

pytestmark = pytest.mark.slow


@pytest.mark.long
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


async def test_row_23_a_call_that_is_not_waited_for_any_more_is_cancelled(tmp_path: Path) -> None:
    """So that the thread which hangs in it may notice; the plugin is asked again."""
    plugin = FailingProcess(tmp_path)
    plugin.arm("Filter", "hang")
    text = configuration(plugin, deadline="500ms", Failing="filter")
    async with running(plugin), World([node("n0"), pod("web")], configuration=text) as world:
        await in_time(lambda: world.message_of("web"))
        await until((plugin.folder / "noticed").exists)
        await world.settle()
        assert world.node_of("web")


@pytest.mark.long
async def test_row_23_probes_alone_notice_a_stopped_plugin_and_that_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks it anything else in the meantime."""
    for name, value in (("PROBE_PERIOD_S", 0.2), ("PROBE_S", 0.2), ("TICK_S", 0.05)):
        monkeypatch.setattr(probing, name, value)
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, Failing="filter")
    async with running(plugin), World([node("n0")], configuration=text) as world:
        (place,) = world.host.attachments.attached_places.places
        await in_time(lambda: place.state is State.ACTIVE)
        plugin.stop()
        await in_time(lambda: place.state is State.DEGRADED)
        assert "did not answer 3 probes" in place.reason
        world.server.create(pod("web"))
        # At once: no deadline is waited for, and the deadline is 10 s.
        await in_time(lambda: "is not asked until it is well again" in world.message_of("web"))
        assert world.host.plugin_stats()["Failing"].of("Filter").failures == {"circuit_open": 1}
        plugin.go_on()
        await in_time(lambda: place.state is State.ACTIVE)
        await world.settle()
        assert world.node_of("web")


@pytest.mark.long
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


@pytest.mark.long
async def test_row_22_rounds_of_pre_bind_without_end_are_ended_by_one_deadline(tmp_path: Path) -> None:
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, deadline="2s", Failing="preBind")
    web = pod("web", labels={"rounds": "endless"})
    async with running(plugin), World([node("n0"), web], configuration=text) as world:
        # The time between two rounds is the host's clock's.
        await as_time_passes(world, lambda: bool(world.message_of("web")))
        assert 'plugin "Failing" did not answer within 2000 ms at PreBind' in world.message_of("web")
        assert len(plugin.did("round")) > 2


@pytest.mark.long
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
