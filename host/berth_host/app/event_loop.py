"""The event loop that the commands run on: uvloop's where it is installed, else asyncio's own.

`berth scheduler` has asyncio's own in any case. Its HTTP client closes sockets whose connect was cut off, and
uvloop may still watch them: where many connects fail at once, as when the API server dies, libuv then aborts
the process (seen with uvloop 0.23, about once in fifteen times).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


def run_dialling(main: Coroutine[Any, Any, T]) -> T:
    """As `run`, for a process that lives on connections to an API server: on asyncio's own loop."""
    return asyncio.run(main)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory of the loop; None: asyncio's default."""
    try:
        # By name, as it is an extra (`berth-host[uvloop]`) that need not be there.
        uvloop: Any = import_module("uvloop")
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
