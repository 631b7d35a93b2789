"""`FramedSocket`: the socket at which an instance listens for frames, and whether it is still the one.

Of a Unix socket another process may take the path while the instance lives on: its gRPC connection does not
notice, a new connection for frames would reach the other. Used by `FramedLine`.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection
from pathlib import Path

from berth_host.rpc.remote.peer_user import may_serve, peer_user, socket_identity


class FramedSocket:
    """`path` as it is now; one where nothing lies yet may be anybody's later. `allowed_uids`: users beside
    root and the host's own that may listen there.
    """

    def __init__(self, path: Path, allowed_uids: Collection[int] = ()) -> None:
        self.path = path
        self._allowed_uids = allowed_uids
        self._identity: tuple[int, int, int] | None = None
        with contextlib.suppress(OSError):
            self._identity = socket_identity(path)

    def connect(self) -> socket.socket:
        """A connection that does not block. Raises OSError, PermissionError for a stranger."""
        if self._identity is not None and socket_identity(self.path) != self._identity:
            raise PermissionError("another process has put its socket there")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.connect(str(self.path))
            user = peer_user(sock)
            if not may_serve(user.uid, self._allowed_uids):
                raise PermissionError(f"the user {user.uid} listens there, who may not")
        except OSError:
            sock.close()
            raise
        return sock
