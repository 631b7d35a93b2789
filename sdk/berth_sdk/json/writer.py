"""Writes parsed objects as JSON, of any depth and with `RawJson` in them."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from berth_sdk.json.reader import MAX_DEPTH, RawJson


def write_json(value: Any, *, sort_keys: bool = False) -> bytes:
    """Encode a parsed value, of any depth, as JSON without spaces; each `RawJson` as its bytes.

    Raises TypeError for a value that JSON lacks.
    """
    held: list[RawJson] = []
    mark = ""

    def hold(other: object) -> str:
        nonlocal mark
        if not isinstance(other, RawJson):
            raise TypeError(f"{type(other).__name__} is no value of JSON")
        mark = mark or secrets.token_hex(8)
        held.append(other)
        return f"{mark}{len(held) - 1}."

    try:
        text = json.dumps(value, separators=(",", ":"), default=hold, sort_keys=sort_keys).encode()
    except RecursionError:
        return b"".join(_pieces(value, sort_keys=sort_keys))
    if not held:
        return text
    # In one pass: any user may write an object with hundreds of thousands of such values.
    return re.sub(b'"%b([0-9]+)\\."' % mark.encode(), lambda found: held[int(found[1])].content, text)


def _pieces(value: Any, *, sort_keys: bool) -> Iterator[bytes]:
    """Yield the encoded value piece by piece, without recursion."""
    waiting: list[Any] = [value]
    # Texts that are ready stand in the same stack as values; a class of their own tells them apart.
    while waiting:
        one = waiting.pop()
        if type(one) is _Ready:
            yield one.text
        elif isinstance(one, RawJson):
            yield one.content
        elif isinstance(one, Mapping):
            yield b"{"
            waiting.append(_Ready(b"}"))
            rows = sorted(one.items()) if sort_keys else list(one.items())
            for i, (key, item) in reversed(list(enumerate(rows))):
                waiting.append(item)
                waiting.append(_Ready(b"%b%b:" % (b"," if i else b"", json.dumps(key).encode())))
        elif isinstance(one, list | tuple):
            yield b"["
            waiting.append(_Ready(b"]"))
            for i, item in reversed(list(enumerate(one))):
                waiting.append(item)
                if i:
                    waiting.append(_Ready(b","))
        else:
            yield json.dumps(one).encode()


class _Ready:
    """A piece of JSON text that is written as it is."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text


def is_deeper(value: Any, depth: int = MAX_DEPTH) -> bool:
    """Return True if more than `depth` maps and lists lie within each other."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(depth):
        if not level:
            return False
        level = [
            item
            for one in level
            for item in (one.values() if type(one) is dict else one)
            if type(item) is dict or type(item) is list
        ]
    return bool(level)
