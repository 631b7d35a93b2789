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
from berth_sdk.plugin.v1 import stream_pb2
from berth_sdk.wire.frames import Kind, failure, frame, framed_path

HEADER = struct.Struct(">IB")
Serve = Callable[[stream_pb2.StreamCallsRequest, Any], Awaitable[bytes]]


class ScriptedFrames:
    """`serve`: one call and its context -> the answer. `leaves`: end with every answer, as a server that
    stops.
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
                length, _ = HEADER.unpack(await header)
                payload = await reader.readexactly(length)
                header = asyncio.ensure_future(reader.readexactly(HEADER.size))
                answer = asyncio.ensure_future(self._answer(payload))
                await asyncio.wait({header, answer}, return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    answer.cancel()
                    return
                if self.leaves:
                    writer.write(answer.result() + frame(Kind.CLOSING))
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

    async def _answer(self, payload: bytes) -> bytes:
        try:
            call = stream_pb2.StreamCallsRequest.FromString(payload)
            return frame(Kind.CALL, await self._serve(call, _Context()))
        except _AbortedError as err:
            return failure(err.code.value[0], err.text)


class _AbortedError(Exception):
    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(text)


class _Context:
    async def abort(self, code: grpc.StatusCode, text: str) -> NoReturn:
        raise _AbortedError(code, text)
