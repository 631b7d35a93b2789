"""Answers that may be awaitable -> a plain value, or one awaitable. `plugin_runtime` uses it.

A plugin's method may be `def` or `async def`. Code that uses its answer is written once, as a generator. The
generator yields each answer that may be awaitable, and gets back the value. `run` needs an event loop only if
an answer has to be awaited.
"""

from __future__ import annotations

import asyncio
from asyncio import isfuture
from collections.abc import Awaitable, Generator
from inspect import isawaitable
from types import CoroutineType
from typing import Any, Final, TypeAlias, TypeGuard, TypeVar

import numpy as np

from berth_sdk import results
from berth_sdk.status import Status, Verdicts

T = TypeVar("T")
Steps: TypeAlias = Generator[Any, Any, T]
# Nearly all answers have these types, and `isawaitable` takes longer than this look-up.
PLAIN: Final = frozenset(
    {
        type(None),
        bool,
        int,
        bytes,
        np.ndarray,
        Status,
        Verdicts,
        results.PreFilterResult,
        results.FilterResult,
        results.PostFilterResult,
        results.PermitResult,
        results.PreFlightResult,
        results.PreBindResult,
        results.ReserveResult,
        results.BindResult,
        results.PodGroupPostFilterResult,
    }
)


def must_wait(answer: T | Awaitable[T]) -> TypeGuard[Awaitable[T]]:
    """Return True if an answer has to be awaited."""
    return type(answer) not in PLAIN and isawaitable(answer)


def begun(answer: T | Awaitable[T]) -> T | Awaitable[T]:
    """Run a coroutine up to its first wait; return its result, or an awaitable of the rest.

    Most coroutines never wait, and then need neither a timer nor a turn of the loop. Returns any other answer
    unchanged.
    """
    if type(answer) is not CoroutineType:
        return answer
    try:
        waits_for = answer.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    return _Rest(answer, waits_for)


class _Rest(Awaitable[T]):
    """The rest of a coroutine that waits. The same task must await it, once."""

    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: CoroutineType[Any, Any, T], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine, waits_for = self._coroutine, self._waits_for
        # The first wait may have ended since the coroutine began: then no turn of the loop is needed.
        done = isfuture(waits_for) and waits_for.done()
        while True:
            try:
                try:
                    came = None if done else (yield waits_for)
                except BaseException as err:  # noqa: BLE001 (a cancellation, most often; the coroutine's to handle)
                    waits_for = coroutine.throw(err)
                else:
                    done = False
                    waits_for = coroutine.send(came)
            except StopIteration as end:
                value: T = end.value
                return value


async def settled(answer: T | Awaitable[T]) -> T:
    """Return the value of an answer, awaited if necessary."""
    if must_wait(answer):
        return await answer
    plain: Any = answer
    return plain  # type: ignore[no-any-return]  # a value that need not be awaited is the answer itself


def run(steps: Steps[T]) -> T | Awaitable[T]:
    """Run `steps` to their end. Returns the result, or an awaitable of it if an answer has to be awaited."""
    value: Any = None
    while True:
        try:
            answer = steps.send(value)
        except StopIteration as end:
            result: T = end.value
            return result
        if must_wait(answer):
            return _wait(steps, answer)
        value = answer


async def _wait(steps: Steps[T], answer: Awaitable[Any]) -> T:
    while True:
        try:
            try:
                value = await answer
            except asyncio.CancelledError:
                steps.close()
                raise
            except Exception as err:  # noqa: BLE001 (handed to the steps, as `yield from` would)
                answer = steps.throw(err)
            else:
                answer = steps.send(value)
            while not must_wait(answer):
                answer = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
