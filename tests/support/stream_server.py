"""A server of plain byte streams for tests: no connection outlives it, nor one that was only just accepted.

async with stream_server(talk) as address: ...
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

Talk: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def stream_server(talk: Talk, path: Path | None = None) -> AsyncIterator[str]:
    """At a Unix socket, or at a free port of loopback; its address. `talk`: with one peer, which may be gone;
    the connection ends with it.
    """
    talking: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # No coroutine: a task that is cancelled before it begins would leave its connection open.
        task = asyncio.ensure_future(served(reader, writer))
        talking[task] = writer
        task.add_done_callback(talking.pop)

    if path is not None:
        server, address = await asyncio.start_unix_server(accepted, path), f"unix://{path}"
    else:
        server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        address = "{}:{}".format(*server.sockets[0].getsockname())
    try:
        yield address
    finally:
        server.close()
        for task, writer in talking.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*talking, return_exceptions=True)
