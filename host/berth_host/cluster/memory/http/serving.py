"""Serves the embedded cluster over HTTP on a loopback port.

Used by `berth bench soak`, in which the cluster outlives hosts that are killed. There is no authentication,
so the server listens on loopback only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from berth_host.cluster.memory.http.handlers import Handlers
from berth_host.cluster.memory.server import ApiServer

_HOST: Final = "127.0.0.1"
_MAX_BYTES: Final = 2**24


class ServedCluster:
    """The HTTP server. `url`: its address. `handlers`: its request handlers, with their counts."""

    def __init__(self, server: ApiServer) -> None:
        self.handlers = Handlers(server)
        self.url = ""
        self._port = 0
        self._runner: web.AppRunner | None = None

    async def listen(self) -> None:
        """Start to listen; a later call uses the same port again. Raises OSError."""
        app = web.Application(client_max_size=_MAX_BYTES)
        app.router.add_route("*", "/{path:.*}", self.handlers.handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, _HOST, self._port, reuse_address=True).start()
        self._runner = runner
        self._port = runner.addresses[0][1]
        self.url = f"http://{_HOST}:{self._port}"

    async def fall_silent(self) -> None:
        """Close every connection and stop listening, until `listen`."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        # The loop closes the sockets in its next turn.
        await asyncio.sleep(0)


@asynccontextmanager
async def served(server: ApiServer) -> AsyncIterator[ServedCluster]:
    """Serve `server` until the block ends."""
    cluster = ServedCluster(server)
    await cluster.listen()
    try:
        yield cluster
    finally:
        await cluster.fall_silent()
        cluster.handlers.history.close()
