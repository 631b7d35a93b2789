"""Values -> bytes that sort as the values do. For `sort_key` of a QueueSort plugin.

The queue compares keys bytewise, smallest first. Join the parts, most important first:

    def sort_key(self, pod):
        return join(descending(integer(pod.pod.priority)), time(pod.added_at_s))

No part is the beginning of another part of its kind. Therefore parts can be joined, and reversed with
`descending`.
"""

from __future__ import annotations

import math
import struct
from typing import Final

MAX_KEY_BYTES: Final = 256
_SIGN: Final = 1 << 63
_ALL_ONES: Final = bytes(range(255, -1, -1))


def integer(value: int) -> bytes:
    """Return 8 bytes for a 64-bit signed integer. Raises ValueError for a larger one.

    >>> integer(-3) < integer(0) < integer(7)
    True
    """
    if not -_SIGN <= value < _SIGN:
        raise ValueError(f"{value} does not fit into 64 bits: scale it down, or encode it as a string")
    return (value + _SIGN).to_bytes(8, "big")


def time(seconds: float) -> bytes:
    """Return 8 bytes for a time or any other number with a fraction; -0.0 equals 0.0. Raises ValueError for
    NaN.

    >>> time(-1.5) < time(0.0) < time(1763638000.25) < time(1763638000.5)
    True
    """
    if math.isnan(seconds):
        raise ValueError("NaN cannot be ordered: give the pod a time")
    bits = int.from_bytes(struct.pack(">d", seconds + 0.0), "big")
    # IEEE 754: positive numbers sort as their bits do, negative ones in reverse and below them.
    return (bits ^ (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN).to_bytes(8, "big")


def string(text: str) -> bytes:
    """Return UTF-8, in the order of code points; a prefix comes before the longer text.

    >>> string("a") < string("ab") < string("b")
    True
    """
    return text.encode().replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def descending(part: bytes) -> bytes:
    """Return the same part in the opposite order.

    >>> descending(integer(100)) < descending(integer(0))
    True
    """
    return part.translate(_ALL_ONES)


def join(*parts: bytes) -> bytes:
    """Return one key of several parts, most important first, cut at 256 bytes.

    A cut key never orders two pods wrongly: the two keys are equal, and the queue then orders the pods by the
    time they came.
    """
    return b"".join(parts)[:MAX_KEY_BYTES]
