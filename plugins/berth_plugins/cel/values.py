"""The values of CEL, their equality, order and conversions.

| Type of CEL | Value |
|---|---|
| bool, int, double, string, bytes, null_type, list | bool, int, float, str, bytes, None, list |
| uint, map, timestamp, duration, optional_type | `Uint`, `MapValue`, `Timestamp`, `Duration`, `Optional` |
| type | `types.Type` |
| any other | a subclass of `Opaque` |

Source: `cel-go` common/types, v0.29.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from berth_sdk.rfc3339 import parse_time_ns

from berth_plugins.cel.errors import EvalError
from berth_plugins.cel.pieces import each
from berth_plugins.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Type,
    is_dyn,
    list_of,
    map_of,
    optional_of,
)
from berth_plugins.cel.work import spend

# A value of CEL is one of several unrelated Python types: see the table above.
Value = Any

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1
_SECOND: Final = 10**9
_FIRST_SECOND: Final = -62135596800
_LAST_SECOND: Final = 253402300799
# From this decimal exponent on, a number is written with an exponent.
_LONGEST_PLAIN: Final = 6

LIST: Final = list_of(DYN)
MAP: Final = map_of(DYN, DYN)
OPTIONAL: Final = optional_of(DYN)


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class Opaque(ABC):
    """A value that only functions look into. Each subclass is one type, and knows equal values."""

    __slots__ = ()
    cel_type: Type

    @abstractmethod
    def equals(self, other: Value) -> bool:
        """Compare with another value. Raises EvalError for a value of another type."""


class Timestamp:
    """A point in time, in nanoseconds since 1970. `offset_seconds`: the time zone in which it is written."""

    __slots__ = ("nanoseconds", "offset_seconds")

    def __init__(self, nanoseconds: int, offset_seconds: int = 0) -> None:
        if not _FIRST_SECOND <= nanoseconds // _SECOND <= _LAST_SECOND:
            raise EvalError("timestamp overflow")
        self.nanoseconds = nanoseconds
        self.offset_seconds = offset_seconds

    @property
    def moment(self) -> datetime:
        """The time in UTC, to the microsecond."""
        return _EPOCH + timedelta(microseconds=self.nanoseconds // 1000)

    def __str__(self) -> str:
        local = self.moment + timedelta(seconds=self.offset_seconds)
        text = local.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
        if rest := self.nanoseconds % _SECOND:
            text = f"{text}.{rest:09d}".rstrip("0")
        if not self.offset_seconds:
            return f"{text}Z"
        hours, minutes = divmod(abs(self.offset_seconds) // 60, 60)
        return f"{text}{'-' if self.offset_seconds < 0 else '+'}{hours:02d}:{minutes:02d}"


class Duration:
    """A span of time in nanoseconds."""

    __slots__ = ("nanoseconds",)

    def __init__(self, nanoseconds: int) -> None:
        if not INT_MIN <= nanoseconds <= INT_MAX:
            raise EvalError("integer overflow")
        self.nanoseconds = nanoseconds

    def __str__(self) -> str:
        return f"{plain_float(self.nanoseconds / _SECOND)}s"


class Optional:
    """A value that may be missing. `value` counts only if `has_value`."""

    __slots__ = ("has_value", "value")

    def __init__(self, value: Value = None, *, has_value: bool = True) -> None:
        self.value = value
        self.has_value = has_value

    def get(self) -> Value:
        """Return the value. Raises EvalError."""
        if not self.has_value:
            raise EvalError("optional.none() dereference")
        return self.value


NOTHING: Final = Optional(has_value=False)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class MapValue:
    """A map. Numbers of different types that are equal are one key. `default`: the value of every other key
    (`...`: there is none); `in`, the size and the iteration know nothing of it.
    """

    __slots__ = ("_entries", "default")

    def __init__(self, entries: Iterable[tuple[Value, Value]] = (), default: Value = ...) -> None:
        self._entries: dict[Any, tuple[Value, Value]] = {_as_key(key): (key, value) for key, value in entries}
        self.default = default

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Value) -> bool:
        return _as_key(key) in self._entries

    def find(self, key: Value) -> tuple[Value, bool]:
        """Return the value of a key, and True if it is there."""
        found = self._entries.get(_as_key(key))
        if found is not None:
            return found[1], True
        return (None, False) if self.default is ... else (self.default, True)

    def items(self) -> Iterator[tuple[Value, Value]]:
        """Return keys and values in the order of the entries."""
        return iter(self._entries.values())

    def insert(self, key: Value, value: Value) -> None:
        """Add an entry while the map is made. Raises EvalError for a key that is there."""
        if key in self:
            raise EvalError(f"insert failed: key {shown(key)} already exists")
        self._entries[_as_key(key)] = key, value


class GrowingList(list[Value]):
    """The list of an accumulator, which grows in place."""

    __slots__ = ()


class GrowingMap(MapValue):
    """The map of an accumulator, which grows in place."""

    __slots__ = ()


def _as_key(key: Value) -> Any:
    kind = type(key)
    if kind is str:
        return key
    if kind is bool:
        return (key,)
    if kind is int or kind is Uint:
        return int(key)
    if kind is float:
        return int(key) if key.is_integer() else (key, 0.0)
    if kind in (list, GrowingList, bytes):
        return (id(key), None)
    return (id(key), kind)


_TYPES: Final[dict[type, Type]] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
    list: LIST,
    GrowingList: LIST,
    MapValue: MAP,
    GrowingMap: MAP,
    Timestamp: TIMESTAMP,
    Duration: DURATION,
    Optional: OPTIONAL,
    Type: TYPE,
}


def type_of_value(value: Value) -> Type:
    """Return the type of a value at runtime. Lists and maps do not tell the types of what they hold."""
    found = _TYPES.get(type(value))
    if found is not None:
        return found
    declared: Type = value.cel_type
    return declared


def type_name(value: Value) -> str:
    """Return the name of a value's type at runtime."""
    return type_of_value(value).name


def has_type(wanted: Type, value: Value) -> bool:
    """Return True if an overload with such a parameter takes the value. Of a list or a map, the first entry
    speaks for all.
    """
    if is_dyn(wanted) or wanted.kind == "param":
        return True
    if wanted.name != type_name(value):
        return False
    if wanted.kind == "list":
        return not value or has_type(wanted.params[0], value[0])
    if wanted.kind == "map":
        for key, entry in value.items():
            return has_type(wanted.params[0], key) and has_type(wanted.params[1], entry)
    return True


def is_list(value: Value) -> bool:
    """Return True for a list."""
    return isinstance(value, list)


def is_number(value: Value) -> bool:
    """Return True for an int, a uint or a double."""
    return type(value) in (int, float, Uint)


# --- equality and order ---------------------------------------------------------------------------


def are_equal(one: Value, other: Value) -> bool:
    """Return True if two values are equal. Raises EvalError where kube-scheduler has no such comparison."""
    kind = type(one)
    if kind is str or kind is bool or kind is bytes:
        return type(other) is kind and bool(one == other)
    if kind is int or kind is float or kind is Uint:
        if kind is float or type(other) is float:
            return is_number(other) and float(one) == float(other)
        return is_number(other) and bool(one == other)
    if one is None or other is None:
        return one is other
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and _have_the_same(one, other)
    if isinstance(one, MapValue):
        return isinstance(other, MapValue) and len(one) == len(other) and _hold_the_same(one, other)
    if isinstance(one, Timestamp | Duration):
        return type(other) is kind and one.nanoseconds == other.nanoseconds
    if isinstance(one, Type):
        return isinstance(other, Type) and one.name == other.name
    if isinstance(one, Optional):
        if not isinstance(other, Optional) or one.has_value != other.has_value:
            return False
        return not one.has_value or are_equal(one.value, other.value)
    opaque: Opaque = one
    return opaque.equals(other)


def _have_the_same(one: list[Value], other: list[Value]) -> bool:
    spend(len(one))
    # A loop of its own: calls through C would take its stack, level by level.
    for value, second in each(zip(one, other, strict=True), len(one)):  # noqa: SIM110
        if not _seem_equal(value, second):
            return False
    return True


def _seem_equal(one: Value, other: Value) -> bool:
    """Compare entries of lists and maps. Entries that cannot be compared count as equal, as upstream."""
    try:
        return are_equal(one, other)
    except EvalError:
        return True


def _hold_the_same(one: MapValue, other: MapValue) -> bool:
    spend(len(one))
    for key, value in each(one.items(), len(one)):
        second, found = other.find(key)
        if not found or not _seem_equal(value, second):
            return False
    return True


def holds(values: list[Value], wanted: Value) -> bool:
    """Return True if a list has an equal element. An element that cannot be compared is none."""
    spend(len(values))
    for value in each(values, len(values)):
        try:
            if are_equal(wanted, value):
                return True
        except EvalError:
            continue
    return False


def compare(one: Value, other: Value) -> int:
    """Return -1, 0 or 1. Raises EvalError."""
    if is_number(one) and is_number(other):
        if one != one or other != other:
            raise EvalError("NaN values cannot be ordered")
        if type(one) is float or type(other) is float:
            return _float_order(one, other)
    elif type(one) is not type(other) or type(one) not in ORDERED:
        raise EvalError("no such overload")
    elif isinstance(one, Timestamp | Duration):
        one, other = one.nanoseconds, other.nanoseconds
    return int(one > other) - int(one < other)


def _float_order(one: float, other: float) -> int:
    """Compare numbers of which one is a double. An integer is rounded to a double, as upstream."""
    first, second = float(one), float(other)
    return int(first > second) - int(first < second)


ORDERED: Final = frozenset({bool, int, Uint, float, str, bytes, Timestamp, Duration})


# --- texts ------------------------------------------------------------------------------------------


def shown(value: Value) -> str:
    """Return a value as error messages write it."""
    if value is None:
        return "NULL_VALUE"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return short_float(value)
    if isinstance(value, Type):
        return value.name
    if isinstance(value, bytes):
        return f"[{' '.join(map(str, value))}]"
    if isinstance(value, list):
        spend(len(value))
        return f"[{', '.join([shown(one) for one in each(value, len(value))])}]"
    if isinstance(value, MapValue):
        spend(len(value))
        entries = each(value.items(), len(value))
        return f"{{{', '.join([f'{shown(key)}: {shown(entry)}' for key, entry in entries])}}}"
    if isinstance(value, Optional):
        return f"optional({shown(value.value)})" if value.has_value else "optional.none()"
    return str(value)


def short_float(value: float) -> str:
    """Return the shortest text of a number: `1e+06` from a million on."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    digits, exponent = _digits(value)
    if -4 <= exponent < _LONGEST_PLAIN:
        return plain_float(value)
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}{rest}e{exponent:+03d}"


def plain_float(value: float) -> str:
    """Return the shortest text of a finite number without an exponent."""
    return f"{Decimal(repr(value)):f}".removesuffix(".0")


def _digits(value: float) -> tuple[str, int]:
    """Return the shortest digits of a number, and the decimal exponent of the first."""
    _, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits))
    return text.rstrip("0") or "0", len(text) + int(exponent) - 1


# --- conversions -----------------------------------------------------------------------------------

_INT_TEXT: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UINT_TEXT: Final = re.compile(r"[0-9]+", re.ASCII)
_FLOAT_TEXT: Final = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan"
    r"|0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)",
    re.ASCII | re.IGNORECASE,
)
_BOOL_TEXTS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_DURATION_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


def to_type(value: Value, wanted: Type) -> Value:
    """Convert a value. Raises EvalError."""
    if wanted is TYPE:
        return type_of_value(value)
    convert = _CONVERSIONS.get((type(value), wanted.name))
    if convert is not None:
        try:
            return convert(value)
        except (ValueError, OverflowError):
            pass
    elif type_name(value) == wanted.name:
        return value
    raise EvalError(f"type conversion error from '{type_name(value)}' to '{wanted.name}'")


def checked_int(number: int) -> int:
    """Return an int. Raises EvalError if it does not fit."""
    if INT_MIN <= number <= INT_MAX:
        return number
    raise EvalError("integer overflow")


def checked_uint(number: int) -> Uint:
    """Return a uint. Raises EvalError if it does not fit."""
    if 0 <= number <= UINT_MAX:
        return Uint(number)
    raise EvalError("unsigned integer overflow")


def _float_to_int(number: float) -> int:
    if not math.isfinite(number) or number <= INT_MIN or number >= INT_MAX:
        raise EvalError("integer overflow")
    return int(number)


def _float_to_uint(number: float) -> Uint:
    if not math.isfinite(number) or number < 0 or number >= UINT_MAX:
        raise EvalError("unsigned integer overflow")
    return Uint(int(number))


def _text_to_int(text: str) -> int:
    if _INT_TEXT.fullmatch(text) is None or not INT_MIN <= int(text) <= INT_MAX:
        raise ValueError(text)
    return int(text)


def _text_to_uint(text: str) -> Uint:
    if _UINT_TEXT.fullmatch(text) is None or int(text) > UINT_MAX:
        raise ValueError(text)
    return Uint(int(text))


def text_to_float(text: str) -> float:
    """Read a double. Raises ValueError."""
    if _FLOAT_TEXT.fullmatch(text) is None:
        raise ValueError(text)
    number = float.fromhex(text) if "x" in text.lower() else float(text)
    if math.isinf(number) and "inf" not in text.lower():
        raise ValueError(text)
    return number


def _text_to_bool(text: str) -> bool:
    if text not in _BOOL_TEXTS:
        raise ValueError(text)
    return _BOOL_TEXTS[text]


def text_to_duration(text: str) -> Duration:
    """Read a duration such as `1h30m`. Raises ValueError."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return Duration(0)
    if not rest:
        raise ValueError(text)
    total = 0
    while rest:
        match = _DURATION_PART.match(rest)
        if match is None or not (match[1] or match[2]):
            raise ValueError(text)
        unit = _UNITS[match[3]]
        total += int(match[1] or "0") * unit
        if match[2]:
            total += int(match[2]) * unit // 10 ** len(match[2])
        rest = rest[match.end() :]
    if total > INT_MAX + (sign < 0):
        raise ValueError(text)
    return Duration(sign * total)


def text_to_timestamp(text: str) -> Timestamp:
    """Read a time as RFC 3339 writes it. Raises ValueError, or EvalError for a year out of range."""
    try:
        return Timestamp(*parse_time_ns(text))
    except ValueError:
        # Go has a year 0, which is out of CEL's range; Python has none.
        if text.startswith("0000-"):
            parse_time_ns(f"0004{text[4:]}")  # A leap year, as 0 is.
            raise EvalError("timestamp overflow") from None
        raise


def _bytes_to_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as err:
        raise EvalError("invalid UTF-8 in bytes, cannot convert to string") from err


_CONVERSIONS: Final[dict[tuple[type, str], Any]] = {
    (int, "uint"): checked_uint,
    (int, "double"): float,
    (int, "string"): str,
    (int, TIMESTAMP.name): lambda value: Timestamp(value * _SECOND),
    (Uint, "int"): lambda value: checked_int(int(value)),
    (Uint, "double"): float,
    (Uint, "string"): lambda value: str(int(value)),
    (float, "int"): _float_to_int,
    (float, "uint"): _float_to_uint,
    (float, "string"): short_float,
    (str, "int"): _text_to_int,
    (str, "uint"): _text_to_uint,
    (str, "double"): text_to_float,
    (str, "bool"): _text_to_bool,
    (str, "bytes"): str.encode,
    (str, DURATION.name): text_to_duration,
    (str, TIMESTAMP.name): text_to_timestamp,
    (bytes, "string"): _bytes_to_text,
    (bool, "string"): shown,
    (type(None), "string"): lambda _: "null",
    (Timestamp, "string"): str,
    (Timestamp, "int"): lambda value: value.nanoseconds // _SECOND,
    (Duration, "string"): str,
    (Duration, "int"): lambda value: value.nanoseconds,
    (Type, "string"): lambda value: value.name,
}
