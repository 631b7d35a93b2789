"""Rows 8 to 10 of the failure table, with real processes: a plugin that is killed within a cycle."""

from __future__ import annotations

import asyncio
import functools
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from berth_bench.life.faulty_cluster import Faults
from berth_host.app import FrameworkAlone, WhatIf
from berth_host.attach.attachments import Attachments
from berth_host.attach.state import State
from berth_host.config.loading import load_configuration
from berth_host.explain.diagnosis import Diagnosis, Outcome
from berth_sdk.scenarios import Scenario
from berth_sdk.testing import make_node, make_pod
from support.faults import (
    FailingProcess,
    RawPlugin,
    as_time_passes,
    attached,
    configuration,
    held,
    in_time,
    running,
)
from support.hosts import World, node, pod
from support.raw_plugin import HOLD
from support.scripted_plugin import descriptor
from support.waiting import until

pytestmark = pytest.mark.slow

AT_ONCE = Faults(turns=0, reorder=False)
NODES = [node("n0"), node("n1")]
HELD = pod("web", labels={"faulty": "held"})


@asynccontextmanager
async def sidecars(
    tmp_path: Path, *names: str
) -> AsyncIterator[tuple[World, list[Diagnosis], list[FailingProcess]]]:
    """Yield a world whose plugin has these instances, attached in this order; all its attempts; the
    instances.
    """
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    plugins = [FailingProcess(tmp_path / name, sockets / f"{name}.sock") for name in names]
    text = configuration(plugins[0], Failing="preFilter filter")
    text = in_folder(text, plugins[0], sockets)
    attempts: list[Diagnosis] = []
    async with World(NODES, configuration=text, on_attempt=attempts.append) as world, AsyncExitStack() as up:
        places = world.host.attachments.attached_places
        for count, plugin in enumerate(plugins, 1):
            await up.enter_async_context(running(plugin))
            states = [State.ACTIVE, *[State.STANDBY] * (count - 1)]
            await until(functools.partial(are_in, places, states))
        yield world, attempts, plugins


def in_folder(text: str, plugin: FailingProcess, sockets: Path) -> str:
    """Return the configuration with the folder of sockets in the place of the plugin's endpoint."""
    text = text.replace(f"  endpoint: {plugin.endpoint}\n", "")
    return text.replace("plugins:\n- name", f"socketFolder: {sockets}\nplugins:\n- name")


def are_in(places: Attachments, states: Sequence[State]) -> bool:
    """Whether the instances are in these states, in any order."""
    return Counter(one.state for one in places.conditions()) == Counter(states)


async def lost_and_found(world: World, plugin: FailingProcess) -> None:
    """Wait until the host has noticed the end of the process, and has attached the next one."""
    await plugin.ended()
    await in_time(lambda: not attached(world))
    await plugin.start()
    await in_time(lambda: attached(world))


@pytest.mark.long
async def test_row_8_death_between_pre_filter_and_reserve_costs_one_attempt(tmp_path: Path) -> None:
    plugin = FailingProcess(tmp_path)
    plugin.arm("Filter", "die")
    text = configuration(plugin, Failing="preFilter filter reserve")
    async with running(plugin), World([*NODES, pod("web")], configuration=text) as world:
        await lost_and_found(world, plugin)
        await world.settle()
        assert world.node_of("web")
        assert len({cycle for _, cycle, _ in plugin.asked("PreFilter")}) == 2
        assert len(plugin.did("reserve")) == 1
        assert not plugin.did("unreserve")


@pytest.mark.long
async def test_row_8_the_cycle_begins_anew_at_once_with_the_instance_that_stands_by(tmp_path: Path) -> None:
    """Within the attempt: no pod fails, and none backs off."""
    async with sidecars(tmp_path, "old", "new") as (world, attempts, (old, new)):
        new.arm("Filter", "die")
        world.server.create(pod("web"))
        await in_time(lambda: world.node_of("web"))
        assert new.has_fired
        assert [(one.pod.key, one.outcome) for one in attempts] == [("default/web", Outcome.BOUND)]
        assert not world.message_of("web")
        assert len(old.asked("PreFilter")) == len(new.asked("PreFilter")) == 1


@pytest.mark.long
async def test_row_8_the_cycle_begins_anew_once_and_the_next_death_is_a_failure(tmp_path: Path) -> None:
    async with sidecars(tmp_path, "old", "newer", "newest") as (world, attempts, (old, newer, newest)):
        for dying in (newer, newest):
            dying.arm("Filter", "die")
        world.server.create(pod("web"))
        await as_time_passes(world, lambda: bool(world.node_of("web")))
        (failed, bound) = attempts
        assert (failed.outcome, bound.outcome) == (Outcome.ERROR, Outcome.BOUND)
        # The death is seen by the call, or by the connection before the next call.
        assert re.search('plugin "Failing" (was cut off at Filter|could not be reached)', failed.message)
        asked = [len(plugin.asked("PreFilter")) for plugin in (newest, newer, old)]
        assert asked == [1, 1, 1]


@pytest.mark.long
async def test_row_8_a_what_if_about_a_new_node_begins_anew_with_the_instance_that_stands_by(
    tmp_path: Path,
) -> None:
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    # One folder for both: whichever is asked first dies, once.
    first, second = (FailingProcess(tmp_path / "told", sockets / f"{name}.sock") for name in "ab")
    first.arm("Filter", "die")
    async with running(first, second):
        text = in_folder(configuration(first, Failing="preFilter filter"), first, sockets)
        async with FrameworkAlone(load_configuration(text, source="test")) as alone:
            (verdict,) = await alone.ask(WhatIf(make_pod("web"), [Scenario(node=make_node("new"))]))
    assert (verdict.message, first.has_fired) == ("", True)
    assert len({cycle for _, cycle, _ in first.asked("PreFilter")}) == 2


@pytest.mark.long
async def test_row_20_a_plugin_that_restarts_between_two_calls_costs_no_attempt(tmp_path: Path) -> None:
    """It restarts while another plugin is asked: the cycle begins anew with the new instance."""
    plugin = FailingProcess(tmp_path / "failing")
    gate = RawPlugin(tmp_path / "gate", descriptor("Raw", "PRE_FILTER"))
    gate.on("PreFilter", HOLD)
    text = configuration(plugin, gate, Failing="preFilter filter", Raw="preFilter")
    attempts: list[Diagnosis] = []
    async with (
        running(plugin, gate),
        World([*NODES, pod("web")], configuration=text, on_attempt=attempts.append) as world,
    ):
        await in_time(lambda: len(gate.requests("PreFilter")) == 1)
        await plugin.kill()
        await lost_and_found(world, plugin)
        gate.on("PreFilter", None)
        await in_time(lambda: world.node_of("web"))
        assert [one.outcome for one in attempts] == [Outcome.BOUND]
        assert len({cycle for _, cycle, _ in plugin.asked("PreFilter")}) == 2
        assert len(plugin.asked("Filter")) == 1


@pytest.mark.long
async def test_row_9_death_after_reserve_is_no_obstacle_where_nothing_else_needs_the_plugin(
    tmp_path: Path,
) -> None:
    plugin = FailingProcess(tmp_path)
    world = World(
        [*NODES, pod("web")], configuration=configuration(plugin, Failing="reserve"), faults=AT_ONCE
    )
    assert world.faulty is not None
    gate = world.faulty.gate("bind")
    async with running(plugin), world:
        await gate.arrived.wait()
        await plugin.kill()
        await in_time(lambda: not attached(world))
        gate.open.set()
        await in_time(lambda: world.node_of("web"))
        await plugin.start()
        await in_time(lambda: attached(world))
        ((cycle, _),) = plugin.did("reserve")
        assert plugin.did("lives") == [[cycle, "b'taken'"]]  # nobody has told it yet that the pod is bound
        assert len(plugin.did("reserve")) == 1
        assert not plugin.did("unreserve")


@pytest.mark.long
async def test_row_9_death_where_the_plugin_is_needed_gives_back_and_tries_again(tmp_path: Path) -> None:
    plugin = FailingProcess(tmp_path)
    plugin.arm("PreBind", "die")
    text = configuration(plugin, Failing="reserve preBind")
    async with running(plugin), World([*NODES, pod("web")], configuration=text) as world:
        await lost_and_found(world, plugin)
        await world.settle()
        assert world.node_of("web")
        (lost, _), (kept, _) = plugin.did("reserve")
        assert lost != kept
        # At least once: the instance that takes it may be gone before it has said so.
        assert {cycle for cycle, _ in plugin.did("unreserve")} == {lost}
        order = [words[0] for words in plugin.lines("journal") if words[0] in ("reserve", "unreserve")]
        assert order == ["reserve", *["unreserve"] * (len(order) - 2), "reserve"]


async def test_row_9_and_10_the_next_instance_takes_up_the_wait_and_the_reservation_from_its_token(
    tmp_path: Path,
) -> None:
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, Failing="reserve permit preBind")
    async with running(plugin), World([*NODES, HELD], configuration=text) as world:
        await held(world)
        ((cycle, uid),) = plugin.did("reserve")
        await plugin.kill()
        await lost_and_found(world, plugin)
        assert len(world.host.waiting_pods) == 1
        assert plugin.did("waits") == [[cycle, "b'taken'"]]
        assert await plugin.order("allow", uid, cycle) == "APPLIED"
        await in_time(lambda: world.node_of("web"))
        assert [words[1] for words in plugin.asked("PreBind")] == [cycle]
        assert len(plugin.did("reserve")) == 1
        assert not plugin.did("unreserve")


@pytest.mark.long
async def test_row_10_a_wait_that_nobody_takes_up_ends_at_its_deadline(tmp_path: Path) -> None:
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, Failing="reserve permit")
    async with running(plugin), World([*NODES, HELD], configuration=text) as world:
        await held(world)
        (waiting,) = world.host.waiting_pods.list()
        await plugin.kill()
        await in_time(lambda: not attached(world))
        world.clock.advance(waiting.deadline_s - world.clock.now_s() - 1.0)
        await asyncio.sleep(0)
        assert len(world.host.waiting_pods) == 1
        world.clock.advance(1.0)
        await in_time(lambda: world.message_of("web"))
        assert "rejected due to timeout after waiting 15m0s at plugin Failing" in world.message_of("web")
        assert not world.node_of("web")
        await plugin.start()  # the next instance gets what the one before has left
        await in_time(lambda: [cycle for cycle, _ in plugin.did("unreserve")] == [waiting.cycle_id])


@pytest.mark.long
async def test_row_9_and_10_a_reservation_that_the_next_instance_does_not_know_is_given_back(
    tmp_path: Path,
) -> None:
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, Failing="reserve permit preBind")
    async with running(plugin), World([*NODES, HELD], configuration=text) as world:
        await held(world)
        ((lost, _),) = plugin.did("reserve")
        plugin.put("forget", "")
        plugin.put("release", "")
        await plugin.kill()
        await lost_and_found(world, plugin)
        await world.settle()
        assert world.node_of("web")
        _, (kept, _) = plugin.did("reserve")
        assert {cycle for cycle, _ in plugin.did("unreserve")} == {lost}
        assert [words[1] for words in plugin.asked("PreBind")] == [kept]
