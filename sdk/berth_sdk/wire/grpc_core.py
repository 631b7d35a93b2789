"""Settings of gRPC: the calling thread polls the sockets, and gRPC logs only errors.

With the event engine, gRPC's default on Linux, every message wakes a thread of gRPC, which wakes the calling
thread. Without the engine, the calling thread polls the sockets itself: a call on a stream took two thirds of
the time and half of the CPU time.

By default, gRPC writes a line to standard error for each failed TLS handshake, between the lines of the log.
So anybody who reaches a port could fill the disk.

The commands `berth` and `berth-sdk` call this before they import gRPC, which reads its settings while it is
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
"""Releases of grpcio that have the setting and were measured with it. Other releases may log an error for an
unknown setting, so they do not get it.
"""


def poll_by_the_caller() -> None:
    """Turn the event engine off, for this process and its berth children, unless the user has a setting."""
    if VARIABLE not in os.environ and release_of_grpcio().rpartition(".")[0] in MEASURED:
        os.environ[VARIABLE] = SETTING


def write_errors_alone() -> None:
    """Make gRPC log only errors, for this process and its children, unless the user has a setting."""
    os.environ.setdefault(VERBOSITY, "ERROR")


def release_of_grpcio() -> str:
    """Return the installed release of grpcio, without importing it. Raises PackageNotFoundError."""
    spec = find_spec("grpc")
    beside = Path(spec.origin).parent.parent if spec is not None and spec.origin is not None else Path()
    for folder in beside.glob("grpcio-*.dist-info"):
        return folder.name.removeprefix("grpcio-").removesuffix(".dist-info")
    # The general way takes 20 ms longer, which is too long for each start of a child.
    from importlib.metadata import version

    return version("grpcio")


def without_setting(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the setting of `poll_by_the_caller`, for a process with another gRPC."""
    return {key: value for key, value in environment.items() if (key, value) != (VARIABLE, SETTING)}
