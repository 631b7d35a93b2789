"""A JSON text -> SourceNode. Called by `documents` for a file whose first character is `{`.

kube-scheduler reads such a file as JSON and nothing else: no comments, no second document. A number with a
fraction or an exponent is a float: Go reads no integer from `4.0`. Source: sigs.k8s.io/json, encoding/json.
"""

from __future__ import annotations

import json
import re
from typing import Final

from berth_sdk.yaml.reader import MAX_DEPTH
from berth_sdk.yaml.scalars import Scalar

from berth_host.config.source.node import (
    Member,
    RepeatedKey,
    SourceError,
    SourceNode,
)

_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_LITERALS: Final[dict[str, Scalar]] = {"true": True, "false": False, "null": None}


def read_json_source(text: str) -> SourceNode:
    """Read a whole text as one JSON value. Raises SourceError."""
    reader = _Reader(text)
    root = reader.value(0)
    reader.skip_space()
    if reader.position < len(text):
        raise reader.error(f"invalid character {reader.peek()!r} after top-level value")
    return root


class _Reader:
    """A cursor over the text; recursive, so depth is limited."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._strings = json.JSONDecoder()
        self.position = 0
        self._counted = 0
        self._line = 1

    def peek(self) -> str:
        """Return the next character, empty at the end."""
        return self._text[self.position : self.position + 1]

    def skip_space(self) -> None:
        """Move over white space."""
        matched = _SPACE.match(self._text, self.position)
        self.position = matched.end() if matched else self.position

    def line(self) -> int:
        """Return the line of the cursor, from 1."""
        self._line += self._text.count("\n", self._counted, self.position)
        self._counted = max(self._counted, self.position)
        return self._line

    def error(self, message: str) -> SourceError:
        """Return an error at the cursor."""
        return SourceError(f"json: {message}", self.line())

    def value(self, depth: int) -> SourceNode:
        """Read one value."""
        if depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels")
        self.skip_space()
        line = self.line()
        match self.peek():
            case "{":
                return self._object(depth, line)
            case "[":
                return self._array(depth, line)
            case '"':
                return SourceNode(self._string(), line)
            case "":
                raise self.error("unexpected end of JSON input")
            case _:
                return SourceNode(self._word(), line)

    def _object(self, depth: int, line: int) -> SourceNode:
        members: dict[str, Member] = {}
        repeated: list[RepeatedKey] = []
        self.position += 1
        while not self._closes("}", is_first=not members):
            self.skip_space()
            key_line = self.line()
            if self.peek() != '"':
                raise self.error(
                    f"invalid character {self.peek()!r} looking for an object key "
                    "string (a file that begins with { is read as JSON)"
                )
            key = self._string()
            self.skip_space()
            self._expect(":", "after object key")
            if key in members:
                repeated.append(RepeatedKey(key, key_line))
            members[key] = Member(key_line, self.value(depth + 1))
        return SourceNode.of_mapping(members, line, tuple(repeated))

    def _array(self, depth: int, line: int) -> SourceNode:
        items: list[SourceNode] = []
        self.position += 1
        while not self._closes("]", is_first=not items):
            items.append(self.value(depth + 1))
        return SourceNode.of_list(tuple(items), line)

    def _closes(self, bracket: str, *, is_first: bool) -> bool:
        """Move over the closing bracket, or over the comma before the next entry."""
        self.skip_space()
        if self.peek() == bracket:
            self.position += 1
            return True
        if not is_first:
            self._expect(",", f"looking for , or {bracket}")
        return False

    def _expect(self, character: str, where: str) -> None:
        if self.peek() != character:
            raise self.error(f"invalid character {self.peek()!r} {where}")
        self.position += 1

    def _string(self) -> str:
        try:
            value, self.position = self._strings.raw_decode(self._text, self.position)
        except json.JSONDecodeError as err:
            self.position = err.pos
            raise self.error(err.msg) from err
        # A lone surrogate cannot be written as UTF-8; Go puts the replacement character in its place.
        return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _word(self) -> Scalar:
        for word, value in _LITERALS.items():
            if self._text.startswith(word, self.position):
                self.position += len(word)
                return value
        matched = _NUMBER.match(self._text, self.position)
        if matched is None:
            raise self.error(f"invalid character {self.peek()!r} looking for beginning of value")
        self.position = matched.end()
        if matched.group(1) or matched.group(2):
            return float(matched.group())
        if len(matched.group()) > 400:
            raise self.error("a number of more than 400 digits")
        return int(matched.group())
