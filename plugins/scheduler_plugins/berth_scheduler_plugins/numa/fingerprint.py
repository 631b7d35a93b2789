"""The fingerprint of a set of pods, as agents write it to NodeResourceTopology objects.

A pod counts by its namespace and name, with XXH64. Source: the xxHash specification, 0.1.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

PREFIX: Final = "pfp0v001"
_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_BLOCK: Final = 32


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of pods, each a namespace and a name, in any order."""
    hashes = sorted(_pod_hash(namespace, name) for namespace, name in pods)
    return f"{PREFIX}{xxh64(b''.join(one.to_bytes(8, 'little') for one in hashes)):016x}"


@lru_cache(maxsize=4096)
def _pod_hash(namespace: str, name: str) -> int:
    return xxh64(name.encode(), xxh64(namespace.encode()))


def xxh64(data: bytes, seed: int = 0) -> int:
    """Return the XXH64 hash of some bytes.

    >>> f"{xxh64(b''):x}"
    'ef46db3751d8e999'
    """
    size, at = len(data), 0
    if size >= _BLOCK:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while at <= size - _BLOCK:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], _word(data, at + 8 * lane, 8))
            at += _BLOCK
        total = sum(_rotated(lanes[lane] & _MASK, by) for lane, by in enumerate((1, 7, 12, 18))) & _MASK
        for lane in lanes:
            total = ((total ^ _round(0, lane & _MASK)) * _P1 + _P4) & _MASK
    else:
        total = (seed + _P5) & _MASK
    total = (total + size) & _MASK
    while at + 8 <= size:
        total = (_rotated(total ^ _round(0, _word(data, at, 8)), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= size:
        total = (_rotated(total ^ (_word(data, at, 4) * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        total = _rotated(total ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    total = (total ^ total >> 33) * _P2 & _MASK
    total = (total ^ total >> 29) * _P3 & _MASK
    return total ^ total >> 32


def _word(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK
