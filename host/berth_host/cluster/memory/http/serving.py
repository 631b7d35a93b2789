"""The embedded cluster on a loopback port, for as long as a block lasts.

Used by `berth bench soak`: the cluster outlives the hosts that are killed. There is no authentication, so
it listens on loopback alone.
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
    """`url`: where it answers. `handlers`: its answers, with their counts."""

    def __init__(self, server: ApiServer) -> None:
        self.handlers = Handlers(server)
        self.url = ""
        self._port = 0
        self._runner: web.AppRunner | None = None

    async def listen(self) -> None:
        """Begin to answer; a second time at the same port. Raises OSError."""
        app = web.Application(client_max_size=_MAX_BYTES)
        app.router.add_route("*", "/{path:.*}", self.handlers.handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, _HOST, self._port, reuse_address=True).start()
        self._runner = runner
        self._port = runner.addresses[0][1]
        self.url = f"http://{_HOST}:{self._port}"

    async def fall_silent(self) -> None:
        """Close every connection, and answer nobody until `listen`."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        # The sockets are closed by the next turn of the loop.
        await asyncio.sleep(0)


@asynccontextmanager
async def served(server: ApiServer) -> AsyncIterator[ServedCluster]:
    """Answer until the block ends."""
    cluster = ServedCluster(server)
    await cluster.listen()
    try:
        yield cluster
    finally:
        await cluster.fall_silent()
        cluster.handlers.history.close()
