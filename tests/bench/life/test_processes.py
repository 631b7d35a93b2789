"""Processes on a virtual loop: paused, killed, with clocks of their own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from berth_bench.life.processes import Process, current
from berth_bench.life.virtual_loop import START_S, ProcessClock, VirtualClocks, VirtualLoop, run
from berth_sdk.clocks import wall_s

T = TypeVar("T")


def on_the_loop(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    async def life(_: VirtualClocks) -> T:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return await main(loop)

    return run(life, random.Random(0))


def test_paused_process_stands_still_and_then_goes_on_while_others_run() -> None:
    async def main(loop: VirtualLoop) -> list[tuple[str, int]]:
        ticks: list[tuple[str, int]] = []

        async def tick(name: str) -> None:
            while True:
                await asyncio.sleep(1)
                ticks.append((name, round(loop.time())))

        slow, other = Process("slow"), Process("other")
        tasks = [loop.create_task(tick(one.name), context=one.context()) for one in (slow, other)]
        await asyncio.sleep(1.5)
        loop.pause(slow)
        await asyncio.sleep(3)
        loop.resume(slow)
        await asyncio.sleep(2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return ticks

    ticks = on_the_loop(main)
    assert [when for name, when in ticks if name == "other"] == [1, 2, 3, 4, 5, 6]
    # The timer of second 2 is late, by the end of the pause.
    assert [when for name, when in ticks if name == "slow"] == [1, 4, 6]


def test_what_is_ready_waits_too_and_what_is_cancelled_meanwhile_never_runs() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        ran: list[str] = []
        process = Process("p")
        context = process.context()
        loop.call_soon(ran.append, "ready", context=context)
        cancelled = loop.call_soon(ran.append, "cancelled", context=context)
        cancelled_timer = loop.call_later(1, ran.append, "cancelled timer", context=context)
        loop.pause(process)
        loop.call_soon(ran.append, "made while paused", context=context)
        late = loop.call_later(2, ran.append, "timer made while paused", context=context)
        cancelled.cancel()
        cancelled_timer.cancel()
        await asyncio.sleep(1)
        assert ran == []
        loop.resume(process)
        await asyncio.sleep(5)
        assert late.when() == 2
        return ran

    assert on_the_loop(main) == ["ready", "made while paused", "timer made while paused"]


def test_two_processes_pause_in_one_turn_of_the_loop() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        ran: list[str] = []
        one, two = Process("one"), Process("two")
        for process in (one, two):
            loop.call_soon(ran.append, process.name, context=process.context())
        loop.pause(one)
        loop.pause(two)
        await asyncio.sleep(1)
        assert ran == []
        loop.resume(two)
        loop.resume(one)
        await asyncio.sleep(1)
        return ran

    assert on_the_loop(main) == ["two", "one"]


def test_killed_process_does_nothing_more_not_even_at_its_end() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        did: list[str] = []

        async def work() -> None:
            try:
                await asyncio.sleep(10)
            finally:
                asyncio.get_running_loop().call_soon(did.append, "a callback of its end")
                child = asyncio.ensure_future(helper())
                await child
                await asyncio.sleep(1)
                did.append("after a wait at its end")

        async def helper() -> None:
            did.append("a task of its end")

        process = Process("p")
        loop.create_task(work(), context=process.context())
        await asyncio.sleep(1)
        loop.kill(process)
        await asyncio.sleep(100)
        assert asyncio.all_tasks(loop) == {asyncio.current_task()}
        assert loop.timers() == []
        return did

    assert on_the_loop(main) == []


def test_work_of_a_thread_and_tasks_belong_to_the_process_that_began_them() -> None:
    async def main(loop: VirtualLoop) -> list[Process | None]:
        seen: list[Process | None] = []

        async def work() -> None:
            await asyncio.to_thread(lambda: seen.append(current()))
            await asyncio.gather(child(), child())

        async def child() -> None:
            seen.append(current())

        await loop.create_task(work(), context=process.context())
        seen.append(current())
        return seen

    process = Process("p")
    assert on_the_loop(main) == [process, process, process, None]


def test_wall_clock_of_a_process_is_skewed_and_drifts_and_steps() -> None:
    async def main(loop: VirtualLoop) -> None:
        process = Process("p", skew_s=5.0, drift=0.01)
        context = process.context()
        await asyncio.sleep(100)
        assert wall_s() == START_S + 100
        assert context.run(wall_s) == pytest.approx(START_S + 106)
        process.skew_s -= 30
        assert context.run(wall_s) == pytest.approx(START_S + 76)

    on_the_loop(main)


@pytest.mark.parametrize("drift", [-0.0005, 0.0, 0.0003])
def test_timer_of_a_drifting_clock_is_never_early(drift: float) -> None:
    async def life(clocks: VirtualClocks) -> None:
        clock = ProcessClock(clocks, drift)
        for number in range(1, 50):
            when_s = clock.monotonic_s() + number / 7
            came = asyncio.get_running_loop().create_future()
            clock.call_at(when_s, lambda came=came: came.set_result(clock.monotonic_s()))  # type: ignore[misc]
            assert when_s <= await came < when_s + 1e-6

    run(life, random.Random(0))
