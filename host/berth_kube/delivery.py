"""`Delivery`: hands over the watches' changes in order, a few per turn of the event loop.

One per `cluster.KubeCluster`, shared by its informers, so that twenty kinds together take no longer in a turn
than one. Lines are queued unparsed and are parsed when they are handed over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from berth_host.cluster.port import MAX_EVENTS_PER_TURN, MAX_TURN_S
from berth_sdk.clocks import work_s

MAX_WAITING: Final = 2_000
"""The number of queued steps at which `put` waits until half of them have run."""
FIRST_TURN_S: Final = 0.005
"""The longest time, in seconds, that one turn hands over changes of the first lists. Nothing is scheduled
before these, so a longer turn delays nothing, and the start needs fewer turns.
"""

Step = Callable[[Any], Iterator[None] | None]
"""A function that hands over one item. It may return the rest of its work, which yields after each piece; the
steps after it wait until that is done.
"""


class Delivery:
    """A queue of steps that the event loop runs: in long turns until `yield_to_others`, then in short ones.

    The loop reports a step that raises, and runs the following steps.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Step, Any]] = deque()
        self._rest: Iterator[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._turn_is_due = False
        self._is_stopped = False
        self._is_first = True
        self._relieved = asyncio.Event()
        self._relieved.set()

    @property
    def waiting_count(self) -> int:
        """The number of steps that have not run yet."""
        return len(self._waiting)

    async def put(self, step: Step, items: Iterable[Any]) -> None:
        """Queue `step` for each item; return when the queue has room for more."""
        if self._is_stopped:
            return
        self._waiting.extend((step, item) for item in items)
        self._plan_turn()
        if len(self._waiting) >= MAX_WAITING:
            self._relieved.clear()
            await self._relieved.wait()

    async def settled(self) -> None:
        """Wait until all steps queued before have run."""
        if self._is_stopped or not (self._waiting or self._rest is not None):
            return
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((_resolve, done))
        self._plan_turn()
        await done

    def yield_to_others(self) -> None:
        """Hand over changes in short turns from now on, because the first lists are complete."""
        self._is_first = False

    def stop(self) -> None:
        """Drop the queued steps and refuse new ones; wake the callers of `put` and `settled`."""
        self._is_stopped = True
        waiting = list(self._waiting)
        self._waiting.clear()
        self._rest = None
        for step, item in waiting:
            if step is _resolve:
                step(item)
        self._relieved.set()

    def _plan_turn(self) -> None:
        if not self._turn_is_due and (self._waiting or self._rest is not None):
            self._turn_is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        waiting = self._waiting
        most = len(waiting) if self._is_first else min(MAX_EVENTS_PER_TURN, len(waiting))
        ends_s = work_s() + (FIRST_TURN_S if self._is_first else MAX_TURN_S)
        try:
            rest, self._rest = self._rest, None
            for _ in rest or ():
                if work_s() >= ends_s:
                    self._rest = rest
                    return
            for _ in range(most):
                step, item = waiting.popleft()
                self._rest = step(item)
                if self._rest is not None or work_s() >= ends_s:
                    break
        finally:
            # The loop reports a step that raised; the steps after it must still run.
            self._plan_turn()
            if len(waiting) <= MAX_WAITING // 2:
                self._relieved.set()


def _resolve(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
