"""The first internal error of a host, after which the host stops.

The scheduling loop, the binding cycles, the event handlers and `LoopErrors` report it. The process waits for
it, and ends with exit code 1 and the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from berth_host.errors.state import InvariantError
from berth_host.log import get_logger

log = get_logger()
Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


class InternalError:
    """The error that ended one host; empty until `fail`. Only the first error is kept."""

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self._decided = asyncio.Event()

    @property
    def error(self) -> BaseException | None:
        """The error that ended the host; None while the host works."""
        return self._error

    def fail(self, error: BaseException) -> None:
        """Record the error and log it; wake everyone in `wait`."""
        if self._error is None:
            self._error = error
            # A second Ctrl-C, while an in-process plugin blocks the loop, is no defect to report.
            if not isinstance(error, KeyboardInterrupt):
                log.error("host.failed", error=str(error), exc_info=error)
            self._decided.set()

    async def wait(self) -> BaseException:
        """Wait for the error that ends the host."""
        while self._error is None:
            await self._decided.wait()
        return self._error


class LoopErrors:
    """The event loop's handler of exceptions that no code handled, such as those of timers and ended tasks.

    An InvariantError ends the host. Every exception also goes to the handler that the loop had before.
    """

    def __init__(self, internal_error: InternalError) -> None:
        self._internal_error = internal_error
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before: Handler | None = None

    def listen(self) -> None:
        """Become the handler of the running loop."""
        self._loop = asyncio.get_running_loop()
        self._before = self._loop.get_exception_handler()
        self._loop.set_exception_handler(self._handle)

    def stop(self) -> None:
        """Give the loop its earlier handler back. Has no effect without `listen`."""
        loop, self._loop = self._loop, None
        if loop is not None and loop.get_exception_handler() == self._handle:
            loop.set_exception_handler(self._before)

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, InvariantError):
            self._internal_error.fail(error)
        if self._before is not None:
            self._before(loop, context)
        else:
            loop.default_exception_handler(context)
