"""Plugin servers as real processes, for tests: started on a socket, killed, started again."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from support.places import TESTS
from support.plugin_forks import Fork, parent
from support.waiting import PATIENCE_S


class PluginProcess:
    """`berth-sdk serve NAMES` at a Unix socket. `names`: `module:Class`; modules of `tests` can be named."""

    def __init__(self, socket_path: Path, *names: str, environment: Mapping[str, str] | None = None) -> None:
        self.socket_path = socket_path
        self.endpoint = f"unix://{socket_path}"
        self.errors = b""
        self._names = names
        self._environment = dict(environment or {})
        self._process: Fork | None = None

    async def start(self) -> None:
        """Start it and wait until it listens."""
        await self.launch()
        await self.listening()

    async def launch(self) -> None:
        """Start it without waiting."""
        self.socket_path.unlink(missing_ok=True)
        self._process = fork(self.command(), self._environment)

    def command(self) -> list[str]:
        """Return the command that is started."""
        return [*serve_command(*self._names), "--listen", self.endpoint]

    async def ended(self) -> None:
        """Wait until it is gone."""
        if self._process is not None:
            await self._process.wait()

    async def listening(self) -> None:
        """Wait until a process accepts connections at the socket."""
        async with asyncio.timeout(PATIENCE_S):
            while not can_connect(self.socket_path):  # another process will not set our event
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """End it at once, as a crash would."""
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def terminate(self) -> int | None:
        """Ask it to end; its exit code."""
        process = self._process
        if process is None:
            return None
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            return await process.wait()

    @property
    def pid(self) -> int:
        """The process."""
        return 0 if self._process is None else self._process.pid

    @property
    def ended_with(self) -> int | None:
        """Its exit code, None while it runs."""
        return None if self._process is None else self._process.returncode


def fork(command: Sequence[str], environment: Mapping[str, str]) -> Fork:
    """Start `python -m MODULE ARGUMENTS`, with more variables."""
    assert tuple(command[:2]) == (sys.executable, "-m")
    is_heard = bool(os.environ.get("BERTH_TEST_SHOW_PLUGINS"))
    return parent().fork(command[2], command[3:], plugin_environment(environment), is_heard=is_heard)


@asynccontextmanager
async def plugin_process(
    socket_path: Path, *names: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[PluginProcess]:
    """Yield a plugin process that is up, and gone afterwards."""
    process = PluginProcess(socket_path, *names, environment=environment)
    try:
        await process.start()
        yield process
    finally:
        await process.kill()


def serve_command(*names: str) -> tuple[str, ...]:
    """Return the command of a child that serves `names` (`module:Class`)."""
    return (sys.executable, "-m", "berth_sdk", "serve", *names)


def plugin_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, with the modules of `tests` in reach."""
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path, **(more or {})}


def can_connect(path: Path) -> bool:
    """Whether a process listens at the socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
