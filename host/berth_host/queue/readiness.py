"""`Readiness`: wakes the scheduling loop when the queue has a pod."""

from __future__ import annotations

import asyncio


class Readiness:
    """A condition without a lock: `notify` wakes all tasks that wait at that moment, and no later ones."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def is_awaited(self) -> bool:
        """True if a task waits."""
        return bool(self._waiters)

    def notify(self) -> None:
        """Wake all waiters."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until the next `notify`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter
