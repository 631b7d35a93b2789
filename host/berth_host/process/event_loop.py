"""The event loop of the commands: uvloop's if uvloop is installed, else asyncio's own.

uvloop needs a correction for sockets that its caller connected (`create_connection(sock=...)`, as aiohttp
does). If the server resets such a connection at the start of its TLS handshake, uvloop closes the descriptor
and leaves it in the socket object, which closes the same number once more when it is collected. By then the
number belongs to another connection, and libuv aborts the process because it cannot watch it (uvloop 0.23,
libuv 1.52: EBADF in `uv__epoll_ctl_flush`). The death of an API server resets many connections at once.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], *, on_uvloop: bool = True) -> T:
    """Run `main` as `asyncio.run` does, on uvloop's loop if it is wanted and installed."""
    with asyncio.Runner(loop_factory=loop_factory() if on_uvloop else None) as runner:
        return runner.run(main)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of uvloop's loop; None if uvloop is not installed."""
    try:
        # By name, as the extra `berth-host[uvloop]` may not be installed.
        uvloop: Any = import_module("uvloop")
    except ImportError:
        return None
    return _corrected(uvloop.Loop)


@cache
def _corrected(base: Any) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return a subclass of uvloop's `Loop` that closes no descriptor twice."""

    class Loop(base):  # type: ignore[misc]  # a class of an optional package
        async def create_connection(
            self, *args: Any, sock: socket.socket | None = None, **options: Any
        ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
            try:
                made: tuple[asyncio.BaseTransport, asyncio.BaseProtocol] = await super().create_connection(
                    *args, sock=sock, **options
                )
                return made
            finally:
                # libuv owns the descriptor from here on, and closes it, also after an error.
                if sock is not None:
                    sock.detach()

    return Loop
