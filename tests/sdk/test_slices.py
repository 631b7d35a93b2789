"""Long work of a plain method gives way after each slice, and short work is answered at once."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest
from berth_sdk.slices import (
    DEADLINE,
    PIECES,
    SLICE_S,
    Slices,
    Work,
    at_once,
    in_slices,
    without_deadline,
)
from support.waiting import PATIENCE_S


class Clock:
    """A clock that pieces of work move on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def work(clock: Clock, pieces: int, piece_s: float) -> Work[int]:
    for _ in range(pieces):
        clock.now_s += piece_s
        yield
    return pieces


def turns_of(slices: Slices[int]) -> tuple[int, int]:
    """Return the turns of the event loop that the rest of the work takes, and its result."""
    waiting: Generator[object, object, int] = slices.__await__()
    turns = 0
    while True:
        try:
            next(waiting)
        except StopIteration as end:
            return turns, end.value
        turns += 1


def test_few_pieces_are_never_divided() -> None:
    clock = Clock()
    assert in_slices(work(clock, PIECES - 1, 10.0), clock=clock) == PIECES - 1


def test_short_work_is_answered_at_once() -> None:
    clock = Clock()
    assert in_slices(work(clock, 100 * PIECES, SLICE_S / 1000 / PIECES), clock=clock) == 100 * PIECES


def test_long_work_gives_way_after_each_slice() -> None:
    clock = Clock()
    answer = in_slices(work(clock, 100 * PIECES, SLICE_S / PIECES), clock=clock)
    assert isinstance(answer, Slices)
    turns, result = turns_of(answer)
    assert result == 100 * PIECES
    assert 40 <= turns <= 100  # one or two batches of pieces in a slice


def test_others_run_between_two_slices() -> None:
    clock = Clock()
    seen: list[int] = []

    async def other() -> None:
        while True:
            seen.append(1)
            await asyncio.sleep(0)

    async def run() -> int:
        task = asyncio.create_task(other())
        answer = in_slices(work(clock, 10 * PIECES, SLICE_S), clock=clock)
        assert isinstance(answer, Slices)
        result = await answer
        task.cancel()
        return result

    assert asyncio.run(run()) == 10 * PIECES
    assert len(seen) >= 8


def test_an_error_of_the_work_reaches_the_caller() -> None:
    def fails(pieces: int) -> Work[int]:
        for _ in range(pieces):
            yield
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        in_slices(fails(3))
    answer = in_slices(fails(100), slice_s=-1.0)
    assert isinstance(answer, Slices)
    with pytest.raises(ValueError, match="boom"):
        turns_of(answer)
    with pytest.raises(ValueError, match="boom"):
        at_once(fails(100))


async def test_deadline_stands_still_while_the_host_works_for_the_call() -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE_S) as deadline:
        token = DEADLINE.set(deadline)
        before_s = deadline.when()
        async with without_deadline():
            assert deadline.when() is None
        DEADLINE.reset(token)
        after_s = deadline.when()
    assert before_s is not None
    assert after_s is not None
    # It goes on where it stood.
    assert before_s < after_s <= loop.time() + 3600


async def test_call_without_a_deadline_gets_none_from_work_for_it() -> None:
    async with without_deadline():
        assert DEADLINE.get() is None
