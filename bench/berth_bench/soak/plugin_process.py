"""`PluginProcess`: one plugin of a soak as a process that the soak starts, stops, pauses and replaces.

Driven by `faults`. The host finds it at a fixed socket, or in a socket folder; every process is another
instance.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from berth_bench.soak.plugins import ASKED, MOOD, VERSION, Mood
from berth_bench.versus import processes

STOPS_WITHIN_S: Final = 35.0
"""More than the time that an instance has for its running cycles, in seconds."""
ASKED_WITHIN_S: Final = 20.0
_LOOK_S: Final = 0.05


class PluginProcess:
    """The process. down -start-> up -kill, stop-> down; up -hold-> held -go_on-> up

    `sockets`: the socket folder; None: the plugin has an endpoint of its own, in `folder`.
    """

    def __init__(self, name: str, folder: Path, sockets: Path | None = None) -> None:
        self.name = name
        self.sockets = sockets
        self.endpoint = f"unix://{folder.absolute() / f'{name}.sock'}"
        self._folder = folder
        self._mood = folder / f"{name}.mood"
        self._version = 1
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start an instance; the host attaches to it when it answers."""
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "berth_sdk",
                "serve",
                f"berth_bench.soak.plugins:{self.name}",
                "--listen",
                self._place(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
            )

    def behave(self, mood: Mood) -> None:
        """Set the behaviour from the next call on."""
        part = self._mood.with_suffix(".part")
        part.write_text(mood)
        part.rename(self._mood)

    async def kill(self) -> None:
        """Kill the process (SIGKILL), as a crash would."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def hold(self) -> None:
        """Stop the process (SIGSTOP): the plugin hangs, and its connections stay open."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue the process (SIGCONT)."""
        self._signal(signal.SIGCONT)

    async def stop(self) -> None:
        """End the process (SIGTERM), as an upgrade does; kill it if it does not end in time."""
        await _end(self._process)

    async def upgrade(self) -> bool:
        """Replace the process by one of the next version; return True if the host has called the new one.

        In a socket folder both processes run until the host calls the newer one, or `ASKED_WITHIN_S` are
        over: the plugin is never absent. At an endpoint the older one must end first.
        """
        self._version += 1
        if self.sockets is None:
            try:
                await self.stop()
            finally:
                await self.start()
            return False
        older = self._process
        try:
            await self.start()
            return await self.is_asked(ASKED_WITHIN_S)
        finally:
            if self._process is older:
                await self.start()
            await _end(older)

    async def is_asked(self, within_s: float) -> bool:
        """Wait until the host calls the newest process from now on; return False if it did not within this
        time.
        """
        now_s = time.time()
        file = self._asked()
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            if file.exists() and file.stat().st_mtime >= now_s:
                return True
            await asyncio.sleep(_LOOK_S)
        return False

    def _place(self) -> str:
        """Return the next of two places in the folder, in turns: a new process replaces the files that the
        one before the last left.
        """
        if self.sockets is None:
            return self.endpoint
        return f"unix://{self.sockets.absolute() / f'{self.name}-{self._version % 2}.sock'}"

    def _asked(self) -> Path:
        return self._folder / f"{self.name}-{self._version}.asked"

    def _environment(self) -> Mapping[str, str]:
        return {
            **processes.environment(),
            MOOD: str(self._mood),
            ASKED: str(self._asked()),
            VERSION: str(self._version),
        }

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


async def _end(process: asyncio.subprocess.Process | None) -> None:
    if process is None or process.returncode is not None:
        return
    process.terminate()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOPS_WITHIN_S):
                await process.wait()
    finally:
        # Also if nothing waits for it any longer: while the old process answers, a new one is refused at its
        # socket.
        if process.returncode is None:
            process.kill()
            await process.wait()
