"""The loop stays awake while a call is open, if answers come soon enough to make that worth it."""

from __future__ import annotations

import asyncio
import os
from itertools import pairwise
from pathlib import Path

import pytest
from berth_host.rpc.served.busy_poll import BusyPoll, usable_cpus

WORTH_S = 0.010


class Clock:
    """Moves by 1 ms each time that it is read."""

    def __init__(self) -> None:
        self.reads = 0
        self.more_s = 0.0

    def __call__(self) -> float:
        self.reads += 1
        return self.reads / 1000 + self.more_s


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def turned_by(poll: BusyPoll, clock: Clock, waited_s: float) -> int:
    """How often the loop turned for one call that is answered after `waited_s`."""
    poll.begin()
    before = clock.reads
    await turns(30)
    turned = clock.reads - before
    clock.more_s += max(0.0, waited_s - (turned + 1) / 1000)
    poll.end()
    await turns(2)
    return turned


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_loop_turns_while_a_call_is_open_and_no_longer(clock: Clock) -> None:
    poll = BusyPoll(2, worth_s=10, clock=clock)
    poll.begin()
    await turns(50)
    assert clock.reads >= 49
    poll.end()
    await turns(2)
    after = clock.reads
    await turns(20)
    assert clock.reads == after


async def test_loop_turns_no_longer_than_a_sleep_would_have_cost(clock: Clock) -> None:
    poll = BusyPoll(2, worth_s=WORTH_S, clock=clock)
    assert await turned_by(poll, clock, 1.0) in (10, 11)


async def test_loop_sleeps_once_answers_take_longer_than_turning_is_worth(clock: Clock) -> None:
    poll = BusyPoll(2, worth_s=WORTH_S, clock=clock)
    turned = [await turned_by(poll, clock, 0.025) for _ in range(60)]
    assert turned[0] in (10, 11)
    assert turned[10:] == [0] * 50


async def turns_for_a_quick_answer(poll: BusyPoll, clock: Clock) -> bool:
    poll.begin()
    before = clock.reads
    await turns(3)
    turned = clock.reads > before
    poll.end()
    await turns(2)
    return turned


async def test_one_late_answer_does_not_end_the_busy_poll(clock: Clock) -> None:
    poll = BusyPoll(2, worth_s=WORTH_S, clock=clock)
    for _ in range(10):
        assert await turns_for_a_quick_answer(poll, clock)
    await turned_by(poll, clock, 5.0)
    for _ in range(10):
        assert await turns_for_a_quick_answer(poll, clock)


async def test_turning_is_tried_again_now_and_then_and_kept_when_answers_come_soon(clock: Clock) -> None:
    poll = BusyPoll(2, worth_s=WORTH_S, clock=clock)
    slow = [await turned_by(poll, clock, 0.025) for _ in range(220)]
    trials = [number for number, turned in enumerate(slow) if turned and number > 10]
    assert [later - earlier for earlier, later in pairwise(trials)] == [65, 65]
    quick = [await turns_for_a_quick_answer(poll, clock) for _ in range(100)]
    assert not quick[0]
    assert all(quick[64:])


async def test_calls_at_the_same_time_turn_the_loop_once(clock: Clock) -> None:
    poll = BusyPoll(2, worth_s=10, clock=clock)
    for _ in range(3):
        poll.begin()
    await turns(30)
    assert clock.reads <= 1 + 31
    poll.end()
    poll.end()
    before = clock.reads
    await turns(10)
    assert clock.reads >= before + 9  # one is open still


async def test_a_call_that_follows_at_once_does_not_turn_the_loop_twice(clock: Clock) -> None:
    poll = BusyPoll(2, worth_s=10, clock=clock)
    for _ in range(20):
        poll.begin()
        poll.end()
    poll.begin()
    before = clock.reads
    await turns(30)
    assert clock.reads <= before + 31


@pytest.mark.parametrize("cpus", [1, 0.5, 1.9])
async def test_loop_does_not_turn_on_a_single_core(clock: Clock, cpus: float) -> None:
    poll = BusyPoll(cpus, clock=clock)
    poll.begin()
    await turns(10)
    assert clock.reads == 0


@pytest.mark.parametrize(
    ("text", "limit"),
    [("max 100000\n", None), ("50000 100000\n", 0.5), ("150000 100000", 1.5), ("", None), ("1 0", None)],
)
def test_cpus_are_those_that_the_control_group_grants(tmp_path: Path, text: str, limit: float | None) -> None:
    path = tmp_path / "cpu.max"
    path.write_text(text)
    bound_to = len(os.sched_getaffinity(0))
    assert usable_cpus(path) == (bound_to if limit is None else min(limit, bound_to))


def test_cpus_without_a_control_group_are_those_it_is_bound_to(tmp_path: Path) -> None:
    assert usable_cpus(tmp_path / "none") == len(os.sched_getaffinity(0))
