"""A line to a port on which everything that passes is heard, in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from support.stream_server import stream_server


@asynccontextmanager
async def tapped(port: int, heard: bytearray) -> AsyncIterator[str]:
    """Yield the address of a line to 127.0.0.1:`port`; nobody needs to listen there yet."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while passed := await reader.read(65536):
            heard.extend(passed)
            writer.write(passed)
            await writer.drain()
        writer.write_eof()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(carry(reader, back), carry(there, writer))
        finally:
            back.transport.abort()

    async with stream_server(answer) as address:
        yield address
