"""`close` of a plugin instance, in a thread that may be left behind. The host and the servers use it.

A plain `close` may hang, and nothing can interrupt it. So it runs in a daemon thread, which does not keep the
process from ending.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from typing import Final, TypeAlias

from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.runtime.raised import raised_text

CLOSE_S: Final = 5.0
"""Seconds that a host waits for `close`."""
Closing: TypeAlias = Future[None]
"""A `close` under way. Ends with the exception of `close`, if any."""


def begin_close(
    runtime: PluginRuntime,
    wait: Callable[[Awaitable[None]], None],
    before: Callable[[], object] | None = None,
) -> Closing:
    """Call `close` in a thread of its own.

    `wait`: waits there for an answer that has to be awaited. `before`: called there first, to wait for the
    last calls of the instance; None: they have ended.
    """
    closing: Closing = Future()
    closing.set_running_or_notify_cancel()  # so that nobody cancels it

    def run() -> None:
        try:
            if before is not None:
                before()
            answer = runtime.close()
            if answer is not None:
                wait(answer)
            closing.set_result(None)
        except BaseException as err:  # noqa: BLE001  # a plugin may raise anything
            closing.set_exception(err)

    threading.Thread(target=run, name=f"berth-close-{runtime.descriptor.name}", daemon=True).start()
    return closing


def close_unused(runtimes: Iterable[PluginRuntime]) -> dict[PluginRuntime, Closing]:
    """Close instances that were made and never called, and wait CLOSE_S for all of them together.

    An `async def close` runs on an event loop of its own.
    """
    closings = {
        runtime: begin_close(runtime, lambda answer: asyncio.run(awaited(answer)))
        for runtime in runtimes
        if runtime.has_close
    }
    concurrent.futures.wait(closings.values(), CLOSE_S)
    return closings


async def awaited(answer: Awaitable[None]) -> None:
    """Wait for an answer, as a coroutine, which event loops want."""
    await answer


def trouble_of(closing: Closing, waited_s: float) -> str:
    """Return what went wrong, after `waited_s` seconds; empty for a `close` that has ended well."""
    if not closing.done():
        return f"close has not ended after {waited_s:g} s"
    err = closing.exception()
    return "" if err is None else f"close raised {raised_text(err)}"
