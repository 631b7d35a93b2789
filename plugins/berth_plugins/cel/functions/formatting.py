"""`format`: a text with clauses such as `%s` and `%.2f`, as version 2 of the library writes them.

Numbers with a point are written as in English: with a comma after each three digits.

Source: `cel-go` ext/formatting.go, v0.29.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from berth_plugins.cel.errors import EvalError
from berth_plugins.cel.pieces import each
from berth_plugins.cel.types import STRING, Type
from berth_plugins.cel.values import (
    Duration,
    MapValue,
    Timestamp,
    Uint,
    Value,
    is_list,
    shown,
    to_type,
    type_name,
)
from berth_plugins.cel.work import spend, spend_on_text

_PRECISION: Final = re.compile(r"\.([0-9]*)", re.ASCII)
_DIGITS: Final = 6
_MAX_DIGITS: Final = 19
_SUPERSCRIPTS: Final = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")
_INFINITIES: Final = frozenset({"NaN", "Infinity", "-Infinity"})
WANTED: Final = {
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, "
    "durations, and timestamps",
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "x": "only integers, byte buffers, and strings can be formatted as hex",
    "X": "only integers, byte buffers, and strings can be formatted as hex",
    "o": "octal clause can only be used on integers",
}


class Clause(NamedTuple):
    """One clause. `precision`: the digits after the point."""

    kind: str
    precision: int


def parts_of(text: str, count: int) -> Iterator[str | Clause]:
    """Return the texts and clauses of a format text with so many arguments. Raises EvalError."""
    at = used = 0
    while at < len(text):
        if text[at] != "%":
            end = text.find("%", at)
            end = len(text) if end < 0 else end
            yield text[at:end]
            at = end
            continue
        if text[at + 1 : at + 2] == "%":
            yield "%"
            at += 2
            continue
        if used >= count:
            raise EvalError(f"index {used} out of range")
        at += 1
        if at >= len(text):
            raise EvalError("unexpected end of string")
        match = _PRECISION.match(text, at)
        at = at if match is None else match.end()
        if match is not None and at >= len(text):
            raise _unreadable("error while parsing precision: could not find end of precision specifier")
        if match is not None and not match[1]:
            raise _unreadable(
                "error while parsing precision: error while converting precision to integer: "
                'strconv.Atoi: parsing "": invalid syntax'
            )
        digits = _DIGITS if match is None else int(match[1][:_MAX_DIGITS])
        if match is not None and len(match[1].lstrip("0")) >= _MAX_DIGITS:
            raise _unreadable(
                "error while parsing precision: error while converting precision to integer: "
                f"strconv.Atoi: parsing {quoted(match[1])}: value out of range"
            )
        kind = text[at]
        if kind not in WANTED:
            raise _unreadable(f'unrecognized formatting clause "{kind}"')
        yield Clause(kind, digits)
        at += 1
        used += 1


def _unreadable(reason: str) -> EvalError:
    return EvalError(f"could not parse formatting clause: {reason}")


def format_text(text: str, args: list[Value]) -> str:
    """Return the text with its clauses replaced by the arguments. Raises EvalError."""
    found: list[str] = []
    waiting = iter(args)
    for part in parts_of(text, len(args)):
        found.append(part if isinstance(part, str) else _clause(part, next(waiting)))
    return "".join(found)


def _clause(clause: Clause, value: Value) -> str:
    if clause.kind in "fe":
        return _number(clause, value)
    written = _WRITERS[clause.kind](value)
    if written is None:
        raise refused(clause.kind, type_name(value))
    return written


def refused(kind: str, name: str) -> EvalError:
    """Return the error for an argument of a type that a clause does not write."""
    return EvalError(f"error during formatting: {WANTED[kind]}, was given {name}")


def _number(clause: Clause, value: Value) -> str:
    if isinstance(value, str) and value in _INFINITIES:
        value = float(value.replace("Infinity", "inf"))
    if type(value) is not float:
        raise refused(clause.kind, type_name(value))
    spend_on_text(clause.precision)
    if math.isnan(value) or math.isinf(value):
        text = "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
        return text if clause.kind == "f" else text.rjust(clause.precision)
    if clause.kind == "f":
        return f"{value:,.{clause.precision}f}"
    mantissa, _, exponent = f"{value:.{_DIGITS}e}".partition("e")
    power = f"{'-' if exponent[0] == '-' else ''}{exponent[1:]}"
    return f"{mantissa}×10{power.translate(_SUPERSCRIPTS)}".rjust(clause.precision)


def _text(value: Value) -> str | None:
    if is_list(value):
        return _list(value)
    if isinstance(value, MapValue):
        return _map(value)
    if value is None or isinstance(value, bool | int | float | str | bytes | Timestamp | Duration | Type):
        return str(to_type(value, STRING))
    return None


def _list(values: list[Value]) -> str:
    spend(len(values))
    return f"[{', '.join([_inner(one) for one in each(values, len(values))])}]"


def _map(values: MapValue) -> str:
    entries: list[tuple[str, str]] = []
    spend(len(values))
    for key, value in each(values.items(), len(values)):
        if type(key) not in (str, bool, int, Uint):
            raise EvalError(
                f"error during formatting: no formatting function for map key of type {type_name(key)}"
            )
        entries.append((_inner(key), _inner(value)))
    return f"{{{', '.join(f'{key}:{value}' for key, value in sorted(entries, key=lambda one: one[0]))}}}"


def _inner(value: Value) -> str:
    """Return a value as it is written inside of a list or a map."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bytes):
        return f"b{quoted(str(to_type(value, STRING)))}"
    if isinstance(value, Timestamp):
        return f"timestamp({quoted(str(value))})"
    if isinstance(value, Duration):
        return f"duration({quoted(str(value))})"
    if type(value) is float:
        if math.isnan(value) or math.isinf(value):
            return quoted(shown(value))
        return f"{value:.{_DIGITS}f}"
    written = _text(value)
    if written is None:
        raise EvalError(f"error during formatting: no formatting function for {type_name(value)}")
    return written


def quoted(text: str) -> str:
    """Return a text in quotes, as Go's `%q` writes it."""
    spend_on_text(len(text))
    found: list[str] = []
    for one in each(text, len(text)):
        if one in _ESCAPES:
            found.append(_ESCAPES[one])
        elif one.isprintable():
            found.append(one)
        elif ord(one) < 0x80:
            found.append(f"\\x{ord(one):02x}")
        else:
            found.append(f"\\u{ord(one):04x}" if ord(one) < 0x10000 else f"\\U{ord(one):08x}")
    return f'"{"".join(found)}"'


_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def _integer(value: Value) -> int | None:
    return int(value) if type(value) in (int, Uint) else None


def _signed(value: Value, kind: str) -> str | None:
    number = _integer(value)
    return None if number is None else format(number, kind)


def _binary(value: Value) -> str | None:
    if isinstance(value, bool):
        return "1" if value else "0"
    return _signed(value, "b")


def _hex(value: Value) -> str | None:
    if isinstance(value, str):
        return value.encode().hex()
    return value.hex() if isinstance(value, bytes) else _signed(value, "x")


def _upper_hex(value: Value) -> str | None:
    found = _hex(value)
    return None if found is None else found.upper()


_WRITERS: Final[dict[str, Callable[[Any], str | None]]] = {
    "s": _text,
    "d": lambda value: _signed(value, "d"),
    "b": _binary,
    "x": _hex,
    "X": _upper_hex,
    "o": lambda value: _signed(value, "o"),
}
