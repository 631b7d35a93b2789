"""Finds parts of a JSON document in its bytes, without parsing the document and without recursion.

The host takes `metadata.managedFields` out of objects so, and a claim's opaque parameters, before a parser
sees them. Any client may have written an object: the way to a part goes by nesting and by strings, so that a
label or a field of the same name elsewhere is never meant.

`spans` is exact and reads every bracket. `quick_cut` guesses: it is many times faster, and its result counts
only after the checks that its docstring names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final

ITEMS: Final = b"*"
"""The step of a path into each element of a list."""
MANAGED_FIELDS: Final = b'"managedFields":'
_OPENED: Final = MANAGED_FIELDS + b"["
BRACKETS_PER_STEP: Final = 8_000
"""The number of brackets and keys that `spans` reads between two of its yields: a few milliseconds' work."""

Paths = Mapping[bytes, Any]
"""The paths that `spans` looks for: a map from each step to the next steps, a string at a path's end. The
string is the label of the value that is found there.
"""

_BACKSLASH: Final = 0x5C
_STRING: Final = rb'"(?:[^"\\]++|\\.)*+"'
_KEY: Final = re.compile(rb"[ \t\r\n]*+(" + _STRING + rb")[ \t\r\n]*+:[ \t\r\n]*+", re.DOTALL)
_SCALAR: Final = re.compile(_STRING + rb'|[^ \t\r\n,:\[\]{}"]++', re.DOTALL)
_SPACE: Final = re.compile(rb"[ \t\r\n]*+")
# One match for each bracket: texts and strings before it are read in the regular expression's own loop.
_BRACKET: Final = re.compile(
    rb'[^"\[\]{}]*+(?:' + _STRING + rb'[^"\[\]{}]*+)*+([\[\]{}])',
    re.DOTALL,
)
_OPENING: Final = frozenset(b"{[")


class ScanError(ValueError):
    """The bytes are no JSON. Attribute: at, the byte where reading ended."""

    def __init__(self, at: int) -> None:
        self.at = at
        super().__init__(f"no JSON: byte {at} is not what must stand there")


@dataclass(frozen=True, slots=True)
class Span:
    """The place of one value in the document: `document[start:end]`."""

    label: str
    start: int
    end: int


@dataclass(slots=True)
class _Open:
    """A map or a list on the way to what is looked for."""

    is_list: bool
    steps: Paths
    label: str
    start: int
    is_empty: bool = True


def spans(document: bytes, paths: Paths) -> Generator[Span | None, None, None]:
    """Yield what lies at the paths, in the order of the document. Of a repeated key, every value is found.

    Yields None about every BRACKETS_PER_STEP brackets, so that a caller can let others run. A path whose end
    has further steps (`{b"": label}` in its map) is found as a whole after the values within it. Raises
    ScanError for bytes that are no JSON. Values beside the paths are read by their brackets only.
    """
    count = 0
    opened: list[_Open] = []
    steps: Any = paths
    at = _space(document, 0)
    while True:
        # A value begins at `at`, and `steps` are what is looked for in it: a map, a label, or None.
        byte = document[at] if at < len(document) else 0
        label = steps if isinstance(steps, str) else ""
        if byte in _OPENING and not label and steps:
            opened.append(_Open(byte == 0x5B, steps, steps.get(b"", ""), at))
            at = _space(document, at + 1)
        else:
            start = at
            if byte in _OPENING:
                at = yield from skipped(document, at)
            else:
                scalar = _SCALAR.match(document, at)
                if scalar is None:
                    raise ScanError(at)
                at = scalar.end()
            if label:
                yield Span(label, start, at)
            at = _space(document, at)
        # Now a value has ended, or a map or list has begun.
        while opened:
            place = opened[-1]
            byte = document[at] if at < len(document) else 0
            if byte == (0x5D if place.is_list else 0x7D):
                at += 1
                opened.pop()
                if place.label:
                    yield Span(place.label, place.start, at)
                at = _space(document, at)
                continue
            if not place.is_empty:
                if byte != 0x2C:
                    raise ScanError(at)
                at = _space(document, at + 1)
            place.is_empty = False
            break
        if not opened:
            if at != len(document):
                raise ScanError(at)
            return
        count += 1
        if count >= BRACKETS_PER_STEP:
            count = 0
            yield None
        place = opened[-1]
        if place.is_list:
            steps = place.steps.get(ITEMS)
        else:
            found = _KEY.match(document, at)
            if found is None:
                raise ScanError(at)
            at = found.end()
            steps = place.steps.get(_key(found[1]))


def skipped(document: bytes, at: int) -> Generator[None, None, int]:
    """Return the end of the map or list that begins at `at`; yield after every few milliseconds' work.

    Raises ScanError if it does not end.
    """
    depth = count = 0
    # `match` and not `finditer`: a search would begin again at each byte of a document that does not end.
    next_bracket = _BRACKET.match
    while (found := next_bracket(document, at)) is not None:
        at = found.end()
        depth += 1 if document[at - 1] in _OPENING else -1
        if not depth:
            return at
        count += 1
        if count >= BRACKETS_PER_STEP:
            count = 0
            yield None
    raise ScanError(len(document))


def opens_more_than(document: bytes, levels: int) -> bool:
    """Return True if more than `levels` maps and lists are open within each other at some byte.

    The bytes may be no JSON: then what is read ends at the first string without an end.
    """
    depth = at = 0
    next_bracket = _BRACKET.match
    while (found := next_bracket(document, at)) is not None:
        at = found.end()
        depth += 1 if document[at - 1] in _OPENING else -1
        if depth > levels:
            return True
    return False


def _space(document: bytes, at: int) -> int:
    if at < len(document) and document[at] in b" \t\r\n":
        found = _SPACE.match(document, at)
        return at if found is None else found.end()
    return at


def _key(quoted: bytes) -> bytes:
    """Return a key without its quotes; its escapes are read."""
    if _BACKSLASH not in quoted:
        return quoted[1:-1]
    try:
        return str(json.loads(quoted.decode(errors="replace"), strict=False)).encode(errors="replace")
    except ValueError:
        return quoted[1:-1]


def cut(document: bytes, found: list[Span], marks: list[bytes]) -> bytes:
    """Return the document with `marks` in place of what was found; `found` in the order of the document."""
    pieces: list[bytes] = []
    done = 0
    for span, mark in zip(found, marks, strict=True):
        pieces.append(document[done : span.start])
        pieces.append(mark)
        done = span.end
    pieces.append(document[done:])
    return b"".join(pieces)


def quick_cut(document: bytes, mark: bytes) -> tuple[bytes, int]:
    """Return the document with `mark`, a JSON value, in place of each list `managedFields`, and how many.

    The result counts only if it parses as JSON, and if as many marks are then found in the `metadata` of
    objects as were set; otherwise the document must be read with `spans`. The key may be anybody's, and the
    list's end is taken to be at its first closing bracket. A wrong end is always seen: either brackets are
    left without their partner, or the cut ended within a string, and from there on names stand where values
    must.
    """
    at = document.find(_OPENED)
    if at < 0:
        return document, 0
    pieces: list[bytes] = []
    done, count = 0, 0
    while at >= 0:
        start = at + len(MANAGED_FIELDS)
        # After a backslash, the quote is part of a string.
        if document[at - 1] != _BACKSLASH:
            end = document.find(b"]", start) + 1
            if not end:
                break
            pieces.append(document[done:start])
            pieces.append(mark)
            done = end
            count += 1
        at = document.find(_OPENED, max(done, start))
    pieces.append(document[done:])
    return b"".join(pieces), count
