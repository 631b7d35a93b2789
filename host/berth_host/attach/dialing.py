"""An endpoint -> a gRPC channel, after a check of the socket file.

The file must be a socket that belongs to root or to the host's user, in a folder where no other user can
put a socket in its place. Called by `Attachment`.
"""

from __future__ import annotations

import os
import stat
from ipaddress import ip_address
from pathlib import Path

import grpc

from berth_host.attach.wanted import Place
from berth_host.errors import HostError
from berth_host.rpc.remote.link import channel_options


class DialError(HostError):
    """There is no socket that may be dialled; a later try may find one. The text says what is wrong."""


def dial(endpoint: str, place: Place) -> grpc.aio.Channel:
    """A channel of its own for one attachment; it connects with its first call. Raises DialError."""
    if endpoint.startswith("unix:"):
        check_socket(socket_path(endpoint))
        # Names of a Unix socket's peer mean nothing; without this the path would become the authority.
        options = [*channel_options(), ("grpc.default_authority", "localhost")]
        return grpc.aio.insecure_channel(endpoint, options=options)
    if place.tls is not None:
        raise DialError("TLS endpoints are not in this release: use a Unix socket, or loopback TCP")
    host = endpoint.rpartition(":")[0].strip("[]")
    if not is_loopback(host):
        raise DialError(f"{endpoint} is not a loopback address, and the connection would be in plaintext")
    return grpc.aio.insecure_channel(endpoint, options=channel_options())


def socket_path(endpoint: str) -> Path:
    """The path of `unix:PATH` and `unix:///PATH`."""
    return Path(endpoint.removeprefix("unix:").removeprefix("//"))


def check_socket(path: Path) -> None:
    """Look without following links. Raises DialError."""
    try:
        found = path.lstat()
        folder = path.parent.stat()
    except OSError as err:
        raise DialError(f"{path}: {err.strerror}") from err
    if not stat.S_ISSOCK(found.st_mode):
        raise DialError(f"{path} is not a socket")
    if found.st_uid not in (0, os.getuid()):
        raise DialError(f"{path} belongs to the user {found.st_uid}, not to the host's user or root")
    # With the sticky bit others may add files, but not put one in the place of this one.
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        raise DialError(f"everybody may replace {path}: take the write permission of others from its folder")


def identity_of(endpoint: str) -> tuple[int, int, int] | None:
    """A value that differs between a socket file and its successor; None for TCP and without a file."""
    if not endpoint.startswith("unix:"):
        return None
    try:
        found = socket_path(endpoint).lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def is_loopback(host: str) -> bool:
    """Whether a name or address stays on this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
