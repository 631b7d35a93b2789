"""How tests wait for what they cannot move themselves: long enough that only a hang is too slow.

Used wherever a thread, another process or the network is part of a test; everything else has a clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 180.0
"""How long a test waits for what must come. Time is not the point; a busy machine needs a minute to start a
process.
"""


async def until(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Wait until something outside of this process has had its effect."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # another process will not set our event
            await asyncio.sleep(0.01)


def wait_until(
    condition: Callable[[], object], what: str | Callable[[], str], timeout_s: float = PATIENCE_S
) -> None:
    """The same for a test without a loop. Raises TimeoutError that says `what`."""
    ends_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > ends_s:
            raise TimeoutError(what if isinstance(what, str) else what())
        time.sleep(0.03)
