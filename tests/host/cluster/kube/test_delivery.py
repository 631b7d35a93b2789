"""Steps are run in order, the first ones in long turns of the loop, later ones in short turns."""

from __future__ import annotations

import asyncio

import pytest
from berth_host.cluster.kube import delivery
from berth_host.cluster.kube.delivery import Delivery
from berth_host.cluster.port import MAX_EVENTS_PER_TURN


async def turns_of(steps: Delivery, count: int) -> list[int]:
    """Hand over `count` steps; return how many ran in each turn of the loop."""
    ran: list[int] = []
    turns: list[int] = []
    await steps.put(ran.append, range(count))
    while len(ran) < count:
        before = len(ran)
        await asyncio.sleep(0)
        turns.append(len(ran) - before)
    assert ran == list(range(count))
    return [turn for turn in turns if turn]


async def test_first_lists_need_one_turn_and_later_changes_yield(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "FIRST_TURN_S", 60.0)
    monkeypatch.setattr(delivery, "MAX_TURN_S", 60.0)
    steps = Delivery()
    assert await turns_of(steps, 10 * MAX_EVENTS_PER_TURN) == [10 * MAX_EVENTS_PER_TURN]
    steps.yield_to_others()
    assert await turns_of(steps, 2 * MAX_EVENTS_PER_TURN + 1) == [MAX_EVENTS_PER_TURN, MAX_EVENTS_PER_TURN, 1]


async def test_a_long_turn_ends_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "FIRST_TURN_S", 0.0)
    assert await turns_of(Delivery(), 5) == [1] * 5


async def test_a_step_that_raises_does_not_keep_others_back(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    ran: list[int] = []

    def step(number: int) -> None:
        if number == 1:
            raise ValueError(number)
        ran.append(number)

    steps = Delivery()
    await steps.put(step, range(3))
    await steps.settled()
    assert ran == [0, 2]
    assert [str(failure) for failure in failures] == ["1"]
