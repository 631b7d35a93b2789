"""Waiting for tasks ends when the last has gone, also one that came meanwhile, or when the time is over."""

from __future__ import annotations

import asyncio

from berth_host.cycle.wait_for_tasks import all_ended
from support.waiting import PATIENCE_S


def begun(tasks: set[asyncio.Future[None]], gate: asyncio.Event) -> None:
    """Add a task to `tasks` that ends when `gate` is open."""

    async def waits() -> None:
        await gate.wait()

    task = asyncio.ensure_future(waits())
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def test_wait_for_no_task_ends_at_once() -> None:
    assert await all_ended(set(), 0.0)


async def test_wait_includes_tasks_that_start_meanwhile() -> None:
    tasks: set[asyncio.Future[None]] = set()
    first, second = asyncio.Event(), asyncio.Event()
    begun(tasks, first)
    waiting = asyncio.ensure_future(all_ended(tasks, PATIENCE_S))
    await asyncio.sleep(0)
    begun(tasks, second)
    first.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    second.set()
    assert await waiting


async def test_wait_ends_at_its_timeout_with_a_task_that_does_not_end() -> None:
    tasks: set[asyncio.Future[None]] = set()
    gate = asyncio.Event()
    begun(tasks, gate)
    assert not await all_ended(tasks, 0.01)
    assert len(tasks) == 1
    gate.set()
    assert await all_ended(tasks, PATIENCE_S)
