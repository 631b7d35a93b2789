"""Chooses the carrier of scheduling cycles' calls: the features offered in the handshake, and the
carrier that the instance's answer allows.

Called by `Attachment`. Source: docs/reference/framed-transport.md.
"""

from __future__ import annotations

from collections.abc import Collection

from berth_sdk.wire.certificate import FEATURE as HANDLE_TLS
from berth_sdk.wire.frames import FEATURE as FRAMED
from berth_sdk.wire.frames import framed_path

from berth_host.attach.dialing import DialError, check_socket, socket_path
from berth_host.attach.handshake import Introduction
from berth_host.attach.wanted import Place
from berth_host.config.berth.configuration import Transport
from berth_host.rpc.served.frames import FramedConnections
from berth_host.rpc.served.link import MAX_MESSAGE_BYTES


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
    path = framed_path(socket_path(endpoint))
    try:
        check_socket(path, allowed_uids)
    except DialError as err:
        return None, f"the frames that the plugin offers cannot be used: {err}"
    return FramedConnections(path, MAX_MESSAGE_BYTES, allowed_uids), ""
