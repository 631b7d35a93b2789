"""Scores <-> the contract's `Scores` message, without a Python object for each of them.

`Scores.small` has one byte for each score, and is used if every score fits into a byte, as most do.
`Scores.dense` is a packed field of zigzag varints. This module writes all varints of an answer in the same
width, so that whole columns of bytes are written and read at once. Such varints are valid, but longer than
necessary if small and large numbers are mixed. The module also reads the shortest form, which other writers
use. Source: the wire format of protobuf (packed fields, varints, zigzag, the concatenation of messages).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

M = TypeVar("M")
_DENSE_TAG: Final = 0x0A  # field 1, length-delimited
_SMALL_TAG: Final = 0x1A  # field 3, length-delimited
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LARGEST_SMALL: Final = 0xFF
_LONGEST: Final = 10  # bytes of a varint
_HIGH_BITS: Final = np.array(0x3F80, dtype="<u2")
_GOES_ON: Final = np.array(0x0080, dtype="<u2")
_ONE_BYTE: Final = [bytes((number,)) for number in range(0x80)]


@dataclass(slots=True)
class Scored(Generic[M]):
    """A message, and the bytes of the `Scores` of its field `number`; None: the message has them, or none."""

    message: M
    number: int
    scores: bytes | None

    @property
    def ctx(self) -> Any:
        """The message's context."""
        return self.message.ctx  # type: ignore[attr-defined]  # every message with scores has one

    def SerializeToString(self) -> bytes:  # noqa: N802  (as messages have it)
        """Return the whole message, with the scores as its last field."""
        raw: bytes = self.message.SerializeToString()  # type: ignore[attr-defined]  # it is a message
        scores = self.scores
        if scores is None:
            return raw
        return b"".join((raw, bytes((self.number << 3 | _BYTES,)), varint(len(scores)), scores))


def encode_aligned(scores: NDArray[np.int64]) -> bytes:
    """Return int64[n] as a serialised `Scores` message with only `small` or `dense`."""
    if not len(scores):
        return b""
    # Zigzag takes one bit more than the larger of the two ends: 0, -1, 1, -2, ... are 0, 1, 2, 3, ...
    # The bitwise or of numbers that are not negative has as many bits as the largest.
    largest = int(np.bitwise_or.reduce(scores))
    if 0 <= largest <= _LARGEST_SMALL:
        return b"".join((bytes((_SMALL_TAG,)), varint(len(scores)), scores.astype(np.uint8).tobytes()))
    signed = largest < 0
    if signed:
        largest = max(int(scores.max()), ~int(scores.min()))
    bits = largest.bit_length() + 1
    width = -(-bits // 7)
    if width == 1:
        packed = _zigzag(
            scores.astype(np.int8)
        ).tobytes()  # none of the numbers is high, so some are negative
    elif width == 2:
        # Two bytes at once, in small integers: the way of most scores that do not fit into a byte.
        if signed:
            numbers = _zigzag(scores.astype("<i2")).view("<u2")
        else:
            numbers = scores.astype("<u2")
            numbers += numbers
        # Bits 7 to 13 move up by one, which is adding them again. Bit 7 means that another byte follows.
        pairs = numbers & _HIGH_BITS
        pairs += numbers
        pairs |= _GOES_ON
        packed = pairs.tobytes()
    else:
        rest: NDArray[Any] = _zigzag(scores).view(np.uint64)
        columns = np.empty((len(scores), width), dtype=np.uint8)
        for i in range(width):
            np.bitwise_or(rest, 0x80, out=columns[:, i], casting="unsafe")
            rest = rest >> 7
        columns[:, -1] &= 0x7F
        packed = columns.tobytes()
    return b"".join((bytes((_DENSE_TAG,)), varint(len(packed)), packed))


def decode_aligned(raw: bytes) -> NDArray[np.int64]:
    """Return the scores in `raw`, a serialised `Scores` message with only one `dense` or one `small`.

    Raises ValueError for other messages.
    """
    if not raw:
        return np.zeros(0, dtype=np.int64)
    if raw[0] not in (_DENSE_TAG, _SMALL_TAG):
        raise ValueError("not a Scores message with aligned scores alone")
    size, start = read_varint(raw, 1)
    if start + size != len(raw):
        raise ValueError("not a Scores message with aligned scores alone")
    data = np.frombuffer(raw, dtype=np.uint8, offset=start)
    if raw[0] == _SMALL_TAG or not size:
        return data.astype(np.int64)
    if data[0] < 0x80:
        if raw[start:].isascii():
            return _unzigzag(data.view(np.int8)).astype(np.int64)
    elif not size % 2:
        pairs = data.view("<u2")
        if np.bitwise_and.reduce(pairs) & 0x0080 and not np.bitwise_or.reduce(pairs) & 0x8000:
            short = (pairs & 0x7F) | ((pairs >> 1) & 0x3F80)
            return _unzigzag(short.view("<i2")).astype(np.int64)
    return _decode_varints(data)


class RepeatedScores:
    """A reader of scores that are often the same as the last ones, as equal pods get equal answers."""

    __slots__ = ("_raw", "_scores")

    def __init__(self) -> None:
        self._raw = b""
        self._scores: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def decode(self, raw: bytes) -> NDArray[np.int64]:
        """Return the same as `decode_aligned`, read-only."""
        if raw != self._raw:
            self._scores = decode_aligned(raw)
            self._scores.flags.writeable = False
            self._raw = raw
        return self._scores


def take_field(raw: bytes, number: int) -> tuple[bytes, bytes | None]:
    """Return a serialised message without its field `number`, and the field's bytes.

    Returns the whole message and None if it has no such field, or several, or cannot be split here.
    """
    found: tuple[int, int, int] | None = None
    at = 0
    try:
        while at < len(raw):
            begin = at
            key, at = read_varint(raw, at)
            kind = key & 7
            if kind == _BYTES:
                size, at = read_varint(raw, at)
                if key >> 3 == number:
                    if found is not None:
                        return raw, None
                    found = (begin, at, at + size)
                at += size
            elif kind == _VARINT:
                _, at = read_varint(raw, at)
            elif kind in (_FIXED32, _FIXED64):
                at += 4 if kind == _FIXED32 else 8
            else:
                return raw, None
    except ValueError:
        return raw, None
    if found is None or at != len(raw):
        return raw, None
    begin, start, end = found
    return raw[:begin] + raw[end:], raw[start:end]


def _decode_varints(data: NDArray[np.uint8]) -> NDArray[np.int64]:
    ends = np.flatnonzero(data < 0x80)
    if not len(ends) or ends[-1] != len(data) - 1:
        raise ValueError("the last score is cut off")
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > _LONGEST:
        raise ValueError(f"a score of {longest} bytes")
    values = (data[starts] & 0x7F).astype(np.uint64)
    for i in range(1, longest):
        longer = np.flatnonzero(lengths > i)
        part = (data[starts[longer] + i] & 0x7F).astype(np.uint64)
        values[longer] |= part << np.uint64(7 * i)
    return (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)


def _zigzag(scores: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers in zigzag form, of the same type. All types but int64 need a spare bit."""
    return (scores << 1) ^ (scores >> (8 * scores.itemsize - 1))


def _unzigzag(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers of zigzag forms, of the same type. The highest bit must be 0."""
    return (numbers >> 1) ^ -(numbers & 1)


def varint(number: int) -> bytes:
    """Return a number from 0 as protobuf's shortest varint."""
    if number < 0x80:
        return _ONE_BYTE[number]
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def read_varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return the number at `at`, and the position after it. Raises ValueError."""
    number = shift = 0
    while at < len(raw) and shift < 7 * _LONGEST:
        byte = raw[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise ValueError("a number is cut off")
