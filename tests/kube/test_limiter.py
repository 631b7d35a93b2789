"""Turns: no more than the limit at once, in order, and none is lost when a caller is cancelled."""

from __future__ import annotations

import asyncio
import random

import pytest
from berth_kube.limiter import Turns


async def test_turns_are_given_in_order_and_not_taken_by_newcomers() -> None:
    turns = Turns(2)
    assert turns.take_free()
    assert turns.take_free()
    assert not turns.take_free()
    got: list[int] = []

    async def take(number: int) -> None:
        await turns.take()
        got.append(number)

    tasks = [asyncio.ensure_future(take(number)) for number in range(3)]
    await asyncio.sleep(0)
    turns.give_back()
    assert not turns.take_free()
    await asyncio.sleep(0)
    turns.give_back()
    turns.give_back()
    await asyncio.gather(*tasks)
    assert got == [0, 1, 2]
    turns.give_back()
    assert turns.take_free()


@pytest.mark.parametrize("is_given_first", [True, False])
async def test_cancelled_caller_leaves_its_turn_to_the_next(is_given_first: bool) -> None:
    turns = Turns(1)
    assert turns.take_free()
    first, second = (asyncio.ensure_future(turns.take()) for _ in range(2))
    await asyncio.sleep(0)
    if is_given_first:
        turns.give_back()
        first.cancel()
    else:
        first.cancel()
        turns.give_back()
    await second
    assert first.cancelled()
    turns.give_back()
    assert turns.take_free()


@pytest.mark.parametrize("seed", range(20))
async def test_no_turn_is_lost_or_given_twice(seed: int) -> None:
    rng = random.Random(seed)
    turns = Turns(3)
    under_way = most = 0

    async def use() -> None:
        nonlocal under_way, most
        if not turns.take_free():
            await turns.take()
        under_way += 1
        most = max(most, under_way)
        try:
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
        finally:
            under_way -= 1
            turns.give_back()

    tasks: list[asyncio.Future[None]] = []
    for _ in range(100):
        tasks.append(asyncio.ensure_future(use()))
        if rng.random() < 0.4:
            rng.choice(tasks).cancel()
        if rng.random() < 0.5:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most == 3
    assert [turns.take_free() for _ in range(4)] == [True, True, True, False]
