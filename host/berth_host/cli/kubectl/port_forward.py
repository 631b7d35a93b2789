"""A port of a pod on loopback, for one block: `kubectl port-forward` as a child process."""

from __future__ import annotations

import asyncio
import re
import shutil
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from berth_host.cli.kubectl.asking import AskError

_FORWARDING: Final = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+)")
_START_S: Final = 30.0
_END_S: Final = 5.0


@asynccontextmanager
async def forwarded(namespace: str, pod: str, port: int, options: Sequence[str]) -> AsyncIterator[int]:
    """Yield the port on loopback that leads to `port` of the pod. `options`: of kubectl, such as --context.

    Raises AskError if kubectl is missing or fails.
    """
    program = shutil.which("kubectl")
    if program is None:
        raise AskError(
            "kubectl is not on the PATH, and the scheduler is reached through its port-forward: install it"
            " (https://kubernetes.io/docs/tasks/tools/), or name the scheduler with --server https://HOST:10259"
        )
    # kubectl chooses a free port and holds it, so that no other process can take it in between.
    arguments = [*options, "--namespace", namespace, "port-forward", "--address", "127.0.0.1"]
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        f"pod/{pod}",
        f":{port}",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        yield await _port(process, f"{namespace}/{pod}")
    finally:
        await _end(process)


async def _port(process: Process, title: str) -> int:
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(_START_S):
            while line := await process.stdout.readline():
                found = _FORWARDING.match(line)
                if found is not None:
                    return int(found.group(1))
            said = (await process.stderr.read()).decode(errors="replace").strip()
            await process.wait()
    except TimeoutError:
        raise AskError(f"kubectl port-forward to pod {title} did not start within {_START_S:g} s") from None
    last = said.splitlines()[-1] if said else f"it ended with {process.returncode}"
    raise AskError(f"kubectl port-forward to pod {title} failed: {last}")


async def _end(process: Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_END_S):
            # Reads the remaining output: kubectl cannot end while its pipe is full.
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
