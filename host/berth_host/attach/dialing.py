"""Connections to endpoints: the check of the socket file, the peer behind it, gRPC's channel, the carrier.

The socket file and its folder must belong to root, to the host's user or to a user that the configuration
allows, and no other user may be able to replace the socket. TCP needs TLS, except on loopback.

`peer_at` identifies the peer on a separate connection, just before gRPC opens its own: gRPC reports neither
the user behind a Unix socket nor a helpful reason for a failed TLS handshake. That connection does not
protect against an endpoint that changes its owner between the two connections: the permissions of the
socket's folder and TLS on gRPC's connection do.

`offered` and `frames_to` choose the carrier of scheduling cycles' calls, from the features offered in the
handshake and the instance's answer. Source: docs/reference/framed-transport.md.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final, Protocol, TypeAlias

import grpc
from berth_sdk.wire.addresses import host_and_port, is_loopback
from berth_sdk.wire.certificate import FEATURE as HANDLE_TLS
from berth_sdk.wire.frames import FEATURE as FRAMED
from berth_sdk.wire.frames import framed_path

from berth_host.attach.configured_places import Place
from berth_host.attach.handshake import Introduction
from berth_host.attach.peer import DialError, Peer, PeerRefusedError
from berth_host.config.berth.configuration import Transport
from berth_host.rpc.served.frames import FramedConnections, FramedSocket
from berth_host.rpc.served.link import channel_options
from berth_host.rpc.served.peer_user import may_serve, peer_user, socket_identity

Identity: TypeAlias = tuple[int, int, int]
"""A socket file's device, inode and time of its last change (nanoseconds)."""


class Network(Protocol):
    """The ways to the instances of plugins."""

    def dial(self, endpoint: str, place: Place) -> grpc.aio.Channel:
        """Return a new channel for one attachment; it connects at its first call. Raises DialError."""
        ...

    async def peer_at(self, endpoint: str, place: Place) -> Peer:
        """Return the peer at an endpoint; an empty `Peer` for plaintext TCP.

        Raises PeerRefusedError for a peer that is not the expected one, DialError if it cannot be reached.
        """
        ...

    def frames_at(self, endpoint: str, limit_bytes: int, allowed_uids: Collection[int]) -> FramedConnections:
        """Return the framed carrier to the instance that listens beside `endpoint`. Raises DialError."""
        ...

    def identity_of(self, endpoint: str) -> Identity | None:
        """Return a value that differs between a socket and its successor; None for TCP or no socket."""
        ...


class MachineNetwork:
    """The sockets of this machine, and TCP."""

    def dial(self, endpoint: str, place: Place) -> grpc.aio.Channel:
        """Return a new channel. See Network."""
        options = channel_options(place.max_message_bytes)
        if endpoint.startswith("unix:"):
            check_socket(socket_path(endpoint), place.allowed_uids)
            # Without this option the socket's path would become the authority, which servers may refuse.
            options = [*options, ("grpc.default_authority", "localhost")]
            return grpc.aio.insecure_channel(endpoint, options=options)
        host, _ = _tcp_address(endpoint)
        if place.tls is not None:
            from berth_host.attach.tls import channel_credentials

            name = place.tls.server_name or host
            # The name that the certificate must have, whatever the address is.
            options = [*options, ("grpc.ssl_target_name_override", name)]
            return grpc.aio.secure_channel(endpoint, channel_credentials(place.tls), options=options)
        if not is_loopback(host):
            raise DialError(f"{endpoint} is not a loopback address, and the connection would be in plaintext")
        return grpc.aio.insecure_channel(endpoint, options=options)

    async def peer_at(self, endpoint: str, place: Place) -> Peer:
        """Return the peer at an endpoint. See Network."""
        if endpoint.startswith("unix:"):
            return await _behind_socket(socket_path(endpoint), place.allowed_uids)
        if place.tls is None:
            return Peer()
        from berth_host.attach.tls import behind_tls

        return await behind_tls(*_tcp_address(endpoint), place.tls, LOOK_S)

    def frames_at(self, endpoint: str, limit_bytes: int, allowed_uids: Collection[int]) -> FramedConnections:
        """Return the framed carrier. See Network."""
        path = framed_path(socket_path(endpoint))
        check_socket(path, allowed_uids)
        return FramedConnections(FramedSocket(path, allowed_uids), limit_bytes)

    def identity_of(self, endpoint: str) -> Identity | None:
        """Return the identity of the socket file. See Network."""
        if not endpoint.startswith("unix:"):
            return None
        try:
            return socket_identity(socket_path(endpoint))
        except OSError:
            return None


class _Used:
    """The network that the functions of this module reach plugins by."""

    network: ClassVar[Network] = MachineNetwork()


@contextmanager
def replaced(network: Network) -> Iterator[None]:
    """Let the whole process reach plugins by `network` until the block ends; see `berth_sdk.clocks`."""
    before, _Used.network = _Used.network, network
    try:
        yield
    finally:
        _Used.network = before


def dial(endpoint: str, place: Place) -> grpc.aio.Channel:
    """Return a new channel for one attachment. Raises DialError."""
    return _Used.network.dial(endpoint, place)


async def peer_at(endpoint: str, place: Place) -> Peer:
    """Return the peer at an endpoint. Raises DialError."""
    return await _Used.network.peer_at(endpoint, place)


def identity_of(endpoint: str) -> Identity | None:
    """Return a value that differs between a socket and its successor; None for TCP or no socket."""
    return _Used.network.identity_of(endpoint)


def socket_path(endpoint: str) -> Path:
    """Return the path of `unix:PATH` or `unix:///PATH`."""
    return Path(endpoint.removeprefix("unix:").removeprefix("//"))


def _tcp_address(endpoint: str) -> tuple[str, int]:
    found = host_and_port(endpoint)
    if found is None:
        raise DialError(f"{endpoint!r} is no address: write it as unix:///absolute/path or host:port")
    return found


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


LOOK_S: Final = 5.0


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


def offered(place: Place, endpoint: str, *, handle_over_tls: bool = False) -> frozenset[str]:
    """Return the features to offer to the instance at `endpoint`. Frames need a Unix socket.

    `handle_over_tls`: True if the host serves the way back over TLS, for instances behind TLS.
    """
    features = set()
    if place.transport is Transport.FRAMED and endpoint.startswith("unix:"):
        features.add(FRAMED)
    if handle_over_tls and place.tls is not None:
        features.add(HANDLE_TLS)
    return frozenset(features)


def frames_to(
    endpoint: str, introduction: Introduction, allowed_uids: Collection[int] = ()
) -> tuple[FramedConnections | None, str]:
    """Return the framed carrier (None: calls are unary) and a warning (empty: none).

    `allowed_uids`: users, besides root and the host's own, that may own the framed socket.
    """
    if FRAMED not in introduction.features:
        return None, ""
    try:
        return _Used.network.frames_at(endpoint, introduction.max_message_bytes, allowed_uids), ""
    except DialError as err:
        return None, f"the frames that the plugin offers cannot be used: {err}"
