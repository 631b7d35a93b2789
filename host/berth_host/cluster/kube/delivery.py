"""`Delivery`: the watches' changes, handed on a little per turn of the loop, in order.

One per `cluster.KubeCluster`, shared by its informers, so that twenty kinds together take no more of a turn
than one. Lines wait as they came and are parsed in their turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from berth_host.cluster.port import MAX_EVENTS_PER_TURN, MAX_TURN_S

MAX_WAITING: Final = 2_000
"""From here on a writer waits until half of it is gone: the rest waits at the server."""

Step = Callable[[Any], None]


class Delivery:
    """A queue of steps, run by the loop. A step that raises is reported by the loop, and the next follow."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Step, Any]] = deque()
        self._loop = asyncio.get_running_loop()
        self._turn_is_due = False
        self._is_stopped = False
        self._relieved = asyncio.Event()
        self._relieved.set()

    @property
    def waiting_count(self) -> int:
        """Steps that were not run yet."""
        return len(self._waiting)

    async def put(self, step: Step, items: Iterable[Any]) -> None:
        """Run `step` for each item, later; returns when there is room for more."""
        if self._is_stopped:
            return
        self._waiting.extend((step, item) for item in items)
        self._plan_turn()
        if len(self._waiting) >= MAX_WAITING:
            self._relieved.clear()
            await self._relieved.wait()

    async def settled(self) -> None:
        """Return once everything that was put in before was run."""
        if self._is_stopped or not self._waiting:
            return
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((_resolve, done))
        self._plan_turn()
        await done

    def stop(self) -> None:
        """Run nothing any more."""
        self._is_stopped = True
        waiting = list(self._waiting)
        self._waiting.clear()
        for step, item in waiting:
            if step is _resolve:
                step(item)
        self._relieved.set()

    def _plan_turn(self) -> None:
        if not self._turn_is_due and self._waiting:
            self._turn_is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        waiting = self._waiting
        ends_s = time.perf_counter() + MAX_TURN_S
        try:
            for _ in range(min(MAX_EVENTS_PER_TURN, len(waiting))):
                step, item = waiting.popleft()
                step(item)
                if time.perf_counter() >= ends_s:
                    break
        finally:
            # A step that raised is lost, and the loop tells of it; the others still come.
            self._plan_turn()
            if len(waiting) <= MAX_WAITING // 2:
                self._relieved.set()


def _resolve(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
