"""Wakes the scheduler's loop when the queue has a pod for it."""

from __future__ import annotations

import asyncio


class Readiness:
    """`wait` returns at the next `notify`; a later `wait` does not see it."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def is_awaited(self) -> bool:
        """Whether a task waits."""
        return bool(self._waiters)

    def notify(self) -> None:
        """Wake all waiters."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Until the next `notify`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter
