"""Measure the start of a child, up to the answer to its first call, and of Python with `import grpc, numpy`.

The command runs this in a process of its own, because the environment is changed: all modules are read
compiled, as installed packages are.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Final

from berth_host.attach.child import Child, ChildError
from berth_host.attach.configured_places import Place
from berth_host.attach.dialing import dial
from berth_sdk.plugin.v1 import identity_pb2, identity_pb2_grpc

from berth_bench.attach import plugins
from berth_bench.running import WorkloadError
from berth_bench.versus import processes

CHILD: Final = (sys.executable, "-m", "berth_sdk", "serve", f"{plugins.__name__}:{plugins.PREFIX}0")
BARE: Final = (sys.executable, "-c", "import grpc, numpy")
_ANSWERS_WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Time from the launch, in seconds: of a child until its first answer, of the import until its process
    ends. `cpu_s` is the CPU time of that process.
    """

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """The measured starts of both kinds, taken in turns."""

    child: tuple[Taken, ...]
    bare: tuple[Taken, ...]


async def starts(count: int) -> Starts:
    """Measure `count` starts of each kind. Raises WorkloadError."""
    with TemporaryDirectory(prefix="berth-compiled-") as compiled:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ |= {**processes.environment(), "PYTHONPYCACHEPREFIX": compiled}
        await _child()  # the first runs compile the modules
        await _bare()
        child, bare = [], []
        for _ in range(count):
            child.append(await _child())
            bare.append(await _bare())
    return Starts(child=tuple(child), bare=tuple(bare))


async def _child() -> Taken:
    began_s = time.perf_counter()
    try:
        child = await Child.launch(CHILD, "a child")
    except ChildError as err:
        raise WorkloadError(str(err)) from err
    try:
        channel = dial(child.address, Place(plugins=()))
        stub = identity_pb2_grpc.IdentityServiceStub(channel)
        request = identity_pb2.HandshakeRequest(attachment_id="bench", credential=child.credential)
        await stub.Handshake(request, timeout=_ANSWERS_WITHIN_S)
        taken = Taken(wall_s=time.perf_counter() - began_s, cpu_s=processes.cpu_s(child.pid))
        await channel.close()
    finally:
        await child.stop()
    return taken


async def _bare() -> Taken:
    cpu_s, began_s = _cpu_s(), time.perf_counter()
    process = await asyncio.create_subprocess_exec(*BARE)
    if await process.wait():
        raise WorkloadError(f"{' '.join(BARE)} exited with code {process.returncode}")
    return Taken(wall_s=time.perf_counter() - began_s, cpu_s=_cpu_s() - cpu_s)


def _cpu_s() -> float:
    """Return the CPU time of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
