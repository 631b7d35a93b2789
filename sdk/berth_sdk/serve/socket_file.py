"""A plugin's socket file: taken over from a dead process, never from one that answers, and removed by the
process that made it alone. Used by `server` and `frames`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Final

MAX_PATH_BYTES: Final = 107
"""Of a Unix socket's path on Linux. gRPC listens at a longer one too, where nobody can dial it."""
_ANSWERS_WITHIN_S: Final = 2.0


class SocketFile:
    """The file at `path`, for as long as it is this process's.

    gRPC removes whatever lies at the path that it was given, at the beginning and at the end. So it gets
    `private`, a path of its own in the same folder, and `publish` moves the file to its place.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.private = path.with_name(f".{os.getpid():x}-{os.urandom(2).hex()}")
        self._identity: tuple[int, int] | None = None

    def publish(self) -> None:
        """Put the file in its place, over one on which nobody listens. Raises OSError."""
        self._identity = identity_of(self.private)
        self.private.rename(self.path)

    def remove(self) -> None:
        """At the end. A successor's file, which has taken its place, stays."""
        if self._identity is not None and self._identity == identity_of(self.path):
            unlink(self.path)


def is_answered(path: Path) -> bool:
    """Whether a process listens at the socket, be it that it hangs."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_ANSWERS_WITHIN_S)
        try:
            asking.connect(str(path))
        except TimeoutError:
            return True  # its queue of connections is full
        except OSError:
            return False
        return True


def unlink(path: Path) -> None:
    """Remove a socket file; any other file is left for `bind` to complain of."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()


def identity_of(path: Path) -> tuple[int, int] | None:
    """A value that differs between a socket file and its successor; None: there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
