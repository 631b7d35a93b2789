"""Errors that no code handled: the event loop reports them, and a broken invariant among them ends the host.

Callbacks of timers, of watches and of ended tasks raise into the loop, which reports and goes on. Made by
`Host`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from berth_host.errors.state import InvariantError
from berth_host.model.fate import Fate

Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


class LoopErrors:
    """In front of the loop's own handler, which hears of everything as before, until `stop`."""

    def __init__(self, fate: Fate) -> None:
        self._fate = fate
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before: Handler | None = None

    def listen(self) -> None:
        """Hear of errors in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._before = self._loop.get_exception_handler()
        self._loop.set_exception_handler(self._told)

    def stop(self) -> None:
        """Harmless when it never listened."""
        loop, self._loop = self._loop, None
        if loop is not None and loop.get_exception_handler() == self._told:
            loop.set_exception_handler(self._before)

    def _told(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, InvariantError):
            self._fate.fail(error)
        if self._before is not None:
            self._before(loop, context)
        else:
            loop.default_exception_handler(context)
