"""The first JSON value of a body, and typed values of it, as Go's encoding/json reads them.

Keys match without regard to case, unknown keys are ignored, null leaves a value as it is, a repeated key adds
to the value before, and bytes after the first value do not matter. Errors have Go's words: those of the
syntax first, then that of the first value of a wrong type.

`answers` calls it for a body that is not plain, because it is slow. Go reads 10000
levels; Python's parser reads about 1000 in 3.11, and more in newer versions.
Source: Go `encoding/json` (scanner.go, decode.go), 1.26.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from berth_host.errors.extenders import ExtenderOutcomeUnknownError

INVALID: Final = "violation"
"""The outcome of an answer that cannot be read."""
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
_CUT_OFF: Final = "unexpected EOF"
_SPACE: Final = " \t\r\n"
_LITERALS: Final = {"t": "true", "f": "false", "n": "null"}
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_INTEGER: Final = re.compile(r"-?\d+", re.ASCII)
_MOST_DIGITS: Final = 20
_NUMBER: Final = frozenset("0123456789+-.eE")
# Letters that are equal to s and k where case does not matter.
_FOLDED: Final = {0x17F: "s", 0x212A: "k"}


@dataclass(frozen=True, slots=True)
class Text:
    """A Go string."""

    go_type: str = "string"


@dataclass(frozen=True, slots=True)
class Int64:
    """A Go int64."""

    go_type: str = "int64"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A Go slice. None for nil."""

    go_type: str
    element: Kind


@dataclass(frozen=True, slots=True)
class MapOf:
    """A Go map with strings as keys. None for nil."""

    go_type: str
    element: Kind


@dataclass(frozen=True, slots=True)
class Pointer:
    """A Go pointer. None for nil."""

    to: Kind


class Struct:
    """A Go struct, read as a dict of the given fields by name. Fields that are left out are not read."""

    def __init__(self, name: str, fields: Mapping[str, Kind]) -> None:
        self.name = name
        self.go_type = f"v1.{name}"
        self.fields = fields
        self.by_key = {folded(field): (field, kind) for field, kind in fields.items()}


Kind = Text | Int64 | ListOf | MapOf | Pointer | Struct


def folded(key: str) -> str:
    """Return a key in the form in which equal keys are the same."""
    return key.lower() if key.isascii() else key.translate(_FOLDED).lower()


def read(body: bytes, kind: Kind) -> Any:
    """Return the first value of `body` as `kind`. Raises ExtenderError with Go's words."""
    value = _first_value(body)
    reading = _Reading()
    result = reading.into(value, kind, _zero(kind))
    if reading.problem:
        _fail(reading.problem)
    return result


# --- syntax --------------------------------------------------------------------------------------


class _Pairs(list[tuple[str, Any]]):
    """An object, with repeated keys."""


class _Number(str):
    """A number, as the body writes it."""

    __slots__ = ()


def _no_constant(name: str) -> NoReturn:
    _fail(
        "invalid character 'I' in numeric literal"
        if name.startswith("-")
        else f"invalid character '{name[0]}' looking for beginning of value"
    )


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant
)


def _first_value(body: bytes) -> Any:
    # As in Go, the errors of the syntax are about bytes: each is one character here.
    bare = body.decode("latin-1").lstrip(_SPACE)
    if not bare:
        _fail("EOF")
    text = body.decode("utf-8", "replace").lstrip(_SPACE)
    try:
        value, end = _DECODER.raw_decode(text)
    except json.JSONDecodeError:
        _fail(_syntax_problem(bare))
    except RecursionError:
        _fail("exceeded max depth")
    if type(value) is _Number and (problem := _number_problem(text, end)):
        _fail(problem)
    return value


def _fail(text: str) -> NoReturn:
    raise ExtenderOutcomeUnknownError(text, INVALID) from None


def _syntax_problem(text: str) -> str:
    """Return Go's words for what is wrong with `text`, which holds a byte in each character."""
    try:
        _DECODER.raw_decode(text)
    except json.JSONDecodeError as err:
        return _problem_at(text, err.pos, err.msg)
    return "invalid UTF-8"  # pragma: no cover  # bytes above 127 are valid in strings alone, in both forms


def _problem_at(text: str, place: int, said: str) -> str:
    """Return Go's words for the error that Python's reader found. `said`: its words."""
    if said.startswith("Illegal trailing comma"):
        place += 1
        while text[place] in _SPACE:
            place += 1
        what = "object key string" if text[place] == "}" else "value"
        return _unexpected(text, place, f"looking for beginning of {what}")
    if said.startswith("Unterminated string"):
        return _CUT_OFF
    if said.startswith("Expecting property name"):
        return _unexpected(text, place, "looking for beginning of object key string")
    if said.startswith("Expecting ':'"):
        return _unexpected(text, place, "after object key")
    if said.startswith("Expecting ','"):
        if problem := _number_problem(text, place):
            return problem
        inside = "object key:value pair" if _innermost(text, place) == "{" else "array element"
        return _unexpected(text, place, f"after {inside}")
    if said.startswith("Invalid control"):
        return _unexpected(text, place, "in string literal")
    if said.startswith("Invalid \\u"):
        place = text.index("u", place) + 1
        while text[place : place + 1] in _HEX:
            place += 1
        return _unexpected(text, place, "in \\u hexadecimal character escape")
    if said.startswith("Invalid"):
        # The place is that of the backslash.
        return _unexpected(text, place + 1, "in string escape code")
    return _value_problem(text, place)


def _value_problem(text: str, place: int) -> str:
    """Return what is wrong with the value that begins at `place`."""
    first = text[place : place + 1]
    if first == "-":
        return _unexpected(text, place + 1, "in numeric literal")
    literal = _LITERALS.get(first)
    if literal is None:
        return _unexpected(text, place, "looking for beginning of value")
    count = 1
    while text[place + count : place + count + 1] == literal[count]:
        count += 1
    return _unexpected(text, place + count, f"in literal {literal} (expecting {_quoted(literal[count])})")


def _number_problem(text: str, end: int) -> str:
    """Return what is wrong with a number of which Python read the part before `end`; "" for nothing."""
    follows = text[end : end + 1]
    if follows not in (".", "e", "E"):
        return ""
    start = end
    while start and text[start - 1] in _NUMBER:
        start -= 1
    number = text[start:end].lower()
    if not number or "e" in number or (follows == "." and "." in number):
        return ""
    if follows == ".":
        return _unexpected(text, end + 1, "after decimal point in numeric literal")
    signed = text[end + 1 : end + 2] in ("+", "-")
    return _unexpected(text, end + 1 + signed, "in exponent of numeric literal")


def _innermost(text: str, end: int) -> str:
    """Return the bracket that is open before `end`."""
    open_brackets: list[str] = []
    for token in _TOKEN.finditer(text, 0, end):
        bracket = token[0]
        if bracket in "[{":
            open_brackets.append(bracket)
        elif bracket in "]}" and open_brackets:
            open_brackets.pop()
    return open_brackets[-1] if open_brackets else ""


def _unexpected(text: str, place: int, where: str) -> str:
    return f"invalid character {_quoted(text[place])} {where}" if place < len(text) else _CUT_OFF


_ESCAPED: Final = {"'": "\\'", "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"} | {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\v": "\\v",
}


def _quoted(character: str) -> str:
    shown = _ESCAPED.get(character, character)
    if not shown.isprintable():
        shown = f"\\x{ord(character):02x}" if character.isascii() else f"\\u{ord(character):04x}"
    return f"'{shown}'"


# --- types ---------------------------------------------------------------------------------------


class _Reading:
    """One value on its way into Go's types. `problem`: the first value of a wrong type, in Go's words."""

    def __init__(self) -> None:
        self.problem = ""
        self._struct = ""
        self._path: list[str] = []

    def into(self, value: Any, kind: Kind, have: Any) -> Any:
        """Return `value` as `kind`. `have`: what the place holds, which counts where nothing replaces it."""
        if isinstance(kind, Pointer):
            if value is None:
                return None
            return self.into(value, kind.to, _zero(kind.to) if have is None else have)
        if value is None:
            return None if type(kind) is ListOf or type(kind) is MapOf else have
        if type(kind) is Text and type(value) is str:
            return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
        if type(kind) is Int64 and type(value) is _Number:
            return self._integer(value, have)
        if type(kind) is ListOf and type(value) is list:
            return self._list(value, kind, have)
        if type(kind) is MapOf and type(value) is _Pairs:
            have = {} if have is None else have
            for key, item in value:
                name = _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", key)
                have[name] = self.into(item, kind.element, _zero(kind.element))
            return have
        if type(kind) is Struct and type(value) is _Pairs:
            return self._fields(value, kind, have)
        self._mismatch(_go_kind(value), kind.go_type)
        return have

    def _integer(self, number: _Number, have: Any) -> Any:
        if _INTEGER.fullmatch(number) and len(number) <= _MOST_DIGITS:
            value = int(number)
            if INT64_MIN <= value <= INT64_MAX:
                return value
        self._mismatch(f"number {number}", "int64")
        return have

    def _list(self, values: list[Any], kind: ListOf, have: Any) -> list[Any]:
        before = have or []
        return [
            self.into(item, kind.element, before[i] if i < len(before) else _zero(kind.element))
            for i, item in enumerate(values)
        ]

    def _fields(self, pairs: _Pairs, kind: Struct, have: dict[str, Any]) -> dict[str, Any]:
        outer = self._struct
        for key, item in pairs:
            found = kind.by_key.get(folded(key))
            if found is None:
                continue
            name, field_kind = found
            self._struct = kind.name
            self._path.append(name)
            have[name] = self.into(item, field_kind, have[name])
            self._path.pop()
            self._struct = outer
        return have

    def _mismatch(self, found: str, go_type: str) -> None:
        where = f"struct field {self._struct}.{'.'.join(self._path)}" if self._path else "value"
        self.problem = self.problem or f"json: cannot unmarshal {found} into Go {where} of type {go_type}"


def _zero(kind: Kind) -> Any:
    if type(kind) is Text:
        return ""
    if type(kind) is Int64:
        return 0
    if type(kind) is Struct:
        return {name: _zero(field) for name, field in kind.fields.items()}
    return None


def _go_kind(value: Any) -> str:
    if type(value) is _Number:
        return "number"
    if type(value) is _Pairs:
        return "object"
    return {str: "string", bool: "bool", list: "array"}[type(value)]
