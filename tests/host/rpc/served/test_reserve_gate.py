"""Reservations are made, or listed for Reconcile, never both at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from berth_host.rpc.served.reserve_gate import ReserveGate


@asynccontextmanager
async def calling(gate: ReserveGate) -> AsyncIterator[None]:
    """As a transport goes through it."""
    await gate.opened()
    with gate.calling():
        yield


class Passing:
    """A task in the gate: `inside` once it is let in, until `leave`."""

    def __init__(self, way: AbstractAsyncContextManager[None]) -> None:
        self.inside = False
        self.leave = asyncio.Event()
        self.task = asyncio.create_task(self._pass(way))

    async def _pass(self, way: AbstractAsyncContextManager[None]) -> None:
        async with way:
            self.inside = True
            await self.leave.wait()
        self.inside = False


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_calls_overlap_and_a_list_waits_for_those_that_are_open_and_holds_up_new_ones() -> None:
    gate = ReserveGate()
    calls = [Passing(calling(gate)) for _ in range(2)]
    await turns()
    assert all(call.inside for call in calls)
    lists = [Passing(gate.listing()) for _ in range(2)]
    await turns()
    late = Passing(calling(gate))
    calls[0].leave.set()
    await turns()
    assert not any(one.inside for one in (*lists, late))
    calls[1].leave.set()
    await turns()
    assert [one.inside for one in (*lists, late)] == [True, False, False]
    lists[0].leave.set()
    await turns()
    assert [one.inside for one in (*lists, late)] == [False, True, False]
    lists[1].leave.set()
    await turns()
    assert late.inside
    late.leave.set()
    await asyncio.gather(*(one.task for one in (*calls, *lists, late)))


async def test_what_is_cancelled_holds_up_nobody() -> None:
    gate = ReserveGate()
    call, listed = Passing(calling(gate)), Passing(gate.listing())
    await turns()
    waiting = Passing(calling(gate))
    await turns()
    for one in (waiting, listed, call):
        one.task.cancel()
    await asyncio.gather(*(one.task for one in (waiting, listed, call)), return_exceptions=True)
    async with gate.listing():
        pass
    async with calling(gate):
        pass
