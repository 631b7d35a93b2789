"""Reads JSON of any depth and with any text and number that Go reads, without recursion.

For the rare document that a fast parser refuses: nested deeper than that parser's limit, half of a surrogate
pair in a text, thousands of digits. What lies deeper than `MAX_DEPTH` becomes `RawJson`, so that the result
can be compared, copied and written by every other part.

Source: Go's encoding/json (decode.go: unquote, literalStore) and apimachinery's `util/json`, v1.37.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Generator
from typing import Any, Final

from berth_sdk.json.scanner import ScanError, skipped

MAX_DEPTH: Final = 128
"""The depth limit of parsed objects, in nested maps and lists. A deeper value is `RawJson`.

Every reader, writer and comparison of Python handles this depth; API servers admit 10 000 levels.
"""

_TOKEN: Final = re.compile(
    rb"[ \t\r\n]*+(?:"
    rb'("(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+")'
    rb"|(-?+(?:0|[1-9][0-9]*+)(\.[0-9]++)?+([eE][+-]?+[0-9]++)?+)(?![0-9.eE+-])"
    rb"|(true|false|null)(?![a-z])"
    rb"|([\[{\]},:]))"
)
_END: Final = re.compile(rb"[ \t\r\n]*+\Z")
_CLOSES: Final = {0x5B: re.compile(rb"[ \t\r\n]*+\]"), 0x7B: re.compile(rb"[ \t\r\n]*+\}")}
_COLON: Final = re.compile(rb"[ \t\r\n]*+:")
_WORDS: Final = {b"true": True, b"false": False, b"null": None}
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")
_REPLACEMENT: Final = "\ufffd"
_MOST_INT_DIGITS: Final = 20
"""The digits of the largest integer that stays an integer; a larger one is a float, as Go reads it."""
_TOKENS_PER_STEP: Final = 4_000
"""The number of values that are read between two yields: a few milliseconds' work."""
_STRING, _NUMBER, _FRACTION, _EXPONENT, _WORD, _MARK = range(1, 7)
_BRACE: Final = 0x7B
_GO_REPLACES: Final = "berth-go-replace"
_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**64 - 1


def _go_replace(err: UnicodeError) -> tuple[str, int]:
    """Replace each wrong byte by U+FFFD, as Go does; Python would replace some together."""
    if not isinstance(err, UnicodeDecodeError):
        raise err
    return _REPLACEMENT * (err.end - err.start), err.end


codecs.register_error(_GO_REPLACES, _go_replace)


def read_deep_json(document: bytes, depth: int = MAX_DEPTH) -> Any:
    """Return the value of a document, in one go. Raises ValueError for bytes that are no JSON."""
    steps = reading(document, depth)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def reading(document: bytes, depth: int = MAX_DEPTH) -> Generator[None, None, Any]:
    """Read a document; yield after every few milliseconds' work, and return the value.

    Of a repeated key the last value counts. Raises ValueError for bytes that are no JSON.
    """
    at, count = 0, 0
    opened: list[dict[str, Any] | list[Any]] = []
    keys: list[str] = []
    while True:
        count += 1
        if count >= _TOKENS_PER_STEP:
            count = 0
            yield
        token = _TOKEN.match(document, at)
        if token is None:
            raise ScanError(at)
        at = token.end()
        value: Any
        if token[_STRING] is not None:
            value = _text(token[_STRING])
        elif token[_NUMBER] is not None:
            value = _number(token[_NUMBER], is_whole=token[_FRACTION] is None and token[_EXPONENT] is None)
        elif token[_WORD] is not None:
            value = _WORDS[token[_WORD]]
        else:
            byte = document[at - 1]
            if byte not in _CLOSES:
                raise ScanError(at - 1)
            if len(opened) >= depth:
                start = at - 1
                at = yield from skipped(document, start)
                value = RawJson(document[start:at])
            else:
                value = {} if byte == _BRACE else []
                end = _CLOSES[byte].match(document, at)
                if end is None:
                    opened.append(value)
                    if byte == _BRACE:
                        at = _read_key(document, at, keys)
                    continue
                at = end.end()
        # A value has ended: put it in its place, and end each map and list that ends with it.
        while opened:
            within = opened[-1]
            if isinstance(within, dict):
                within[keys.pop()] = value
            else:
                within.append(value)
            token = _TOKEN.match(document, at)
            mark = None if token is None else token[_MARK]
            if token is None or mark is None:
                raise ScanError(at)
            at = token.end()
            if mark == b",":
                if isinstance(within, dict):
                    at = _read_key(document, at, keys)
                break
            if mark != (b"}" if isinstance(within, dict) else b"]"):
                raise ScanError(at - 1)
            value = opened.pop()
            count += 1
        if not opened:
            if _END.match(document, at) is None:
                raise ScanError(at)
            return value


def _read_key(document: bytes, at: int, keys: list[str]) -> int:
    """Append the key at `at` to `keys`; return the place after its colon."""
    token = _TOKEN.match(document, at)
    if token is None or token[_STRING] is None:
        raise ScanError(at)
    colon = _COLON.match(document, token.end())
    if colon is None:
        raise ScanError(token.end())
    keys.append(_text(token[_STRING]))
    return colon.end()


def _text(quoted: bytes) -> str:
    text = quoted.decode(errors=_GO_REPLACES)
    if "\\" not in text:
        return text[1:-1]
    read: str = json.loads(text)
    return _HALF_PAIR.sub(_REPLACEMENT, read)


def _number(text: bytes, *, is_whole: bool) -> int | float:
    if is_whole and len(text) <= _MOST_INT_DIGITS:
        value = int(text)
        if _MIN_INT <= value <= _MAX_INT:
            return value
    # Beyond the largest float: Go refuses such a number, and a quantity is capped far below.
    return max(-sys.float_info.max, min(sys.float_info.max, float(text)))


class RawJson:
    """One JSON value as bytes. Two are equal if their bytes are."""

    __slots__ = ("content",)

    content: bytes

    def __init__(self, content: bytes) -> None:
        object.__setattr__(self, "content", content)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("RawJson cannot be changed")

    def parsed(self) -> Any:
        """Return the value as Python's; its own deep parts are `RawJson`. Raises ValueError for no JSON."""
        return read_deep_json(self.content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RawJson) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)

    def __copy__(self) -> RawJson:
        return self

    def __deepcopy__(self, memo: Any) -> RawJson:
        return self

    def __reduce__(self) -> tuple[type[RawJson], tuple[bytes]]:
        return RawJson, (self.content,)

    def __repr__(self) -> str:
        return f"<{len(self.content)} bytes of JSON>"
