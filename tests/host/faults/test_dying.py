"""Rows 8 to 10 of the failure table, with real processes: a plugin that is killed within a cycle."""

from __future__ import annotations

from pathlib import Path

import pytest
from berth_host.attach.state import State
from support.faults import FailingProcess, attached, configuration, held, in_time, running
from support.faulty_cluster import Faults
from support.hosts import World, node, pod
from support.waiting import until

pytestmark = pytest.mark.slow

AT_ONCE = Faults(turns=0, reorder=False)
NODES = [node("n0"), node("n1")]
HELD = pod("web", labels={"faulty": "held"})


async def lost_and_found(world: World, plugin: FailingProcess) -> None:
    """Wait until the host has noticed the end of the process, and has attached the next one."""
    await plugin.ended()
    await in_time(lambda: not attached(world))
    await plugin.start()
    await in_time(lambda: attached(world))


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


async def test_row_8_the_cycle_begins_anew_at_once_with_the_instance_that_stands_by(tmp_path: Path) -> None:
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    old = FailingProcess(tmp_path / "old", sockets / "old.sock")
    new = FailingProcess(tmp_path / "new", sockets / "new.sock")
    new.arm("Filter", "die")
    text = configuration(old, Failing="preFilter filter")
    text = text.replace(f"  endpoint: {old.endpoint}\n", "").replace(
        "plugins:\n- name", f"socketFolder: {sockets}\nplugins:\n- name"
    )
    async with running(old), World(NODES, configuration=text) as world:
        await in_time(lambda: attached(world))
        async with running(new):
            places = world.host.attachments.attached_places
            await until(lambda: State.STANDBY in [one.state for one in places.conditions()])
            world.server.create(pod("web"))
            await in_time(lambda: world.node_of("web"))
            assert world.clock.monotonic_s() == 0  # no backoff
            assert new.has_fired
            assert len(old.asked("PreFilter")) == len(new.asked("PreFilter")) == 1


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
