"""Processes that a measurement starts: what they can import, and what they have used, as Linux says in /proc.

Called by `versus`, `attach` and `soak`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

MOST: Final = "VmHWM"
"""The most resident memory that a process has had so far."""
_PROC: Final = Path("/proc")
_PARENT, _USER, _SYSTEM = 1, 11, 12
"""Fields of /proc/PID/stat, counted after the name of the program."""


def environment() -> dict[str, str]:
    """This process's own, and in reach what this process can import: plugins of its own among it."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def cpu_s(pid: int) -> float:
    """Processor time of one process so far, in seconds. Raises OSError for one that is gone."""
    fields = _fields(pid)
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int, what: str = MOST) -> float:
    """Memory of one process in MB (1024 * 1024 bytes): a line of /proc/PID/status."""
    for line in (_PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(what)


def children(pid: int) -> list[int]:
    """The processes that a process has started itself and that are there now, in the order of their ids."""
    found = []
    for path in _PROC.iterdir():
        if path.name.isdecimal():
            try:
                if int(_fields(int(path.name))[_PARENT]) == pid:
                    found.append(int(path.name))
            except OSError:
                continue  # it ended meanwhile
    return sorted(found)


def _fields(pid: int) -> list[str]:
    """The name of the program may hold spaces and parentheses; the rest does not."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
