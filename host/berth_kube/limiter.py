"""Limits on requests: `RequestRate` on those per second, `Turns` on those under way.

`request_backoff`: the waits after requests that failed. Used by `client`, `informer` and `events`.
Source: client-go `util/flowcontrol/throttle.go` (qps and burst of clientConnection), v1.36;
`tools/cache/reflector.go`, v1.36.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Final

from berth_host.model.backoff import Backoff
from berth_host.model.clock import Clock, sleep
from berth_host.model.token_bucket import TokenBucket

# Lower than client-go's, so that a host catches up soon after its API server is back.
_FIRST_S: Final = 0.1
_LONGEST_S: Final = 10.0


def request_backoff(rng: random.Random) -> Backoff:
    """Return the waits after failed requests. Half of each is random: twenty watches do not retry at once."""
    return Backoff(_FIRST_S, _LONGEST_S, least_part=0.5, rng=rng)


class RequestRate:
    """A rate limit that serves callers in their order. A negative `qps` means no limit."""

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        self._clock = clock
        self.is_on = qps >= 0
        """False if there is no limit; `take` then returns at once."""
        # 0 means unset, for which client-go uses 5; a burst below 1 would block every request.
        self._bucket = TokenBucket(qps or 5.0, float(max(burst, 1)), clock.monotonic_s)

    async def take(self) -> float:
        """Wait for a turn; return the time waited, in seconds."""
        wait_s = self._bucket.take_ahead() if self.is_on else 0.0
        if wait_s > 0.0:
            try:
                await sleep(self._clock, wait_s)
            except asyncio.CancelledError:
                self._bucket.give_back()
                raise
        return wait_s


class Turns:
    """A limit on what is under way, which serves callers in their order.

    Like asyncio.Semaphore, but taking a free turn costs no call of a coroutine.
    """

    def __init__(self, count: int) -> None:
        self._free_count = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_free(self) -> bool:
        """Take a turn and return True if one is free and nobody waits for it."""
        if self._free_count > 0 and not self._waiting:
            self._free_count -= 1
            return True
        return False

    async def take(self) -> None:
        """Wait for a turn."""
        if self.take_free():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.give_back()  # It was handed over at the same moment.
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def give_back(self) -> None:
        """End a turn: hand it to the first caller that waits."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free_count += 1
