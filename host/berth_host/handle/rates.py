"""How often each plugin may ask its host, and how often a peer may be refused: buckets of tokens.

A plugin that floods the host must not take the loop that schedules. The bucket belongs to the plugin and not
to its attachment: it is no fuller after the plugin has attached anew. Asked by `HandleService` at every call.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from berth_host.model.token_bucket import TokenBucket

CALLS_PER_S: Final = 1000.0
BURST_CALLS: Final = 2000.0
"""A gang of 2000 pods may be released one by one; a call that decides on many counts once."""


class CallRates:
    """One bucket for each plugin that has made a call. Plugin names come from the configuration, so they are
    few.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, plugin: str) -> float:
        """Take a token from the plugin's bucket; see `TokenBucket.take`."""
        bucket = self._buckets.get(plugin)
        if bucket is None:
            bucket = self._buckets[plugin] = TokenBucket(CALLS_PER_S, BURST_CALLS, self._clock)
        return bucket.take()


REFUSED_PER_S: Final = 10.0
BURST_REFUSED: Final = 50.0
MAX_HELD: Final = 1024
"""Refusals of one peer that wait at the same time."""
MAX_PEERS: Final = 1024
MIN_HOLD_S: Final = 0.001
"""Seconds. A shorter wait could round to zero, and the client would retry at once."""


class RefusedRates:
    """Slows a peer whose calls are refused: a refusal costs the loop as much as an answer.

    A peer is an address without its port, and everybody at the Unix sockets together. Calls that are not
    refused never wait here.
    """

    def __init__(
        self, clock: Callable[[], float], sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        """`clock`: monotonic seconds."""
        self._clock = clock
        self._sleep = sleep
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._held: Counter[str] = Counter()

    async def hold(self, peer: str) -> None:
        """Wait until this peer may be refused once more, or return at once where MAX_HELD refusals wait."""
        peer = peer.rsplit(":", 1)[0] if peer.startswith("ipv") else "unix"
        bucket = self._buckets.pop(peer, None) or TokenBucket(REFUSED_PER_S, BURST_REFUSED, self._clock)
        self._buckets[peer] = bucket
        if len(self._buckets) > MAX_PEERS:
            self._buckets.popitem(last=False)
        if self._held[peer] >= MAX_HELD:
            return
        self._held[peer] += 1
        try:
            while (wait_s := bucket.take()) > 0:
                await self._sleep(max(wait_s, MIN_HOLD_S) * self._held[peer])
        finally:
            self._held[peer] -= 1
            if not self._held[peer]:
                del self._held[peer]
