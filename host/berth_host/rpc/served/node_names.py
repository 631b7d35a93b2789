"""The names of candidates as bytes of a request: encoded once per version of the list of nodes.

A plugin in NAMES mode gets the names of all candidates in every call. Most calls are about every node, and
the names change only when a node comes or goes. Used by `requests`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.tables import NodeTable

_LENGTH_DELIMITED: Final = 2


def varint(number: int) -> bytes:
    """Return a number as protobuf encodes lengths and tags."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def field_bytes(number: int, payload: bytes) -> bytes:
    """Return a field that holds a string or a message: tag, length, payload."""
    return b"".join((varint(number << 3 | _LENGTH_DELIMITED), varint(len(payload)), payload))


class EncodedNames:
    """The encoded names of all nodes of one snapshot, for the latest version of its list of nodes."""

    def __init__(self) -> None:
        self._identity: Hashable = None
        self._whole = b""

    def of(self, nodes: NodeTable) -> bytes:
        """Return `NodeSet(names=nodes.names)`, serialised."""
        if len(nodes) != nodes.snapshot_size or not nodes.is_ascending:
            return _encoded(nodes)
        if self._identity != nodes.names_identity:
            self._identity, self._whole = nodes.names_identity, _encoded(nodes)
        return self._whole


def _encoded(nodes: NodeTable) -> bytes:
    raw: bytes = pb.NodeSet(names=nodes.names).SerializeToString()
    return raw


ENCODED: Final = EncodedNames()
"""Shared by all plugins of a process, which has one snapshot."""


class NamedRequest:
    """A request whose candidates are appended as bytes, as the transport serialises it."""

    __slots__ = ("message", "tail")

    def __init__(self, message: Any, tail: bytes) -> None:
        """`tail`: one more field, encoded."""
        self.message = message
        self.tail = tail

    @property
    def ctx(self) -> pb.CallContext:
        """The context of the request."""
        context: pb.CallContext = self.message.ctx
        return context

    def ClearField(self, name: str) -> None:  # noqa: N802  (as messages have it)
        """Clear a field of the message."""
        self.message.ClearField(name)

    def SerializeToString(self) -> bytes:  # noqa: N802  (as messages have it)
        """Return the whole request, serialised. Protobuf takes fields in any order."""
        raw: bytes = self.message.SerializeToString()
        return raw + self.tail
