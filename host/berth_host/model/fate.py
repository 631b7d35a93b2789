"""The end of a whole host: the first broken invariant, reported by the code that found it.

Reported by the scheduling loop, the binding cycles, the event handlers and the loop's handler of uncaught
errors; awaited by the process, which ends with exit code 1 and the error.
"""

from __future__ import annotations

import asyncio

from berth_host.log import get_logger

log = get_logger()


class Fate:
    """Undecided until `fail`; the first error counts."""

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self._decided = asyncio.Event()

    @property
    def error(self) -> BaseException | None:
        """The error that ended the host; None while it is well."""
        return self._error

    def fail(self, error: BaseException) -> None:
        """The host cannot go on."""
        if self._error is None:
            self._error = error
            # A second Ctrl-C, where a plugin in process holds the loop, is no fault to look into.
            if not isinstance(error, KeyboardInterrupt):
                log.error("host.failed", error=str(error), exc_info=error)
            self._decided.set()

    async def wait(self) -> BaseException:
        """Wait for the error that ends the host."""
        while self._error is None:
            await self._decided.wait()
        return self._error
