"""`Pace`: long work on the loop in short steps."""

from __future__ import annotations

import asyncio
import time
from typing import Final

STEP_S: Final = 0.000_1
"""After this time other tasks get their turn. A step is longer by at most one piece of the work."""


class Pace:
    """Made when the work begins; the worker calls `step` after each piece."""

    __slots__ = ("_began_s",)

    def __init__(self) -> None:
        self._began_s = time.perf_counter()

    async def step(self) -> None:
        """Let other tasks run if this step has lasted long enough."""
        if time.perf_counter() - self._began_s >= STEP_S:
            await self.rest()

    async def rest(self) -> None:
        """Let other tasks run now."""
        await asyncio.sleep(0)
        self._began_s = time.perf_counter()
