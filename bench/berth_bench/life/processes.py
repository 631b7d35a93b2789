"""`Process`: one process among several on a virtual loop, which can pause, and be killed.

A callback belongs to the process in whose context it was made (`current`). A callback without one belongs to
the life itself, which goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final

_CURRENT: Final[ContextVar[Process | None]] = ContextVar("process", default=None)
_MOST_WAITS: Final = 1000


class _KilledError(BaseException):
    """Ends a coroutine of a process that was killed. GeneratorExit would leave some waits unfinished."""


class Process:
    """A process. `machine`: the name of the machine on which it runs.

    `is_paused`: its callbacks wait. `is_dead`: its callbacks never run. `held`: the callbacks that wait, and
    those of a dead process until its coroutines have ended. `skew_s`: the seconds that its wall clock is
    ahead. `drift`: the seconds that its clocks gain in each second.
    """

    def __init__(self, name: str, *, machine: str = "", skew_s: float = 0.0, drift: float = 0.0) -> None:
        self.name = name
        self.machine = machine
        self.skew_s = skew_s
        self.drift = drift
        self.is_paused = False
        self.is_dead = False
        self._is_gone = False
        self.held: list[asyncio.Handle] = []

    def context(self) -> Context:
        """Return a new context, whose callbacks and tasks belong to the process."""
        context = copy_context()
        context.run(_CURRENT.set, self)
        return context

    @property
    def runs(self) -> bool:
        """True if its callbacks run."""
        return not (self.is_paused or self.is_dead)

    def keep(self, handle: asyncio.Handle) -> None:
        """Hold a callback that cannot run; drop that of a process whose coroutines have ended."""
        if not self._is_gone:
            self.held.append(handle)

    def go(self) -> None:
        """Drop all callbacks, now and later."""
        self._is_gone = True
        self.held.clear()


def current() -> Process | None:
    """Return the process whose code runs; None for the life's own."""
    return _CURRENT.get()


def process_of(context: Context | None) -> Process | None:
    """Return the process that a context belongs to. None: the current context."""
    return _CURRENT.get() if context is None else context.get(_CURRENT)


def end_coroutine(process: Process, main: Coroutine[Any, Any, Any]) -> None:
    """End a coroutine of a dead process where it waits.

    What it does at its end is without effect: its callbacks are dropped, and its connections are lost. Where
    it waits once more at its end, it is ended there, too.
    """
    context = process.context()
    with suppress(BaseException):
        for _ in range(_MOST_WAITS):
            context.run(main.throw, _KilledError())
    with suppress(RuntimeError):  # the coroutine waits again, whatever is thrown into it
        main.close()


def is_of(process: Process, handle: asyncio.Handle) -> bool:
    """Return True if a callback belongs to a process."""
    return process_of(handle._context) is process  # type: ignore[attr-defined]  # of every handle
