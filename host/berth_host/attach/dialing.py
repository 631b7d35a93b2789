"""Opens gRPC channels to endpoints, after a check of the socket file.

The file and its folder must belong to root, to the host's user or to a user that the configuration allows,
and no other user may be able to replace the socket. TCP needs TLS, except on loopback. Called by
`Attachment`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

import grpc
from berth_sdk.wire.addresses import host_of, is_loopback

from berth_host.attach.peer import DialError as DialError
from berth_host.attach.peer import PeerRefusedError
from berth_host.attach.wanted import Place
from berth_host.rpc.served.link import channel_options
from berth_host.rpc.served.peer_user import may_serve


def dial(endpoint: str, place: Place) -> grpc.aio.Channel:
    """Return a new channel for one attachment; it connects at its first call. Raises DialError."""
    if endpoint.startswith("unix:"):
        check_socket(socket_path(endpoint), place.allowed_uids)
        # Without this option the socket's path would become the authority, which servers may refuse.
        options = [*channel_options(), ("grpc.default_authority", "localhost")]
        return grpc.aio.insecure_channel(endpoint, options=options)
    host, _ = host_and_port(endpoint)
    if place.tls is not None:
        from berth_host.attach.tls.files import channel_credentials

        name = place.tls.server_name or host
        # The name that the certificate must have, whatever the address is.
        options = [*channel_options(), ("grpc.ssl_target_name_override", name)]
        return grpc.aio.secure_channel(endpoint, channel_credentials(place.tls), options=options)
    if not is_loopback(host):
        raise DialError(f"{endpoint} is not a loopback address, and the connection would be in plaintext")
    return grpc.aio.insecure_channel(endpoint, options=channel_options())


def socket_path(endpoint: str) -> Path:
    """Return the path of `unix:PATH` or `unix:///PATH`."""
    return Path(endpoint.removeprefix("unix:").removeprefix("//"))


def host_and_port(endpoint: str) -> tuple[str, int]:
    """Split `HOST:PORT` or `[ADDRESS]:PORT`."""
    return host_of(endpoint), int(endpoint.rpartition(":")[2])


def check_socket(path: Path, allowed: Collection[int] = ()) -> None:
    """Check a socket file and its folder; links are not followed.

    `allowed`: users besides root and the host's own. Raises DialError if the file is missing, and
    PeerRefusedError if another user could serve it.
    """
    try:
        found = path.lstat()
        folder = path.parent.stat()
    except OSError as err:
        raise DialError(f"{path}: {err.strerror}") from err
    if not stat.S_ISSOCK(found.st_mode):
        raise PeerRefusedError(f"{path} is not a socket")
    if not may_serve(found.st_uid, allowed):
        raise PeerRefusedError(
            f"{path} belongs to the user {found.st_uid}, not to the host's user or root: run the plugin as"
            f" the host's user, or allow that user with allowedUIDs: [{found.st_uid}]"
        )
    if not may_serve(folder.st_uid, allowed):
        raise PeerRefusedError(
            f"the user {folder.st_uid} may replace {path}, as the folder is theirs:"
            f" chown {os.getuid()} {path.parent}, or allow that user with allowedUIDs: [{folder.st_uid}]"
        )
    # With the sticky bit other users may add files, but not replace this one.
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        raise PeerRefusedError(f"any user may replace {path}: chmod 700 {path.parent}")
