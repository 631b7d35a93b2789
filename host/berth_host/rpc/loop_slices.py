"""`LoopSlices`: splits long work on the asyncio loop into short steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from berth_sdk.clocks import work_s

T = TypeVar("T")
R = TypeVar("R")
STEP_S: Final = 0.000_1
"""The seconds after which other tasks may run. A step may take longer by one piece of the work."""


class LoopSlices:
    """The pace of one piece of long work, made when the work begins. The worker calls `step` after each
    piece.
    """

    __slots__ = ("_began_s",)

    def __init__(self) -> None:
        self._began_s = work_s()

    async def step(self) -> None:
        """Let other tasks run if this step has lasted long enough."""
        if work_s() - self._began_s >= STEP_S:
            await self.rest()

    async def rest(self) -> None:
        """Let other tasks run now."""
        await asyncio.sleep(0)
        self._began_s = work_s()


async def each(items: Iterable[T], do: Callable[[T], R]) -> list[R]:
    """Return the result of `do` for each item, in order, without blocking the loop for long."""
    pace, results = LoopSlices(), []
    for item in items:
        results.append(do(item))
        await pace.step()
    return results
