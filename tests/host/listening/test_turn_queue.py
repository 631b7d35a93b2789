"""Turns at a bounded rate: peers one after the other, and of one peer those with the lowest order first."""

from __future__ import annotations

import asyncio

import pytest
from berth_host.listening.turn_queue import RECENT_S, TurnQueue
from support.waiting import until


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def served(queue: TurnQueue, *callers: tuple[str, int]) -> list[int]:
    """Let callers (peer, order) come one after the other; return their places in the order of their turns."""
    turns: list[int] = []

    async def come(at: int, peer: str, order: int) -> None:
        await queue.take(peer, order)
        turns.append(at)

    tasks = []
    for at, (peer, order) in enumerate(callers):
        tasks.append(asyncio.ensure_future(come(at, peer, order)))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    return turns


async def in_time(turns: asyncio.Future[list[int]], clock: Clock) -> list[int]:
    """Let all callers come, and then time pass until each had its turn."""
    await asyncio.sleep(0.01)
    while not turns.done():
        clock.now_s += 0.05
        await asyncio.sleep(0.02)
    return await turns


async def test_burst_passes_at_once_and_then_turns_come_at_the_rate() -> None:
    clock = Clock()
    queue = TurnQueue(10.0, 3.0, clock)
    for _ in range(3):
        await queue.take("a")
    waiting = [asyncio.ensure_future(queue.take("a")) for _ in range(4)]
    await asyncio.sleep(0)
    assert queue.waiting_count == 4
    for left in (3, 2, 1, 0):
        clock.now_s += 0.1001
        await until(lambda left=left: queue.waiting_count == left)  # type: ignore[misc]  # bound here
    await asyncio.gather(*waiting)


async def test_peers_take_turns_however_many_callers_one_has() -> None:
    clock = Clock()
    queue = TurnQueue(10.0, 1.0, clock)
    await queue.take("flood")
    callers = [*[("flood", 0)] * 5, ("probe", 0), ("other", 0)]
    turns = await in_time(asyncio.ensure_future(served(queue, *callers)), clock)
    assert max(turns.index(5), turns.index(6)) < 4
    assert [at for at in turns if at < 5] == [0, 1, 2, 3, 4]


async def test_peer_without_a_turn_lately_goes_before_those_that_had_one() -> None:
    clock = Clock()
    queue = TurnQueue(10.0, 1.0, clock)
    for peer in ("a", "b"):
        await queue.take(peer)
        clock.now_s += 0.1001
    await queue.take("a")
    turns = asyncio.ensure_future(served(queue, ("a", 0), ("b", 0), ("new", 0)))
    assert await in_time(turns, clock) == [2, 0, 1]
    assert clock.now_s < 100.0 + RECENT_S


async def test_lowest_order_of_a_peer_goes_first() -> None:
    clock = Clock()
    queue = TurnQueue(10.0, 1.0, clock)
    await queue.take("a")
    turns = asyncio.ensure_future(served(queue, ("a", 9), ("a", 5), ("a", 0), ("a", 5)))
    assert await in_time(turns, clock) == [2, 1, 3, 0]


@pytest.mark.parametrize("leaving", [0, 1, 2])
async def test_caller_that_leaves_costs_no_turn(leaving: int) -> None:
    clock = Clock()
    queue = TurnQueue(10.0, 1.0, clock)
    await queue.take("a")
    tasks = [asyncio.ensure_future(queue.take("ab"[at % 2])) for at in range(3)]
    await asyncio.sleep(0)
    tasks[leaving].cancel()
    await asyncio.sleep(0)
    others = [task for at, task in enumerate(tasks) if at != leaving]
    for left in (1, 0):
        assert queue.waiting_count == left + 1
        clock.now_s += 0.1001
        await until(lambda left=left: queue.waiting_count == left)  # type: ignore[misc]  # bound here
    await asyncio.gather(*others)
