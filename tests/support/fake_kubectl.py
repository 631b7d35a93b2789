"""A `kubectl` for tests: its `port-forward` leads to a port of loopback; the rest is nobody's.

FAKE_KUBECTL_TARGET: where it leads; FAKE_KUBECTL_NOTES: a file for its arguments, and a word at its end;
FAKE_KUBECTL_FAILURE: what it says on standard error instead, before it ends with 1.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from pathlib import Path


def install(folder: Path) -> None:
    """Put it as `kubectl` into a folder, for the PATH."""
    program = folder / "kubectl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(2**16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    there = await asyncio.open_connection("127.0.0.1", int(os.environ["FAKE_KUBECTL_TARGET"]))
    await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer), return_exceptions=True)


async def _main() -> int:
    notes = Path(os.environ["FAKE_KUBECTL_NOTES"])
    notes.write_text("\n".join(sys.argv[1:]) + "\n")
    failure = os.environ.get("FAKE_KUBECTL_FAILURE")
    if failure:
        print(failure, file=sys.stderr)
        return 1
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    server = await asyncio.start_server(_forward, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(f"Forwarding from 127.0.0.1:{port} -> 10259", flush=True)
    await ended.wait()
    notes.write_text(f"{notes.read_text()}ended\n")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
