"""A TCP proxy on loopback that disturbs connections: it cuts and delays them, and serves later ones first.

It is between the host of `berth bench soak` and a real API server, and in tests of the Kubernetes client. It
uses a seed, so that a failing run can be repeated (as far as the timing of the machine allows).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class CuttingProxy:
    """The proxy. `is_calm`: passes everything on at once. `is_down`: accepts connections and closes them.
    `is_one_way`: passes on what the host sends, and loses what the server answers.

    `url`: where it listens, as http; the proxy does not inspect the bytes or TLS. `cut_count` and
    `connection_count`: numbers so far. `lost_bytes`: of answers.
    """

    def __init__(self, target: str, seed: int) -> None:
        parts = urlsplit(target)
        self._host, self._port = str(parts.hostname), int(parts.port or 0)
        self._chance = random.Random(seed)
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_calm = False
        self.is_down = False
        self.is_one_way = False
        self.lost_bytes = 0
        self.url = ""
        self.cut_count = 0
        self.connection_count = 0

    def go_down(self) -> None:
        """Cut every connection, and close each new one, until `come_up`."""
        self.is_down = True
        self.cut_all()

    def go_one_way(self) -> None:
        """Lose every answer until `come_up`: the server acts on requests, and the host does not know."""
        self.is_one_way = True

    def come_up(self) -> None:
        """Pass connections on again. Connections that lost bytes are cut, because they make no sense now."""
        if self.is_one_way:
            self.is_one_way = False
            self.cut_all()
        self.is_down = False

    def cut_all(self) -> None:
        """Cut every connection now."""
        for writer in list(self._open):
            writer.transport.abort()
            self.cut_count += 1

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on, until either end or the proxy closes it."""
        # Not a coroutine: a task of the server that is cancelled before it begins would leave the connection
        # open.
        self.connection_count += 1
        self._open.add(writer)
        task = asyncio.ensure_future(self._handle(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: asyncio.StreamWriter | None = None
        try:
            if self.is_down:
                return
            if not self.is_calm:
                # Delayed, so that a later connection is served before this one.
                await asyncio.sleep(self._chance.choice((0.0, 0.0, 0.01, 0.05)))
            back, upstream = await asyncio.open_connection(self._host, self._port)
            budget = self._chance.choice((200, 1_000, 4_000, 20_000, 10**9))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, upstream, 10**9))
                group.create_task(self._pass(back, writer, budget, answers=True))
        except* (OSError, _CutError, asyncio.CancelledError):
            # Cut or closed; no error is reported.
            pass
        finally:
            for end in (writer, upstream):
                if end is not None:
                    end.transport.abort()
            self._open.discard(writer)

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, budget: int, *, answers: bool = False
    ) -> None:
        while data := await source.read(self._chance.choice((7, 100, 4096)) if not self.is_calm else 65536):
            if not self.is_calm:
                await asyncio.sleep(self._chance.choice((0.0, 0.0, 0.0, 0.001, 0.02)))
                if len(data) > budget:
                    # Usually in the middle of a line.
                    sink.write(data[:budget])
                    self.cut_count += 1
                    raise _CutError
                budget -= len(data)
            if answers and self.is_one_way:
                self.lost_bytes += len(data)
                continue
            sink.write(data)
            await sink.drain()
        raise _CutError

    async def aclose(self) -> None:
        """Close the proxy and all connections."""
        self.cut_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _CutError(Exception):
    pass


@asynccontextmanager
async def cutting_proxy(target: str, seed: int) -> AsyncIterator[CuttingProxy]:
    """Run a proxy for `target` on a free loopback port until the block ends."""
    proxy = CuttingProxy(target, seed)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    proxy.url = f"http://{host}:{port}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.aclose()
