"""A transport in memory, for a protocol without a socket."""

from __future__ import annotations

import asyncio
from typing import Any


class MemoryTransport(asyncio.Transport):
    """Keeps what is written. `is_aborted`: also settable by a test, as a transport that closes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True
