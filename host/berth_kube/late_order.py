"""`LateOrder`: the order of one informer's lines where some are read later than those after them.

What comes later about an object counts, although it may be read earlier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from berth_kube.late_reading import LateObject, LateReader


class LateOrder:
    """The late reading of one informer, and the order of its lines: what comes later about an object counts,
    although it may be read earlier.
    """

    def __init__(self, reader: LateReader) -> None:
        self.reader = reader
        self._turn = 0
        self._list_turn = 0
        self._waiting_count = 0
        self._shown: dict[str, int] = {}
        """The turn of the last change of an object, by key, while anything is read late."""
        self._idle = asyncio.Event()
        self._idle.set()

    def next_turn(self) -> int:
        """Return the place of a line, or of a listed object, among all."""
        self._turn += 1
        return self._turn

    def begin_list(self) -> None:
        """Drop what waits: the list has the state of every object."""
        self._list_turn = self.next_turn()

    def is_last(self, turn: int) -> bool:
        """Return True if no line has come after this one."""
        return turn == self._turn

    @property
    def is_idle(self) -> bool:
        """True while nothing is read late, so that no order needs to be known."""
        return not self._waiting_count

    def note(self, turn: int, key: str) -> None:
        """Note the turn of an object's change, if the order needs to be known."""
        if self._waiting_count:
            self._shown[key] = turn

    def is_overtaken(self, turn: int, key: str) -> bool:
        """Return True if a later change of the object, or a later list, was handed over."""
        return turn < self._list_turn or self._shown.get(key, 0) > turn

    def scan(self, steps: Any, size_bytes: int, done: Callable[[Any], None]) -> None:
        """Queue the search for the object in a line."""
        self._begin()
        self.reader.scan(steps, size_bytes, partial(self._end, done))

    def read(self, item: LateObject, done: Callable[[Any], None]) -> None:
        """Queue the reading of an object."""
        self._begin()
        if self.reader.read(item, partial(self._end, done)):
            self._waiting_count -= 1

    async def settled(self, timeout_s: float) -> None:
        """Wait until everything is read, at most `timeout_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()

    def _begin(self) -> None:
        self._waiting_count += 1
        self._idle.clear()

    def _end(self, done: Callable[[Any], None], result: Any) -> None:
        try:
            done(result)
        finally:
            self._waiting_count -= 1
            if not self._waiting_count:
                self._shown.clear()
                self._idle.set()
