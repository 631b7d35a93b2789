"""How the calls of scheduling cycles travel to an instance: what is offered in the handshake, and what of it
the instance can do.

Called by `Attachment`. Source: the contract's stream.proto and docs/reference/framed-transport.md.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import grpc
from berth_sdk.wire.frames import FEATURE as FRAMED
from berth_sdk.wire.frames import framed_path
from berth_sdk.wire.stream import FEATURE as STREAMED

from berth_host.attach.dialing import DialError, check_socket, socket_path
from berth_host.attach.handshake import Introduction
from berth_host.attach.wanted import Place
from berth_host.config.berth.configuration import Transport
from berth_host.rpc.remote.call_stream import CallStreams
from berth_host.rpc.remote.framed_line import FramedLines
from berth_host.rpc.remote.lines import Lines
from berth_host.rpc.remote.link import MAX_MESSAGE_BYTES

_OFFERED: Final = {
    Transport.FRAMED: frozenset({FRAMED, STREAMED}),
    Transport.STREAM: frozenset({STREAMED}),
    Transport.UNARY: frozenset[str](),
}


def offered(place: Place, endpoint: str) -> frozenset[str]:
    """Feature strings for the instance at `endpoint`; frames go over Unix sockets alone."""
    features = _OFFERED[place.transport]
    return features if endpoint.startswith("unix:") else features - {FRAMED}


def lines_to(
    endpoint: str, introduction: Introduction, channel: grpc.aio.Channel, allowed_uids: Collection[int] = ()
) -> tuple[Lines | None, str]:
    """The fastest way that both know (None: calls of their own), and a warning (empty: none). `allowed_uids`:
    whom a socket for frames may belong to, beside root and the host's user.
    """
    warning = ""
    if FRAMED in introduction.features:
        path = framed_path(socket_path(endpoint))
        try:
            check_socket(path, allowed_uids)
        except DialError as err:
            warning = f"calls do not travel in frames, as the plugin says that they can: {err}"
        else:
            return FramedLines(path, MAX_MESSAGE_BYTES, allowed_uids), ""
    return (CallStreams(channel) if STREAMED in introduction.features else None), warning
