"""A coroutine is run up to its first wait, and awaited later."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from berth_sdk.runtime.answers import begun


async def waits_for(future: asyncio.Future[int], again: asyncio.Future[int] | None = None) -> int:
    return await future + (0 if again is None else await again)


def begin(coroutine: Any) -> Any:
    return begun(coroutine)


async def test_answer_that_has_come_since_needs_no_turn_of_the_loop() -> None:
    future: asyncio.Future[int] = asyncio.Future()
    rest = begin(waits_for(future))
    future.set_result(3)
    turned: list[int] = []
    asyncio.get_running_loop().call_soon(turned.append, 1)
    assert await rest == 3
    assert not turned


async def test_answer_that_comes_later_is_awaited() -> None:
    first: asyncio.Future[int] = asyncio.Future()
    second: asyncio.Future[int] = asyncio.Future()
    rest = begin(waits_for(first, second))
    first.set_result(3)
    asyncio.get_running_loop().call_soon(second.set_result, 4)
    assert await rest == 7


async def test_failure_that_came_since_is_raised() -> None:
    future: asyncio.Future[int] = asyncio.Future()
    rest = begin(waits_for(future))
    future.set_exception(ValueError("late"))
    with pytest.raises(ValueError, match="late"):
        await rest


async def test_answer_that_never_waits_is_its_own_value() -> None:
    future: asyncio.Future[int] = asyncio.Future()
    future.set_result(3)
    assert begin(waits_for(future)) == 3
