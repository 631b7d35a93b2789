"""`notify` ends all waits that began before it, and no later one."""

from __future__ import annotations

import asyncio

import pytest
from berth_host.queue.readiness import Readiness


async def test_all_waiters_are_woken_once() -> None:
    ready = Readiness()
    waiting = [asyncio.ensure_future(ready.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert ready.is_awaited
    assert not any(waiter.done() for waiter in waiting)
    ready.notify()
    assert not ready.is_awaited
    await asyncio.gather(*waiting)


async def test_a_later_wait_does_not_see_an_earlier_notify() -> None:
    ready = Readiness()
    ready.notify()
    waiter = asyncio.ensure_future(ready.wait())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiter.done()
    ready.notify()
    await waiter


async def test_a_waiter_that_was_cancelled_does_not_keep_the_others_from_waking() -> None:
    ready = Readiness()
    first, second = (asyncio.ensure_future(ready.wait()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    ready.notify()
    await second
