"""The virtual loop: time moves when nothing can run, and nothing outside decides an order."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from berth_bench.life.processes import Process
from berth_bench.life.virtual_loop import (
    START_S,
    ForeignThreadError,
    SpinningError,
    StuckError,
    VirtualClocks,
    VirtualLoop,
    run,
)
from berth_sdk.clocks import monotonic_s, wall_s, work_s


def on_the_loop(main: Callable[[], Awaitable[Any]], seed: int = 0, **settings: float) -> Any:
    async def run_main(_: VirtualClocks) -> Any:
        return await main()

    return run(run_main, random.Random(seed), **settings)


def test_days_of_sleep_take_no_time_and_end_at_their_moment() -> None:
    async def main() -> list[tuple[str, float]]:
        seen = []

        async def sleeper(name: str, duration_s: float) -> None:
            await asyncio.sleep(duration_s)
            seen.append((name, asyncio.get_running_loop().time()))

        await asyncio.gather(sleeper("long", 30 * 86400.0), sleeper("short", 0.25))
        return seen

    began_s = time.monotonic()
    assert on_the_loop(main) == [("short", 0.25), ("long", 30 * 86400.0)]
    assert time.monotonic() - began_s < 10


def test_time_stands_still_while_a_task_can_run() -> None:
    async def main() -> float:
        ready = asyncio.Event()
        asyncio.get_running_loop().call_later(1.0, ready.set)
        for _ in range(1000):
            await asyncio.sleep(0)
        before_s = monotonic_s()
        await ready.wait()
        return before_s

    assert on_the_loop(main) == 0.0


def test_timeouts_and_the_clocks_of_the_process_are_virtual() -> None:
    async def main() -> tuple[float, float, float]:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.get_running_loop().create_future()
        return monotonic_s(), wall_s(), work_s()

    assert on_the_loop(main, work_step_s=0.5) == (3600.0, START_S + 3600.0, 0.5)
    assert abs(wall_s() - time.time()) < 60


def test_wait_that_nothing_can_end_is_an_error() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StuckError, match="waits for ever"):
        on_the_loop(main)


def test_tasks_that_wake_each_other_without_end_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth_bench.life.virtual_loop.MOST_TURNS", 100)

    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(SpinningError, match=r"100 turns of the loop at 0\.000000 s"):
        on_the_loop(main)


def test_work_for_threads_runs_on_the_loop_in_an_order_that_the_seed_draws() -> None:
    async def main() -> tuple[list[int], list[int]]:
        did: list[int] = []

        def work(number: int) -> int:
            did.append(number)
            assert threading.current_thread() is threading.main_thread()
            return number

        answers = await asyncio.gather(*(asyncio.to_thread(work, number) for number in range(8)))
        return did, answers

    orders = [on_the_loop(main, seed, thread_s=1.0) for seed in (1, 1, 2)]
    assert orders[0] == orders[1]
    assert orders[0][0] != orders[2][0]
    assert all(answers == list(range(8)) for _, answers in orders)


def test_error_of_work_for_a_thread_reaches_its_caller() -> None:
    async def main() -> None:
        await asyncio.to_thread(int, "x")

    with pytest.raises(ValueError, match="invalid literal"):
        on_the_loop(main)


def test_cancelled_work_that_has_not_begun_never_does() -> None:
    async def main() -> list[int]:
        did: list[int] = []
        waiting = asyncio.get_running_loop().run_in_executor(None, did.append, 1)
        waiting.cancel()
        await asyncio.sleep(10)
        return did

    assert on_the_loop(main, thread_s=1.0) == []


def test_call_from_another_thread_is_an_error() -> None:
    async def main() -> list[ForeignThreadError]:
        loop = asyncio.get_running_loop()
        found: list[ForeignThreadError] = []

        def call() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except ForeignThreadError as err:
                found.append(err)

        thread = threading.Thread(target=call, name="stranger")
        thread.start()
        thread.join()
        return found

    [error] = on_the_loop(main)
    assert "thread stranger calls" in str(error)


def test_sets_of_tasks_are_in_the_order_of_their_creation() -> None:
    async def main() -> list[str]:
        async def nothing() -> None:
            await asyncio.sleep(1)

        tasks = {asyncio.create_task(nothing(), name=str(number)) for number in range(20)}
        order = [task.get_name() for task in tasks]
        await asyncio.wait(tasks)
        return order

    first = on_the_loop(main)
    assert first == on_the_loop(main)
    assert first == sorted(first, key=int)


class TwoBytes:
    """One end of a connection that has two bytes, and room for one."""

    is_readable = True
    is_writable = True

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.seen: list[str] = []
        self.number = loop.open_file(self)

    def read(self) -> None:
        self.seen.append("read")
        self.is_readable = self.seen.count("read") < 2

    def write(self, what: str) -> None:
        self.seen.append(what)
        self.is_writable = False


def test_simulated_connection_is_read_while_there_is_something_to_read() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        end = TwoBytes(loop)
        loop.add_reader(end.number, end.read)
        loop.add_writer(end.number, end.write, "written")
        await asyncio.sleep(1.0)
        assert loop.remove_reader(end.number)
        assert not loop.remove_reader(end.number)
        end.is_readable = end.is_writable = True
        loop.file_changed(end.number)
        await asyncio.sleep(1.0)
        loop.close_file(end.number)
        assert not loop.remove_writer(end.number)
        return end.seen

    assert on_the_loop(main) == ["read", "written", "read", "written"]


def test_no_timer_comes_before_its_moment() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(5.0)
        early: list[float] = []

        def called(when_s: float) -> None:
            if loop.time() < when_s:
                early.append(when_s - loop.time())

        for parts in range(1, 20):
            when_s = loop.time() + parts * 1e-10
            loop.call_at(when_s, called, when_s)
        for _ in range(5):
            await asyncio.sleep(0)
        await asyncio.sleep(1.0)
        return early

    assert on_the_loop(main) == []


def test_error_of_a_callback_or_a_task_that_nothing_reads_is_kept_unless_its_process_was_killed() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        alive, dead = Process("alive"), Process("dead")

        def divide() -> float:
            return 1 / 0

        async def work() -> None:
            divide()

        loop.call_soon(divide)
        tasks = [loop.create_task(work(), context=process.context()) for process in (alive, dead, alive)]
        dead.is_dead = True
        await asyncio.sleep(1)
        tasks.clear()
        return loop.unhandled

    unread = "_Task exception was never retrieved: ZeroDivisionError: division by zero"
    assert on_the_loop(main) == [
        "Exception in callback: ZeroDivisionError: division by zero",
        unread,
        unread,
    ]
