"""Steps are run in order, the first ones in long turns of the loop, later ones in short turns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from berth_host.cluster.port import MAX_EVENTS_PER_TURN
from berth_kube import delivery
from berth_kube.delivery import Delivery


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


async def test_rest_of_a_step_is_done_in_later_turns_before_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "FIRST_TURN_S", 0.0)
    done: list[str] = []

    def step(name: str) -> Iterator[None] | None:
        done.append(name)
        return pieces(name) if name == "long" else None

    def pieces(name: str) -> Iterator[None]:
        for number in range(3):
            done.append(f"{name} {number}")
            yield
        if name == "long":
            raise ValueError(name)

    failures: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    steps = Delivery()
    await steps.put(step, ["short", "long", "last"])
    turns = 0
    while "last" not in done:
        before = len(done)
        await asyncio.sleep(0)
        turns += 1
        assert len(done) <= before + 1
    await steps.settled()
    assert done == ["short", "long", "long 0", "long 1", "long 2", "last"]
    assert [str(failure) for failure in failures] == ["long"]
    assert turns > 4


async def test_rest_of_a_step_alone_keeps_settled_waiting_until_it_is_stopped() -> None:
    def endless(_: object) -> Iterator[None]:
        while True:
            yield

    steps = Delivery()
    await steps.put(endless, [None])
    waiting = asyncio.ensure_future(steps.settled())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    steps.stop()
    await waiting
