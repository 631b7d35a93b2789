"""Blocks of headers (HPACK): writes those of requests, and reads of those of answers what is needed.

Used by `http2`. Source: RFC 7541.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import hpack

MAX_BLOCK: Final = 2**18
"""The longest block of headers, in bytes, that is accepted."""
TABLE_SIZE: Final = 4096
"""The bytes of headers that each side keeps if it does not say otherwise."""

_METHODS: Final = {"GET": b"\x82", "POST": b"\x83"}
_SCHEME_HTTPS: Final = b"\x87"
_STATIC_NAMES: Final = {":authority": 1, "accept": 19, "authorization": 23, "user-agent": 58}
_STATIC_COUNT: Final = 61
_STATUS_OF_INDEX: Final = {0x88: 200, 0x89: 204, 0x8A: 206, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}
_FEW_BYTES: Final = 4096
"""Lengths below this number are written once, and kept."""
_STATUS_NAMES: Final = frozenset(range(0x08, 0x0F))
"""The first bytes of a literal `:status` that is not indexed: its name has seven places in the static table,
of which Go's servers name the last.
"""

Header = tuple[str, str]


class BlockError(ValueError):
    """A block that is not one of an answer."""


class HeadEncoder:
    """Writes the header blocks (HPACK) of one connection.

    `constant`: the headers that every request has, `:authority` first. They are put into the server's table
    with the first request, and are one byte each from then on. `table_size`: the bytes that the server keeps.
    """

    def __init__(self, table_size: int, constant: Sequence[Header]) -> None:
        self._opening = _integer(table_size, 5, 0x20) if table_size < TABLE_SIZE else b""
        first: list[bytes] = []
        later: list[bytes] = []
        kept: list[int] = []
        left = table_size
        for name, text in constant:
            value = text.encode()  # UTF-8, as client-go sends a name to act as (Impersonate-User)
            size = len(name) + len(value) + 32  # RFC 7541, section 4.1
            if size <= left:
                left -= size
                kept.append(len(later))
                first.append(_named(0x40, name, value))
                later.append(b"")
            else:
                first.append(_named(0x00, name, value))
                later.append(first[-1])
        for age, place in enumerate(reversed(kept)):
            later[place] = _integer(_STATIC_COUNT + 1 + age, 7, 0x80)
        # `:authority` stands before the path, because every pseudo-header does so before the others.
        self._first: tuple[bytes, bytes] | None = first[0], b"".join(first[1:])
        self._later = later[0], b"".join(later[1:])
        self._around: dict[tuple[str, str], tuple[bytes, bytes]] = {}
        """The bytes before the path and those after it, by method and content type."""
        self._lengths: dict[int, bytes] = {}

    def block(self, method: str, path: str, content_type: str = "", length: int | None = None) -> bytes:
        """Return the block of one request. `length`: of its body, in bytes; None: it has none."""
        raw = path.encode("ascii")
        if self._first is not None:
            authority, constant = self._first
            self._first = None
            before, after = self._made_around(method, content_type, authority, constant)
            before = self._opening + before
        else:
            around = self._around.get((method, content_type))
            if around is None:
                around = self._made_around(method, content_type, *self._later)
                self._around[method, content_type] = around
            before, after = around
        path_field = b"\x04%c%b" % (len(raw), raw) if len(raw) < 127 else _literal(4, raw)
        if length is None:
            return b"%b%b%b" % (before, path_field, after)
        ending = self._lengths.get(length)
        if ending is None:
            ending = _literal(28, str(length).encode("ascii"))
            if length < _FEW_BYTES:
                self._lengths[length] = ending
        return b"%b%b%b%b" % (before, path_field, after, ending)

    def _made_around(
        self, method: str, content_type: str, authority: bytes, constant: bytes
    ) -> tuple[bytes, bytes]:
        before = (_METHODS.get(method) or _literal(2, method.encode("ascii"))) + _SCHEME_HTTPS + authority
        return before, constant + (_literal(31, content_type.encode("ascii")) if content_type else b"")


def _integer(value: int, bits: int, first: int) -> bytes:
    """Return an integer with a prefix of `bits` bits (RFC 7541, section 5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((first | value,))
    made, value = bytearray((first | most,)), value - most
    while value >= 128:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def _literal(name_index: int, value: bytes) -> bytes:
    """Return a header that is not put into the table, with a name of the static table."""
    if name_index < 15 and len(value) < 127:
        return bytes((name_index, len(value))) + value
    return _integer(name_index, 4, 0x00) + _integer(len(value), 7, 0x00) + value


def _named(kind: int, name: str, value: bytes) -> bytes:
    bits = 6 if kind == 0x40 else 4
    index = _STATIC_NAMES.get(name, 0)
    start = _integer(index, bits, kind)
    if not index:
        raw = name.encode("ascii")
        start += _integer(len(raw), 7, 0x00) + raw
    return start + _integer(len(value), 7, 0x00) + value


_statuses: dict[bytes, int] = {}
"""The status by the first bytes of a block: the index of the name, the length, and the value as it was sent.

A server sends few different ones, and each in one form.
"""


def status_of(block: bytes) -> int | None:
    """Return the status of an answer if its block begins as one seen before; else None."""
    if not block:
        return None
    found = _STATUS_OF_INDEX.get(block[0])
    if found is not None or block[0] not in _STATUS_NAMES or len(block) < 2:
        return found
    return _statuses.get(block[: 2 + (block[1] & 0x7F)])


def read_block(block: bytes) -> tuple[int, str]:
    """Return status and Retry-After of a whole block. Raises BlockError."""
    decoder = hpack.Decoder(max_header_list_size=MAX_BLOCK)
    decoder.max_allowed_table_size = TABLE_SIZE
    try:
        headers = decoder.decode(block)
    except hpack.HPACKError as err:
        raise BlockError(f"headers that cannot be read: {err or type(err).__name__}") from err
    status, retry_after = 0, ""
    for name, value in headers:
        if not isinstance(name, str) or not isinstance(value, str):
            continue  # Not reached: `decode` without `raw`.
        if name == ":status":
            if len(value) != 3 or not value.isascii() or not value.isdigit():
                raise BlockError(f"the status {value!r}")
            status = int(value)
        elif name == "retry-after":
            retry_after = value
    if not status:
        raise BlockError("an answer without a status")
    if block[0] in _STATUS_NAMES and len(block) >= 2 and len(_statuses) < 256:
        _statuses[block[: 2 + (block[1] & 0x7F)]] = status
    return status, retry_after
