"""`PluginProcess`: one plugin of a soak as a process that the soak starts, stops, holds up and replaces.

Driven by `faults`. The host finds it at a fixed socket; every process that serves there is another instance.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Final

from berth_host.cli.bench.soak.plugins import MOOD, Mood

STOPS_WITHIN_S: Final = 20.0


class PluginProcess:
    """down -start-> up -kill, stop-> down; up -hold-> held -go_on-> up"""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.endpoint = f"unix://{folder.absolute() / f'{name}.sock'}"
        self._mood = folder / f"{name}.mood"
        self._log = folder / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start an instance; the host attaches when it answers."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "berth_sdk",
                "serve",
                f"berth_host.cli.bench.soak.plugins:{self.name}",
                "--listen",
                self.endpoint,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    MOOD: str(self._mood),
                },
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
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOPS_WITHIN_S):
                await process.wait()
        except TimeoutError:
            await self.kill()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
