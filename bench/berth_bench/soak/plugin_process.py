"""`PluginProcess`: one plugin of a soak as a process that the soak starts, stops, holds up and replaces.

Driven by `faults`. The host finds it at a fixed socket, or in a socket folder; every process that serves
there is another instance.
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
"""More than the time that an instance has for the cycles which it began."""
ASKED_WITHIN_S: Final = 20.0
_LOOK_S: Final = 0.05


class PluginProcess:
    """down -start-> up -kill, stop-> down; up -hold-> held -go_on-> up

    `sockets`: the socket folder, None: it has an endpoint of its own, in `folder`.
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
        """Start an instance; the host attaches when it answers."""
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
        """From its next call on."""
        part = self._mood.with_suffix(".part")
        part.write_text(mood)
        part.rename(self._mood)

    async def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def hold(self) -> None:
        """SIGSTOP: it hangs, and its connections live."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    async def stop(self) -> None:
        """SIGTERM, as an upgrade does; a process that does not end in time is killed."""
        await _end(self._process)

    async def upgrade(self) -> bool:
        """A process of the next version in its place; whether that was asked.

        In a socket folder the two are there side by side until the newer is asked, or `ASKED_WITHIN_S` are
        over: the plugin is missing at no time. At an endpoint the older one has to end first.
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
        """Wait until the newest process is asked from now on; False: it was not in this time."""
        now_s = time.time()
        file = self._asked()
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            if file.exists() and file.stat().st_mtime >= now_s:
                return True
            await asyncio.sleep(_LOOK_S)
        return False

    def _place(self) -> str:
        """Two places in the folder take turns: a process that is started anew takes over what the one before
        left of its own.
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
        # Also where nobody waits any longer: while it answers, another one is refused at its socket.
        if process.returncode is None:
            process.kill()
            await process.wait()
