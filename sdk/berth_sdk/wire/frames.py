"""Frames: the bytes on a framed connection, for both the host and the server.

    length of the payload (4 bytes, big-endian) | kind (1 byte) | call (1 byte) | payload

Source: docs/reference/framed-transport.md. Test vectors: proto/vectors/frames.json.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

FEATURE: Final = "frames"
"""The feature of the handshake for calls in frames."""
CHUNK_BYTES: Final = 64 * 1024
"""Bytes of one read at most."""
CALLS: Final = (
    "PreFilter",
    "Filter",
    "SimulateFilter",
    "PreScore",
    "Score",
    "NormalizeScore",
    "Reserve",
    "Permit",
    "PlacementGenerate",
    "PlacementScore",
    "NormalizePlacementScore",
    "PlacementFeasible",
)
"""The calls of SchedulingService that are sent in frames, in the order of their numbers. Append only."""
NUMBERS: Final = {name: number for number, name in enumerate(CALLS, 1)}
"""Call (`PreFilter`) -> its number in the header of a frame."""
_SUFFIX: Final = ".framed"
_HEADER: Final = struct.Struct(">IBB")
_CODE: Final = struct.Struct(">I")
_LONGEST_TEXT: Final = 8 * 1024


class Kind(IntEnum):
    """The kind of a frame."""

    CALL = 0
    """A request, or the answer to it: the serialised message of SchedulingService."""
    FAILURE = 1
    """In place of an answer: a gRPC status code, 4 bytes big-endian, and a text in UTF-8."""
    CLOSING = 2
    """From the server, without payload: an open call was not executed, and no later call will be."""


class Frame(NamedTuple):
    """One frame. `call`: the number of the call (`NUMBERS`); 0 in CLOSING."""

    kind: Kind
    call: int
    payload: bytes


class FrameError(ValueError):
    """The error of bytes that are no allowed frame. The bytes after them cannot be read."""


class TooLongError(FrameError):
    """The error of a frame over the limit. Attributes: length, limit, both in bytes."""

    def __init__(self, length: int, limit: int) -> None:
        self.length = length
        self.limit = limit
        super().__init__(f"a frame of {length} bytes where {limit} may come")


def framed_path(socket_path: Path) -> Path:
    """Return the path of the framed socket beside the gRPC socket at `socket_path`."""
    return socket_path.with_name(socket_path.name + _SUFFIX)


def is_framed(socket_path: Path) -> bool:
    """Return True if the path is the path of a framed socket, which has a gRPC socket beside it."""
    return socket_path.name.endswith(_SUFFIX)


def call_frame(call: int, message: bytes) -> bytes:
    """Return the frame of a request or an answer. `call`: its number. `message`: serialised."""
    return _HEADER.pack(len(message), Kind.CALL, call) + message


def failure_frame(call: int, code: int, text: str) -> bytes:
    """Return the frame that ends a call with an error. `code`: gRPC's number. The text is cut to 8 KiB."""
    payload = _CODE.pack(code) + text.encode(errors="replace")[:_LONGEST_TEXT]
    return _HEADER.pack(len(payload), Kind.FAILURE, call) + payload


CLOSING_FRAME: Final = _HEADER.pack(0, Kind.CLOSING, 0)
"""The frame with which a server ends a connection."""


def read_failure(payload: bytes) -> tuple[int, str]:
    """Return (gRPC's number, text) of a FAILURE. Raises FrameError."""
    if len(payload) < _CODE.size:
        raise FrameError("a failure without a code")
    return _CODE.unpack_from(payload)[0], payload[_CODE.size :].decode(errors="replace")


class Incoming:
    """The reader of a connection's bytes, which may arrive in pieces of any size."""

    __slots__ = ("_limit", "_parts")

    def __init__(self, limit: int) -> None:
        """Begin at the start of a frame. `limit`: the longest payload, in bytes."""
        self._limit = limit
        self._parts: bytearray | None = None

    @property
    def has_begun(self) -> bool:
        """True if a part of a frame has arrived, and not all of it."""
        return self._parts is not None

    def take(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes. Raises FrameError as soon as a header is wrong."""
        whole: bytes | bytearray = data
        if self._parts is not None:
            self._parts += data
            whole = self._parts
        frames: list[Frame] = []
        start, size = 0, len(whole)
        while size - start >= _HEADER.size:
            length, number, call = _HEADER.unpack_from(whole, start)
            kind = _KINDS.get(number)
            if kind is None:
                raise FrameError(f"a frame of the kind {number}, which is not known")
            if length > self._limit:
                raise TooLongError(length, self._limit)
            end = start + _HEADER.size + length
            if end > size:
                break
            frames.append(Frame(kind, call, bytes(whole[start + _HEADER.size : end])))
            start = end
        if start:
            self._parts = bytearray(whole[start:]) if start < size else None
        elif self._parts is None and data:
            self._parts = bytearray(data)
        return frames


_KINDS: Final = {kind.value: kind for kind in Kind}
