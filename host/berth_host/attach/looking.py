"""Identifies the peer at an endpoint on a separate connection, just before gRPC opens its own.

gRPC reports neither the user behind a Unix socket nor a helpful reason for a failed TLS handshake; this
connection finds both. It does not protect against an endpoint that changes its owner between the two
connections: the permissions of the socket's folder and TLS on gRPC's connection do. Called by `Attachment`.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from berth_host.attach.dialing import check_socket, host_and_port, socket_path
from berth_host.attach.peer import DialError, Peer, PeerRefusedError
from berth_host.attach.wanted import Place
from berth_host.rpc.served.peer_user import may_serve, peer_user

LOOK_S: Final = 5.0


async def peer_at(endpoint: str, place: Place) -> Peer:
    """Return the peer at an endpoint; an empty `Peer` for plaintext TCP.

    Raises PeerRefusedError for a peer that is not the expected one, and DialError if it cannot be reached.
    """
    if endpoint.startswith("unix:"):
        return await _behind_socket(socket_path(endpoint), place.allowed_uids)
    if place.tls is None:
        return Peer()
    from berth_host.attach.tls.look import behind_tls

    return await behind_tls(*host_and_port(endpoint), place.tls, LOOK_S)


async def _behind_socket(path: Path, allowed: tuple[int, ...]) -> Peer:
    check_socket(path, allowed)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as asking:
        try:
            # Connecting to a Unix socket never waits: it fails if the queue of connections is full.
            asking.connect(str(path))
            found = peer_user(asking)
        except BlockingIOError as err:
            raise DialError(f"{path}: the process there accepts no connections") from err
        except OSError as err:
            raise DialError(f"{path}: {err.strerror or err}") from err
    peer = Peer(uid=found.uid, pid=found.pid)
    if not may_serve(found.uid, allowed):
        raise PeerRefusedError(
            f"{path} is served by the user {found.uid} (process {found.pid}): run the plugin as the host's"
            f" user, or allow that user with allowedUIDs: [{found.uid}]",
            peer,
        )
    return peer
