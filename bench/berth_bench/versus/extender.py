"""The HTTP extender for kube-scheduler: one small Go program, built on demand and started for a turn.

Its source is `tests/cluster/envtest/extender`, so it needs a clone of berth, and Go. Called by the command
and by `yard`.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from berth_bench.versus.free_ports import free_port

MODULE: Final = Path("tests/cluster/envtest")
"""The Go module with the extender, relative to the root of a clone."""
PROGRAM: Final = Path(".cache/versus/extender")
"""The program, relative to the root of a clone."""
_SHOWN: Final = 1000
"""Number of characters of a log in errors."""
_STARTS_WITHIN_S: Final = 30.0


class ExtenderError(RuntimeError):
    """The extender cannot be built, or does not start. The text gives the reason and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extender:
    """A running extender process."""

    url: str
    pid: int


def clone() -> Path:
    """Return the root of the clone of berth that holds the working directory; without one, that directory."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / MODULE).is_dir()), here)


def missing() -> str:
    """Return what is missing to build the extender, and the remedy; empty if nothing is missing."""
    module = clone() / MODULE
    if not (module / "extender/main.go").exists():
        return f"no extender in {module}: run this in a clone of berth, or choose workloads without one"
    if shutil.which("go") is None:
        return (
            "Go is needed to build the extender, and is not on PATH: install it (https://go.dev/doc/install),"
            " or choose workloads without an extender"
        )
    return ""


def build() -> None:
    """Build the extender if its source changed. Raises ExtenderError."""
    if problem := missing():
        raise ExtenderError(problem)
    root = clone()
    (root / PROGRAM).parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["go", "build", "-trimpath", "-o", str(root / PROGRAM), "./extender"],
        cwd=root / MODULE,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ExtenderError(f"the extender cannot be built:\n{done.stderr.strip()}")


@asynccontextmanager
async def running(
    folder: Path, *, caches: Path | None, server: str, ca_file: Path, varies: bool = False
) -> AsyncIterator[Extender]:
    """Run an extender until the block ends, with its log in `folder`. Raises ExtenderError.

    `caches`: a file with a token, with which the extender lists the nodes at `server` once; None: it receives
    whole nodes. `varies`: it ranks the nodes in another way for each pod.
    """
    port = free_port()
    flags = [f"-listen=127.0.0.1:{port}"]
    if caches is not None:
        flags += ["-node-cache-capable", f"-server={server}", f"-token-file={caches}", f"-ca-file={ca_file}"]
    if varies:
        flags.append("-vary")
    path = folder / "extender.log"
    with path.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            str(clone() / PROGRAM), *flags, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        if not await _listens(process, port):
            raise ExtenderError(f"the extender ended with {process.returncode}:\n{_end_of(path)}")
        yield Extender(url=f"http://127.0.0.1:{port}", pid=process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _listens(process: asyncio.subprocess.Process, port: int) -> bool:
    """Wait until the extender listens; return False if it ended. Raises ExtenderError if it does neither in
    time.
    """
    try:
        async with asyncio.timeout(_STARTS_WITHIN_S):
            while process.returncode is None:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    return True
    except TimeoutError:
        raise ExtenderError(f"the extender does not listen after {_STARTS_WITHIN_S:.0f} s") from None
    return False


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-_SHOWN:]
