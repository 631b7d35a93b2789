"""A plugin's socket file. `server` and `frames` use it.

A process may replace the socket file of a dead process, but not of one that answers. Only the process that
made a socket file removes it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Final

from berth_sdk import chance

_ANSWERS_WITHIN_S: Final = 2.0


class SocketFile:
    """The socket file at `path`, as long as it is the file of this process.

    gRPC removes any file at its path, at its start and at its end. So gRPC gets `private`, another path in
    the same folder, and `publish` moves the file to `path`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.private = path.with_name(f".{os.getpid():x}-{chance.token_hex(2)}")
        self._identity: tuple[int, int] | None = None

    def publish(self) -> None:
        """Move the file to `path`, over the file of a dead process. Raises OSError."""
        self._identity = identity_of(self.private)
        self.private.rename(self.path)

    def remove(self) -> None:
        """Remove the file, but not the file of a successor at the same path."""
        if self._identity is not None and self._identity == identity_of(self.path):
            unlink(self.path)


def is_answered(path: Path) -> bool:
    """Return True if a process listens at the socket, even if the process hangs."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_ANSWERS_WITHIN_S)
        try:
            asking.connect(str(path))
        except TimeoutError:
            return True  # the listener's queue of connections is full
        except OSError:
            return False
        return True


def unlink(path: Path) -> None:
    """Remove a socket file. Any other file stays, and `bind` fails with its error."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()


def identity_of(path: Path) -> tuple[int, int] | None:
    """Return a value that differs between a file and its successor at the same path; None without a file."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
