"""JSON as bytes that no dict can hold: a tree with duplicate keys, raw text, deep nesting and long lists.

A tree is a JSON value in which an object with one of these keys alone stands for something else:

    {"$pairs": [[key, tree], ...]}    an object in which a key may occur more than once
    {"$raw": text}                    the text itself, each character as the byte of its number
    {"$nest": [levels, open, close]}  `levels` times `open`, then {}, then `levels` times `close`
    {"$repeat": [tree, count]}        a list of copies, in which `@@` in a text is the number of the copy
    {"$keys": [tree, count]}          an object with so many members `k0`, `k1`, ...
    {"$digits": [text, count, more]}  a text of so many copies of `text`, then `more`

So a tree is JSON itself, short, and can be stored as the case of a test. `encoded` writes it, `smaller`
yields simpler trees.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

Tree: TypeAlias = Any
PAIRS: Final = "$pairs"
RAW: Final = "$raw"
NEST: Final = "$nest"
REPEAT: Final = "$repeat"
KEYS: Final = "$keys"
DIGITS: Final = "$digits"
_COPY: Final = "@@"
MOST_BYTES: Final = 8 << 20
"""An API server refuses a body of more than 3 MiB. A list of lists with 10 000 items each has 100 million."""


def encoded(tree: Tree) -> bytes:
    """Return the tree as JSON, or as what is left of JSON where the tree has raw text."""
    if isinstance(tree, list):
        return b"[" + b",".join(encoded(item) for item in tree) + b"]"
    if not isinstance(tree, dict):
        return json.dumps(tree).encode()
    if len(tree) == 1:
        ((key, content),) = tree.items()
        if key == RAW:
            return bytes(ord(char) & 0xFF for char in content)
        if key == NEST:
            levels, opened, closed = content
            return f"{opened * levels}{{}}{closed * levels}".encode()
        if key == DIGITS:
            text, count, more = content
            return json.dumps(text * count + more).encode()
        if key == REPEAT:
            item, count = content
            one = encoded(item)
            numbers = range(_fitting(one, count))
            return b"[" + b",".join(one.replace(_COPY.encode(), b"%d" % at) for at in numbers) + b"]"
        if key == KEYS:
            item, count = content
            one = encoded(item)
            return b"{" + b",".join(b'"k%d":%b' % (at, one) for at in range(_fitting(one, count))) + b"}"
        if key == PAIRS:
            return _object(content)
    return _object(tree.items())


def _fitting(one: bytes, count: int) -> int:
    """Return the number of copies to write: `count`, or as many as are too large for any API server."""
    return min(count, MOST_BYTES // len(one) + 1)


def _object(pairs: Any) -> bytes:
    return b"{" + b",".join(encoded(key) + b":" + encoded(value) for key, value in pairs) + b"}"


def smaller(tree: Tree) -> Iterator[Tree]:
    """Yield trees that are a step simpler: without a member or an item, or with a smaller number."""
    if isinstance(tree, list):
        if len(tree) > 2:
            yield tree[: len(tree) // 2]
            yield tree[len(tree) // 2 :]
        for at, item in enumerate(tree):
            yield tree[:at] + tree[at + 1 :]
            for less in smaller(item):
                yield [*tree[:at], less, *tree[at + 1 :]]
    elif isinstance(tree, dict):
        special = next(iter(tree)) if len(tree) == 1 else ""
        if special in (NEST, REPEAT, KEYS, DIGITS):
            yield from _with_smaller_number(special, tree[special])
        elif special == PAIRS:
            for less in smaller(tree[PAIRS]):
                if all(isinstance(pair, list) and len(pair) == 2 for pair in less):
                    yield {PAIRS: less}
        elif special != RAW:
            for key in tree:
                yield {name: value for name, value in tree.items() if name != key}
            for key, value in tree.items():
                for less in smaller(value):
                    yield {**tree, key: less}


def _with_smaller_number(special: str, content: list[Any]) -> Iterator[Tree]:
    at = 0 if special == NEST else 1
    number = content[at]
    for less in sorted(
        {0, number // 2, 3 * number // 4, number - number // 16, number - number // 64, number - 1}
    ):
        if 0 <= less < number:
            yield {special: [*content[:at], less, *content[at + 1 :]]}
    if special in (REPEAT, KEYS):
        for item in smaller(content[0]):
            yield {special: [item, number]}
