"""`Serving`: processes with several plugins each, whose sockets a turn puts into a folder."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from berth_sdk.wire.frames import framed_path

from berth_bench.attach import plugins
from berth_bench.running import WorkloadError
from berth_bench.versus.processes import environment

_LISTENS_WITHIN_S: Final = 60.0
_LOOK_S: Final = 0.02


def names(process: int, each: int) -> list[str]:
    """Return the names of the plugins of one process. `each`: how many plugins a process serves."""
    return [f"{plugins.PREFIX}{process * each + number}" for number in range(each)]


class Serving:
    """Plugin processes that listen outside the folder first. `folder`: where the host looks for sockets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "sockets"
        self._aside = folder / "aside"
        self._processes: list[asyncio.subprocess.Process] = []

    def show(self, process: int) -> None:
        """Put the sockets of one process into the folder."""
        own = self._socket(process)
        for path in (framed_path(own), own):
            os.link(path, self.folder / path.name)

    async def start(self, processes: int, each: int) -> None:
        """Start the processes, and wait until they listen. Raises WorkloadError."""
        for folder in (self.folder, self._aside):
            folder.mkdir(mode=0o700)
        for number in range(processes):
            self._processes.append(await self._started(number, each))
        ends_s = time.monotonic() + _LISTENS_WITHIN_S
        for number, process in enumerate(self._processes):
            while not (self._socket(number).exists() and framed_path(self._socket(number)).exists()):
                if process.returncode is not None or time.monotonic() > ends_s:
                    raise WorkloadError(
                        f"a process with {each} plugins does not listen; see its errors above"
                    )
                await asyncio.sleep(_LOOK_S)

    async def stop(self) -> None:
        """End the processes; does nothing for those that have ended."""
        for process in self._processes:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _started(self, number: int, each: int) -> asyncio.subprocess.Process:
        served = [f"{plugins.__name__}:{name}" for name in names(number, each)]
        listen = ["--listen", f"unix://{self._socket(number)}", "--log-level", "error"]
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "berth_sdk", "serve", *served, *listen),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            env=environment(),
        )

    def _socket(self, process: int) -> Path:
        return self._aside / f"{process}.sock"


@asynccontextmanager
async def serving(folder: Path, processes: int, each: int) -> AsyncIterator[Serving]:
    """Start plugin processes; end them when the block ends. Raises WorkloadError."""
    made = Serving(folder)
    try:
        await made.start(processes, each)
        yield made
    finally:
        await made.stop()
