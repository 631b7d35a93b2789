"""The duties of a server that the host launched as a child: print its address, and end with the host.

A child has `BERTH_PLUGIN_COOKIE` in its environment. The host runs no code between fork and exec. So the
child itself asks the kernel for a signal at its parent's death, and checks that the host is still its parent
(`BERTH_HOST_PID`). The child also ends when its standard input closes, which only the host holds open.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ENDPOINT: Final = "BERTH_PLUGIN_ENDPOINT"
COOKIE: Final = "BERTH_PLUGIN_COOKIE"
HOST_PID: Final = "BERTH_HOST_PID"
_PROTOCOL: Final = "berth/1"
_PR_SET_PDEATHSIG: Final = 1
_READ_BYTES: Final = 4096
LOG: Final = logging.getLogger("berth_sdk.serve.server")


class OrphanError(Exception):
    """The error of a process whose host has ended."""


@dataclass(frozen=True, slots=True)
class ChildDuties:
    """The requirements of the host that launched this process. `host_pid` 0: not given."""

    cookie: str
    host_pid: int

    @staticmethod
    def from_environment(environment: Mapping[str, str]) -> ChildDuties | None:
        """Return the duties in `environment`; None for a process that no host launched."""
        cookie = environment.get(COOKIE)
        if cookie is None:
            return None
        pid = environment.get(HOST_PID, "")
        return ChildDuties(cookie, int(pid) if pid.isdigit() else 0)

    def tie_to_host(self) -> None:
        """Make this process end with its parent. Raises OrphanError if the host has already ended."""
        if sys.platform == "linux":
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        # From the line above on, the kernel reports the parent's death. This finds an earlier death.
        if self.host_pid and not _is_ancestor(self.host_pid):
            raise OrphanError(f"the host, process {self.host_pid}, is gone")

    def watch_standard_input(self, end: Callable[[], None]) -> None:
        """Call `end` when standard input closes."""
        threading.Thread(target=_until_closed, args=(end,), name="berth-host-watch", daemon=True).start()

    def handshake_line(self, address: str, instance_id: str) -> str:
        """Return the line that the host reads from standard output."""
        return json.dumps(
            {"protocol": _PROTOCOL, "address": address, "instance_id": instance_id, "cookie": self.cookie}
        )


class StandardOutput:
    """Standard output, reserved for the handshake line. All other prints go to standard error."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.dup2(2, 1)

    def say(self, line: str) -> None:
        """Write the line. The pipe stays open, as its end means the end of this process."""
        os.write(self._fd, line.encode() + b"\n")


def _until_closed(end: Callable[[], None]) -> None:
    try:
        while os.read(0, _READ_BYTES):
            pass
    except OSError as err:
        LOG.warning("standard input cannot be read: %s", err)
    end()


def _is_ancestor(pid: int) -> bool:
    """Return True if `pid` is an ancestor: the parent, or the parent of a wrapper such as a shell."""
    current = os.getppid()
    while current > 1:
        if current == pid:
            return True
        parent = _parent_of(current)
        if parent is None:
            return False
        current = parent
    return current == pid


def _parent_of(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None  # the process has ended, or the system has no /proc
    # pid (command, which may hold spaces and brackets) state ppid ...
    return int(stat.rpartition(")")[2].split()[1])
