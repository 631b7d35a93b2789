"""Frames: the bytes on a framed connection. Used by host and server alike.

    length of the payload (4 bytes, big-endian) | kind (1 byte) | payload

Source: docs/reference/framed-transport.md.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from pathlib import Path
from typing import Final

FEATURE: Final = "framed"
"""The name that both sides give in the handshake."""
CHUNK_BYTES: Final = 64 * 1024
"""How many bytes one read takes."""
_SUFFIX: Final = ".framed"
_HEADER: Final = struct.Struct(">IB")
_CODE: Final = struct.Struct(">I")
_LONGEST_TEXT: Final = 8 * 1024


class Kind(IntEnum):
    """The content of a frame."""

    CALL = 0
    """A request or its answer, in the envelope of stream.proto."""
    FAILURE = 1
    """In the place of an answer: a gRPC code, 4 bytes big-endian, and a text in UTF-8."""
    CLOSING = 2
    """No payload, from the server: it executes no more calls; a call without an answer was not executed."""


class FrameError(ValueError):
    """The bytes are not a frame that is allowed here; nothing after them can be read."""


class TooLongError(FrameError):
    """A frame over the limit. Attributes: length, limit, both in bytes."""

    def __init__(self, length: int, limit: int) -> None:
        self.length = length
        self.limit = limit
        super().__init__(f"a frame of {length} bytes where {limit} may come")


def framed_path(socket_path: Path) -> Path:
    """The path of the framed socket beside the gRPC socket at `socket_path`."""
    return socket_path.with_name(socket_path.name + _SUFFIX)


def is_framed(socket_path: Path) -> bool:
    """Whether the path is that of a framed socket, beside which a gRPC socket is."""
    return socket_path.name.endswith(_SUFFIX)


def frame(kind: Kind, payload: bytes = b"") -> bytes:
    """One whole frame."""
    return _HEADER.pack(len(payload), kind) + payload


def failure(code: int, text: str) -> bytes:
    """A frame that ends a call with an error. `code`: gRPC's number."""
    return frame(Kind.FAILURE, _CODE.pack(code) + text.encode(errors="replace")[:_LONGEST_TEXT])


def read_failure(payload: bytes) -> tuple[int, str]:
    """(gRPC's number, text) of a FAILURE. Raises FrameError."""
    if len(payload) < _CODE.size:
        raise FrameError("a failure without a code")
    return _CODE.unpack_from(payload)[0], payload[_CODE.size :].decode(errors="replace")


class Incoming:
    """Bytes as they arrive -> frames."""

    __slots__ = ("_limit", "_parts")

    def __init__(self, limit: int) -> None:
        """`limit`: the longest payload, in bytes."""
        self._limit = limit
        self._parts: bytearray | None = None

    @property
    def has_begun(self) -> bool:
        """Whether a part of a frame has arrived."""
        return self._parts is not None

    def take(self, data: bytes) -> list[tuple[Kind, bytes]]:
        """The frames, (kind, payload), that `data` completes. Raises FrameError, also for a frame that has
        only begun."""
        whole: bytes | bytearray = data
        if self._parts is not None:
            self._parts += data
            whole = self._parts
        frames: list[tuple[Kind, bytes]] = []
        start, size = 0, len(whole)
        while size - start >= _HEADER.size:
            length, number = _HEADER.unpack_from(whole, start)
            kind = _KINDS.get(number)
            if kind is None:
                raise FrameError(f"a frame of the kind {number}, which is not known")
            if length > self._limit:
                raise TooLongError(length, self._limit)
            end = start + _HEADER.size + length
            if end > size:
                break
            frames.append((kind, bytes(whole[start + _HEADER.size : end])))
            start = end
        if start:
            self._parts = bytearray(whole[start:]) if start < size else None
        elif self._parts is None and data:
            self._parts = bytearray(data)
        return frames


_KINDS: Final = {kind.value: kind for kind in Kind}
