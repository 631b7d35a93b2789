"""The framed socket of a `ScriptedPlugin`: its scripts answer what comes in frames.

`opened` and `ended` count connections. A connection that closes under a call cancels the script.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import grpc
from berth_sdk.wire.frames import CLOSING_FRAME, call_frame, failure_frame, framed_path

HEADER = struct.Struct(">IBB")
Serve = Callable[[int, bytes, Any], Awaitable[tuple[int, bytes]]]


class ScriptedFrames:
    """`serve`: a call's number, its request and its context -> the number and the answer. `leaves`: end with
    every answer, as a server that stops.
    """

    def __init__(self, serve: Serve) -> None:
        self.opened = self.ended = 0
        self.leaves = False
        self._serve = serve
        self._connections: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def listening(self, path: Path) -> AsyncIterator[None]:
        """Beside the gRPC socket at `path`."""
        server = await asyncio.start_unix_server(self._connected, framed_path(path))
        try:
            yield
        finally:
            server.close()
            self.cut_off()

    def cut_off(self) -> None:
        """End every connection, as a crash would."""
        for writer in self._connections:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self._connections.add(writer)
        header = asyncio.ensure_future(reader.readexactly(HEADER.size))
        try:
            while True:
                length, _, call = HEADER.unpack(await header)
                payload = await reader.readexactly(length)
                header = asyncio.ensure_future(reader.readexactly(HEADER.size))
                answer = asyncio.ensure_future(self._answer(call, payload))
                await asyncio.wait({header, answer}, return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    answer.cancel()
                    return
                if self.leaves:
                    writer.write(answer.result() + CLOSING_FRAME)
                    return
                writer.write(answer.result())
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            self.ended += 1
            self._connections.discard(writer)
            header.cancel()
            with contextlib.suppress(asyncio.CancelledError, asyncio.IncompleteReadError, OSError):
                await header
            writer.close()

    async def _answer(self, call: int, payload: bytes) -> bytes:
        try:
            return call_frame(*await self._serve(call, payload, _Context()))
        except _AbortedError as err:
            return failure_frame(call, err.code.value[0], err.text)


class _AbortedError(Exception):
    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(text)


class _Context:
    async def abort(self, code: grpc.StatusCode, text: str) -> NoReturn:
        raise _AbortedError(code, text)
