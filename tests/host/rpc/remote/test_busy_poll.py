"""The loop does not sleep while a call is open, and not for longer than agreed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from berth_host.rpc.remote.busy_poll import BusyPoll, usable_cpus


class Clock:
    """Moves by 1 ms each time that it is read."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return self.reads / 1000


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_loop_turns_while_a_call_is_open(clock: Clock) -> None:
    poll = BusyPoll(2, longest_s=10, clock=clock)
    poll.begin()
    await turns(50)
    assert clock.reads >= 49
    poll.end()
    await turns(2)
    after = clock.reads
    await turns(20)
    assert clock.reads == after


async def test_loop_may_sleep_again_when_an_answer_takes_long(clock: Clock) -> None:
    poll = BusyPoll(2, longest_s=0.005, clock=clock)
    poll.begin()
    await turns(50)
    assert clock.reads == 6  # at the start, and until 5 ms are over


async def test_next_call_starts_anew_after_a_long_one(clock: Clock) -> None:
    poll = BusyPoll(2, longest_s=0.005, clock=clock)
    poll.begin()
    await turns(20)
    poll.end()
    poll.begin()
    await turns(20)
    assert clock.reads == 12


async def test_calls_at_the_same_time_turn_the_loop_once(clock: Clock) -> None:
    poll = BusyPoll(2, longest_s=10, clock=clock)
    for _ in range(3):
        poll.begin()
    await turns(30)
    assert clock.reads <= 3 + 31
    poll.end()
    poll.end()
    before = clock.reads
    await turns(10)
    assert clock.reads >= before + 9  # one is open still


async def test_a_call_that_follows_at_once_does_not_turn_the_loop_twice(clock: Clock) -> None:
    poll = BusyPoll(2, longest_s=10, clock=clock)
    for _ in range(20):
        poll.begin()
        poll.end()
    poll.begin()
    before = clock.reads
    await turns(30)
    assert clock.reads <= before + 31


@pytest.mark.parametrize("cpus", [1, 0.5, 1.9])
async def test_a_single_core_is_left_to_the_plugin(clock: Clock, cpus: float) -> None:
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
