"""`ReserveGate`: keeps Reserve and Permit calls to an instance apart from lists of live cycles.

A Reserve under way is in no list yet, so the instance would at once give back what it has just reserved. So a
list waits for open calls, and new calls wait for the list. There is one gate for each plugin of an instance,
shared by its transports (Reserve and Permit) and `attach` (Reconcile).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class ReserveGate:
    """The gate of one plugin at one instance.

    open -a list is due-> closed to new calls -open calls have ended-> list is sent -> open
    """

    def __init__(self) -> None:
        self._calls = self._lists = 0
        self._open, self._idle = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._idle.set()
        self._listing = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """True while a call may begin."""
        return not self._lists

    async def opened(self) -> None:
        """Wait until a call may begin, in this turn of the loop."""
        while self._lists:
            await self._open.wait()

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Count a Reserve or Permit as open during the block."""
        self._calls += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    @asynccontextmanager
    async def listing(self) -> AsyncIterator[None]:
        """Close the gate while a list is made, sent and answered."""
        self._lists += 1
        self._open.clear()
        try:
            async with self._listing:
                while self._calls:
                    await self._idle.wait()
                yield
        finally:
            self._lists -= 1
            if not self._lists:
                self._open.set()
