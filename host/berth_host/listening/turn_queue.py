"""`TurnQueue`: turns at a bounded rate, for work that strangers can ask for, such as a TLS handshake.

Peers take turns, so that a peer that asks all the time does not keep out one that asks now and then.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Final, TypeAlias

from berth_sdk.clocks import monotonic_s

from berth_host.model.token_bucket import TokenBucket

RECENT_S: Final = 5.0
"""Seconds for which a peer that had a turn stands behind peers that had none."""
_MOST_RECENT: Final = 1024
_Place: TypeAlias = tuple[int, int, "asyncio.Future[None]"]


class TurnQueue:
    """The queue, on the running event loop. `per_s`, `burst`: turns. `clock`: monotonic seconds."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = monotonic_s) -> None:
        self._bucket = TokenBucket(per_s, burst, clock)
        self._clock = clock
        self._waiting: OrderedDict[str, list[_Place]] = OrderedDict()
        self._recent: OrderedDict[str, float] = OrderedDict()
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self.waiting_count = 0
        """The number of callers that wait."""

    async def take(self, peer: str, order: int = 0) -> None:
        """Wait for a turn. Of one peer's callers, the one with the lowest `order` has the first turn, and of
        equal ones the one that came first.
        """
        if not self._waiting and not self._bucket.take():
            self._note(peer)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (order, next(self._numbers), turn)
        places = self._waiting.get(peer)
        if places is None:
            places = self._waiting[peer] = []
            if self._clock() - self._recent.get(peer, -RECENT_S) >= RECENT_S:
                self._waiting.move_to_end(peer, last=False)
        insort(places, place)
        self.waiting_count += 1
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(peer, place)
            raise

    def _leave(self, peer: str, place: _Place) -> None:
        places = self._waiting.get(peer, [])
        if place in places:
            places.remove(place)
            self.waiting_count -= 1
            if not places:
                del self._waiting[peer]

    def _serve(self) -> None:
        """Give the turns that are due, and come back when the next one is."""
        if self._timer is not None:
            return
        while self._waiting:
            wait_s = self._bucket.take()
            if wait_s > 0:
                self._timer = asyncio.get_running_loop().call_later(wait_s, self._next)
                return
            peer, places = self._waiting.popitem(last=False)
            _, _, turn = places.pop(0)
            self.waiting_count -= 1
            if places:
                self._waiting[peer] = places
            self._note(peer)
            if not turn.done():
                turn.set_result(None)

    def _next(self) -> None:
        self._timer = None
        self._serve()

    def _note(self, peer: str) -> None:
        self._recent.pop(peer, None)
        self._recent[peer] = self._clock()
        if len(self._recent) > _MOST_RECENT:
            self._recent.popitem(last=False)
