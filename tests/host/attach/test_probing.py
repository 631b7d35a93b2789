"""When an instance counts as idle, so that its copy is updated without a call."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from berth_host.attach import probing
from berth_host.attach.probing import TICK_S, Prober, Signals, Watched
from berth_host.rpc.served.link import InstanceLink


class Link:
    """The part of `InstanceLink` that the keeper reads; the copy is always older than the snapshot."""

    def __init__(self) -> None:
        self.feed = SimpleNamespace(version=2)
        self.held = 1
        self.wants_full = False
        self.pre_binds_open = 0
        self.calls_open = 0
        self.calls_made = 0
        self.syncs = 0

    async def sync(self, asked: Any, ends_s: float) -> None:
        self.syncs += 1


class Watch:
    """A keeper on a clock that only the test advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(probing, "monotonic_s", lambda: self.now_s)
        self.link = Link()
        signals = Signals(asyncio.Event(), asyncio.Event())
        watched = cast(Watched, SimpleNamespace(next_trial_s=None))
        self.keeper = Prober(cast(InstanceLink, self.link), "Demo", signals, watched)

    async def look(self, after_s: float = 0.0, calls: int = 0) -> int:
        """Run one tick after some time and some calls; return the number of syncs."""
        self.now_s += after_s
        self.link.calls_made += calls
        before = self.link.syncs
        await self.keeper.keep_in_step()
        return self.link.syncs - before


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


async def test_a_busy_instance_gets_its_state_with_its_calls(tested: Watch) -> None:
    assert [await tested.look(TICK_S, calls=100) for _ in range(5)] == [0] * 5


async def test_an_idle_instance_gets_its_state_at_every_tick(tested: Watch) -> None:
    await tested.look(calls=1)
    assert [await tested.look(TICK_S) for _ in range(3)] == [1] * 3


async def test_two_ticks_in_a_row_do_not_make_an_instance_idle(tested: Watch) -> None:
    await tested.look(TICK_S, calls=100)
    assert await tested.look(0.0005) == 0  # timers may be early by less than a millisecond
    assert await tested.look(TICK_S) == 1


async def test_a_long_call_does_not_keep_an_idle_copy_behind(tested: Watch) -> None:
    await tested.look(calls=1)
    tested.link.calls_open = 1  # a Bind that waits for half a minute carries no state
    assert [await tested.look(TICK_S) for _ in range(3)] == [1] * 3


async def test_an_open_pre_bind_and_a_needed_full_sync_do_not_wait_for_idleness(tested: Watch) -> None:
    await tested.look(calls=1)
    tested.link.pre_binds_open = 1
    assert await tested.look(TICK_S, calls=1) == 1
    tested.link.pre_binds_open, tested.link.wants_full = 0, True
    assert await tested.look(TICK_S, calls=1) == 1
