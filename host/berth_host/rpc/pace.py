"""`Pace`: long work on the loop in short steps."""

from __future__ import annotations

import asyncio
import time
from typing import Final

STEP_S: Final = 0.000_1
"""After so long others get their turn; a step is longer by at most one piece of the work."""


class Pace:
    """Made when the work begins; `step` after each piece of it."""

    __slots__ = ("_began_s",)

    def __init__(self) -> None:
        self._began_s = time.perf_counter()

    async def step(self) -> None:
        """Let others run if this step has lasted long enough."""
        if time.perf_counter() - self._began_s >= STEP_S:
            await self.rest()

    async def rest(self) -> None:
        """Let others run now."""
        await asyncio.sleep(0)
        self._began_s = time.perf_counter()
