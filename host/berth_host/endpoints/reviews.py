"""`Reviews`: the reviews of callers that wait for the API server, and the limits on them.

Anybody can send made-up tokens and paths, and each costs the API server a review. Strangers therefore take
turns, by peer, and few of their reviews are under way; callers who were known lately pass by them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from berth_sdk.clocks import monotonic_s

from berth_host.errors.endpoints import BusyError
from berth_host.listening.turn_queue import TurnQueue

V = TypeVar("V")
STRANGERS_PER_S: Final = 20.0
BURST_STRANGERS: Final = 40.0
MOST_OF_STRANGERS: Final = 128
"""Reviews of strangers under way. The rate bounds the API server's load; reviews that it leaves unanswered
must not keep out the others.
"""
MOST_OF_KNOWN: Final = 32
"""Reviews under way of callers who were known lately."""
MOST_WAITING: Final = 64
"""Strangers that wait for a review."""
WAIT_S: Final = 5.0
"""The most seconds that a stranger waits for a turn."""
_BUSY: Final = "too many callers wait for a review of their token or their rights: ask again in some seconds"


class Reviews(Generic[V]):
    """The reviews of one kind, on the running event loop. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic_s) -> None:
        self._turns = TurnQueue(STRANGERS_PER_S, BURST_STRANGERS, clock)
        self._strangers = asyncio.Semaphore(MOST_OF_STRANGERS)
        self._known = asyncio.Semaphore(MOST_OF_KNOWN)
        self._waiting_count = 0
        self._asked: dict[Hashable, asyncio.Task[V]] = {}

    async def ask(
        self, key: Hashable, review: Callable[[], Awaitable[V]], *, peer: str, is_stranger: bool
    ) -> V:
        """Return the answer of `review`; callers with an equal `key` share one. Raises BusyError, and the
        errors of `review`.
        """
        asked = self._asked.get(key)
        if asked is None:
            if is_stranger and self._waiting_count >= MOST_WAITING:
                raise BusyError(_BUSY)
            # Counted before the task begins, as many may come in one turn of the loop.
            self._waiting_count += is_stranger
            asked = asyncio.ensure_future(
                self._of_stranger(review, peer) if is_stranger else self._of_known(review)
            )
            self._asked[key] = asked
            asked.add_done_callback(lambda done: self._end(key, done))
        # A caller that leaves must not end the review of others.
        return await asyncio.shield(asked)

    async def _of_known(self, review: Callable[[], Awaitable[V]]) -> V:
        async with self._known:
            return await review()

    async def _of_stranger(self, review: Callable[[], Awaitable[V]], peer: str) -> V:
        try:
            async with asyncio.timeout(WAIT_S):
                await self._turns.take(peer)
                await self._strangers.acquire()
        except TimeoutError as err:
            raise BusyError(_BUSY) from err
        finally:
            self._waiting_count -= 1
        try:
            return await review()
        finally:
            self._strangers.release()

    def _end(self, key: Hashable, done: asyncio.Task[V]) -> None:
        del self._asked[key]
        if not done.cancelled():
            done.exception()  # seen, where every caller has left
