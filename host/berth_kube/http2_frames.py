"""Frames of HTTP/2: the numbers of their kinds, flags, settings and errors, and what is wrong with one.

Used by `http2`. Source: RFC 9113, sections 6 and 7.
"""

from __future__ import annotations

from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_FRAME: Final = 16_384
"""The largest payload of a frame, in bytes, that either side sends here."""
LAST_STREAM: Final = 2**31 - 1
LAST_WINDOW: Final = 2**31 - 1

DATA, HEADERS, _, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_STREAMS, INITIAL_WINDOW, _, MAX_HEADERS = range(1, 7)
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR = 0, 1, 3, 6
REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM, HTTP_1_1_REQUIRED = 7, 8, 9, 11, 13
_ERROR_NAMES: Final = (
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
)


class PeerError(Exception):
    """The server breaks the protocol. `code`: the error code of HTTP/2."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def frame(kind: int, flags: int, number: int, payload: bytes = b"") -> bytes:
    """Return one frame. `number`: of its stream; 0: of the connection."""
    return (len(payload) << 48 | kind << 40 | flags << 32 | number).to_bytes(9, "big") + payload


def head_frames(number: int, block: bytes, *, ends: bool) -> list[bytes]:
    """Return the frames of a block of headers. `ends`: no body follows."""
    kind, flags = HEADERS, END_STREAM if ends else 0
    frames: list[bytes] = []
    for place in range(0, len(block), MAX_FRAME):
        last = END_HEADERS if place + MAX_FRAME >= len(block) else 0
        frames.append(frame(kind, flags | last, number, block[place : place + MAX_FRAME]))
        kind, flags = CONTINUATION, 0
    return frames


def setting(name: int, value: int) -> bytes:
    """Return one entry of a SETTINGS frame."""
    return name.to_bytes(2, "big") + value.to_bytes(4, "big")


def settings_of(payload: bytes) -> list[tuple[int, int]]:
    """Return names and values of a SETTINGS frame. Raises PeerError."""
    if len(payload) % 6:
        raise PeerError(FRAME_SIZE_ERROR, "a SETTINGS frame cut off")
    return [
        (
            int.from_bytes(payload[place : place + 2], "big"),
            int.from_bytes(payload[place + 2 : place + 6], "big"),
        )
        for place in range(0, len(payload), 6)
    ]


def unpadded(flags: int, payload: bytes) -> bytes:
    """Return a payload without its padding. Raises PeerError."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise PeerError(PROTOCOL_ERROR, "more padding than the frame is long")
    return payload[1 : len(payload) - payload[0]]


def number_of(kind: str, payload: bytes) -> int:
    """Return the number that is the whole payload, of 4 bytes. Raises PeerError."""
    if len(payload) != 4:
        raise PeerError(FRAME_SIZE_ERROR, f"{kind} of another length than 4")
    return int.from_bytes(payload, "big")


def window(size: int) -> int:
    """Return a window's new size, in bytes. Raises PeerError for one that is too large."""
    if size > LAST_WINDOW:
        raise PeerError(FLOW_CONTROL_ERROR, "a window of more than 2^31-1 bytes")
    return size


def error_name(code: int) -> str:
    """Return the name of an error code, for messages."""
    return _ERROR_NAMES[code] if code < len(_ERROR_NAMES) else f"error {code}"
