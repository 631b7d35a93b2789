"""The event loop of the commands: uvloop's if uvloop is installed, else asyncio's own.

`berth scheduler` always uses asyncio's own. Its HTTP client closes sockets whose connect was interrupted, and
uvloop may still watch them. If many connects fail at once, as when the API server dies, libuv then aborts the
process (seen with uvloop 0.23, about once in fifteen times).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` as `asyncio.run` does, on uvloop's loop if there is one."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


def run_dialling(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on asyncio's own loop, for a process with many connections to an API server."""
    return asyncio.run(main)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of the loop; None: asyncio's default."""
    try:
        # By name, as the extra `berth-host[uvloop]` may not be installed.
        uvloop: Any = import_module("uvloop")
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
