"""Processes that a measurement starts: their environment, and their usage as in Linux' /proc.

Called by `versus`, `attach` and `soak`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

MOST: Final = "VmHWM"
"""The line of the highest resident memory of a process so far."""
_PROC: Final = Path("/proc")
_PARENT, _USER, _SYSTEM = 1, 11, 12
"""Fields of /proc/PID/stat, counted after the name of the program."""


def environment(*, of_another: bool = False, bytecode: Path | None = None) -> dict[str, str]:
    """Return this process's environment, extended so that a child can import everything that this process
    can. `of_another`: the child is the Python of another environment, and must import none of it.
    `bytecode`: the child reads and writes its compiled modules there.
    """
    made = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if of_another:
        del made["PYTHONPATH"]
    if bytecode is not None:
        made.pop("PYTHONDONTWRITEBYTECODE", None)
        made["PYTHONPYCACHEPREFIX"] = str(bytecode)
    return made


def cpu_s(pid: int) -> float:
    """Return the CPU time of one process so far, in seconds. Raises OSError if it has ended."""
    fields = _fields(pid)
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / os.sysconf("SC_CLK_TCK")


def first_thread_cpu_s(pid: int) -> float:
    """Return the CPU time of a process's first thread so far, in seconds. Raises OSError if it has ended."""
    fields = _fields(pid, thread=pid)
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int, what: str = MOST) -> float:
    """Return memory of one process in MB (1024 * 1024 bytes), from a line of /proc/PID/status."""
    for line in (_PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(what)


def children(pid: int) -> list[int]:
    """Return the running children of a process, in the order of their ids."""
    found = []
    for path in _PROC.iterdir():
        if path.name.isdecimal():
            try:
                if int(_fields(int(path.name))[_PARENT]) == pid:
                    found.append(int(path.name))
            except OSError:
                continue  # the process has ended meanwhile
    return sorted(found)


def _fields(pid: int, *, thread: int | None = None) -> list[str]:
    """Return the fields after the program's name, which may contain spaces and parentheses."""
    folder = _PROC / str(pid)
    if thread is not None:
        folder = folder / "task" / str(thread)
    return (folder / "stat").read_text().rpartition(")")[2].split()
