"""gRPC's settings: it waits for its sockets in the thread that makes the call, not in a thread of its own,
and writes errors alone.

With the event engine, gRPC's default on Linux, every message wakes a thread of the core, which wakes the
one that waits for it. Without the engine the waiting thread polls by itself: a call on a stream took two
thirds of the time and half of the CPU time.

Left to itself gRPC writes a line to standard error for each TLS handshake that fails, between the lines of
the log: whoever reaches a port could fill the disk.

Called by the commands `berth` and `berth-sdk` before they import gRPC, which reads its settings while it is
imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

VARIABLE: Final = "GRPC_EXPERIMENTS"
SETTING: Final = "-event_engine_client,-event_engine_listener"
VERBOSITY: Final = "GRPC_VERBOSITY"
MEASURED: Final = frozenset({"1.85"})
"""Releases of grpcio that know the setting and were measured with it. Other releases complain of unknown
settings, so they are left alone.
"""


def poll_by_the_caller() -> None:
    """Set it for this process and its berth children. The user's own setting stands."""
    if VARIABLE not in os.environ and release_of_grpcio().rpartition(".")[0] in MEASURED:
        os.environ[VARIABLE] = SETTING


def write_errors_alone() -> None:
    """Set it for this process and its children. The user's own setting stands."""
    os.environ.setdefault(VERBOSITY, "ERROR")


def release_of_grpcio() -> str:
    """The installed release, without importing it. Raises PackageNotFoundError."""
    spec = find_spec("grpc")
    beside = Path(spec.origin).parent.parent if spec is not None and spec.origin is not None else Path()
    for folder in beside.glob("grpcio-*.dist-info"):
        return folder.name.removeprefix("grpcio-").removesuffix(".dist-info")
    # The rule, which takes 20 ms longer: too long for each start of a child.
    from importlib.metadata import version

    return version("grpcio")


def without_setting(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process that may hold another gRPC: without the setting of
    `poll_by_the_caller`."""
    return {key: value for key, value in environment.items() if (key, value) != (VARIABLE, SETTING)}
