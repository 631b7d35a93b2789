"""Row 6 of the failure table under a whole host: a newer instance comes while a pod is held."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from berth_host.attach.state import State
from support.faults import FailingProcess, attached, configuration, held, in_time, running
from support.hosts import World, node, pod

pytestmark = pytest.mark.slow

HELD = pod("web", labels={"faulty": "held"})


@asynccontextmanager
async def holding(tmp_path: Path) -> AsyncIterator[tuple[World, FailingProcess, FailingProcess]]:
    """Yield a host whose pod `web` an older instance holds at Permit, and a newer one that is not started
    yet.
    """
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    old = FailingProcess(tmp_path / "old", sockets / "old.sock")
    new = FailingProcess(tmp_path / "new", sockets / "new.sock")
    text = configuration(old, Failing="filter reserve permit preBind")
    text = text.replace(f"  endpoint: {old.endpoint}\n", "").replace(
        "plugins:\n- name", f"socketFolder: {sockets}\nplugins:\n- name"
    )
    async with running(old), World([node("n0"), node("n1")], configuration=text) as world:
        await in_time(lambda: attached(world))
        world.server.create(HELD)
        await held(world)
        yield world, old, new


async def swap(world: World) -> None:
    """Wait until the newer one is asked."""
    places = world.host.attachments.attached_places
    await in_time(lambda: State.STANDBY in [one.state for one in places.conditions()])


async def test_row_6_a_pod_that_waits_is_released_and_bound_by_the_instance_that_holds_it(
    tmp_path: Path,
) -> None:
    async with holding(tmp_path) as (world, old, new), running(new):
        await swap(world)
        ((cycle, uid),) = old.did("reserve")
        assert new.did("waits") == [[cycle, "b'taken'"]]  # it knows of the reservation
        world.server.create(pod("later"))
        await in_time(lambda: world.node_of("later"))
        assert [words[0] for words in new.did("reserve")] != [cycle]
        assert await old.order("allow", uid, cycle) == "APPLIED"
        await in_time(lambda: world.node_of("web"))
        assert [words[1] for words in old.asked("PreBind")] == [cycle]
        assert cycle not in [words[1] for words in new.asked("PreBind")]


@pytest.mark.long
async def test_row_6_the_newer_instance_may_release_it_and_takes_it_over_when_the_older_one_ends(
    tmp_path: Path,
) -> None:
    async with holding(tmp_path) as (world, old, new), running(new):
        await swap(world)
        ((cycle, uid),) = old.did("reserve")
        await old.kill()
        await old.ended()
        await in_time(lambda: len(new.did("waits")) == 2)
        assert await new.order("allow", uid, cycle) == "APPLIED"
        await in_time(lambda: world.node_of("web"))
        assert [words[1] for words in new.asked("PreBind")] == [cycle]
        assert not new.did("unreserve")
