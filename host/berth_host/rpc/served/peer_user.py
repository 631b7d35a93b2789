"""The identity of a socket file, the user at its other end by the kernel, and whether this user may serve.

Used on the host's own connections: framed connections, and the connection that `attach` opens before gRPC's.
For a connection to a listening socket, the kernel returns the process that began to listen. Source: unix(7),
SO_PEERCRED.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_UCRED: Final = struct.Struct("=iII")


@dataclass(frozen=True, slots=True)
class PeerUser:
    """The process, user and group that listen at a socket. A process of another pid namespace has pid 0."""

    pid: int
    uid: int
    gid: int


def peer_user(connected: socket.socket) -> PeerUser:
    """Return who listens at the other end. Raises OSError for a socket that has no such peer."""
    return PeerUser(*_UCRED.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


def may_serve(uid: int, allowed: Iterable[int]) -> bool:
    """Return True if a socket, its folder or its process may belong to `uid`: root, the host's own user, or
    one that the configuration allows.
    """
    return uid in (0, os.getuid(), *allowed)


def socket_identity(path: Path) -> tuple[int, int, int]:
    """Return a value that differs between a socket file and its successor at the path. Raises OSError."""
    found = path.lstat()
    return found.st_dev, found.st_ino, found.st_ctime_ns
