"""Operators, sizes and conversions.

Source: `cel-go` common/stdlib/standard.go and common/types, v0.29.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from berth_plugins.cel import types
from berth_plugins.cel.errors import EvalError
from berth_plugins.cel.values import (
    INT_MIN,
    ORDERED,
    Duration,
    GrowingList,
    MapValue,
    Timestamp,
    Uint,
    Value,
    checked_int,
    checked_uint,
    compare,
    holds,
    is_list,
    to_type,
    type_of_value,
)
from berth_plugins.cel.work import spend, spend_on_text

_ADDED: Final = frozenset({bytes, float, int, Uint, str, list, GrowingList, Duration, Timestamp})
_SUBTRACTED: Final = frozenset({float, int, Uint, Duration, Timestamp})
_MULTIPLIED: Final = frozenset({float, int, Uint})
_DIVIDED_WITH_REST: Final = frozenset({int, Uint})
_NEGATED: Final = frozenset({float, int, bool, Duration})
_SIZED: Final = frozenset({bytes, str, list, GrowingList, MapValue})


def no_overload() -> EvalError:
    """Return the error for a value of a type that a function does not take."""
    return EvalError("no such overload")


def _guarded(function: str, kinds: frozenset[type]) -> Callable[[Value], None]:
    def guard(value: Value) -> None:
        if type(value) not in kinds and not (isinstance(value, MapValue) and MapValue in kinds):
            raise EvalError(f"no such overload: {function}")

    return guard


_can_add = _guarded("_+_", _ADDED)
_can_subtract = _guarded("_-_", _SUBTRACTED)
_can_multiply = _guarded("_*_", _MULTIPLIED)
_can_divide = _guarded("_/_", _MULTIPLIED)
_can_take_rest = _guarded("_%_", _DIVIDED_WITH_REST)
_has_size = _guarded("size", _SIZED)


def add(left: Value, right: Value) -> Value:
    """Return the sum of two numbers or times, or two texts or lists in one."""
    _can_add(left)
    kind = type(left)
    if kind is GrowingList and is_list(right):
        left.extend(right)
        return left
    if kind is list and is_list(right):
        spend(len(left) + len(right))
        return left + list(right)
    if isinstance(left, Duration | Timestamp) and isinstance(right, Duration | Timestamp):
        return _add_times(left, right)
    if type(right) is not kind:
        raise no_overload()
    if kind is int:
        return checked_int(left + right)
    if kind is Uint:
        return checked_uint(int(left) + int(right))
    if kind is not float:
        spend_on_text(len(left) + len(right))
    return left + right


def _add_times(left: Duration | Timestamp, right: Duration | Timestamp) -> Duration | Timestamp:
    total = left.nanoseconds + right.nanoseconds
    if isinstance(left, Timestamp):
        if isinstance(right, Timestamp):
            raise no_overload()
        return Timestamp(total, left.offset_seconds)
    if isinstance(right, Timestamp):
        return Timestamp(total, right.offset_seconds)
    return Duration(total)


def subtract(left: Value, right: Value) -> Value:
    """Return the difference of two numbers or times."""
    _can_subtract(left)
    kind = type(left)
    if kind is Timestamp and isinstance(right, Duration):
        return Timestamp(left.nanoseconds - right.nanoseconds, left.offset_seconds)
    if type(right) is not kind:
        raise no_overload()
    if kind is int:
        return checked_int(left - right)
    if kind is Uint:
        return checked_uint(int(left) - int(right))
    if kind is float:
        return left - right
    return Duration(left.nanoseconds - right.nanoseconds)


def multiply(left: Value, right: Value) -> Value:
    """Return the product of two numbers of one type."""
    _can_multiply(left)
    if type(right) is not type(left):
        raise no_overload()
    if type(left) is int:
        return checked_int(left * right)
    return left * right if type(left) is float else checked_uint(int(left) * int(right))


def divide(left: Value, right: Value) -> Value:
    """Return the quotient of two numbers of one type. Integers are rounded towards zero."""
    _can_divide(left)
    if type(right) is not type(left):
        raise no_overload()
    if type(left) is float:
        return _divide_floats(left, right)
    if right == 0:
        raise EvalError("division by zero")
    quotient = abs(int(left)) // abs(int(right))
    if type(left) is Uint:
        return Uint(quotient)
    return checked_int(-quotient if (left < 0) != (right < 0) else quotient)


def _divide_floats(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def rest(left: Value, right: Value) -> Value:
    """Return the rest of a division. It has the sign of the dividend."""
    _can_take_rest(left)
    if type(right) is not type(left):
        raise no_overload()
    if right == 0:
        raise EvalError("modulus by zero")
    if type(left) is Uint:
        return Uint(int(left) % int(right))
    if left == INT_MIN and right == -1:
        raise EvalError("integer overflow")
    found = abs(left) % abs(right)
    return -found if left < 0 else found


def negate(value: Value) -> Value:
    """Return the negative of a number or a duration."""
    if type(value) is bool:
        return not value
    if type(value) not in _NEGATED:
        raise no_overload()
    if isinstance(value, Duration):
        return Duration(-value.nanoseconds)
    return checked_int(-value) if type(value) is int else -value


def invert(value: Value) -> Value:
    """Return the opposite of a truth value."""
    if type(value) is not bool:
        raise no_overload()
    return not value


def _ordering(function: str, accepts: Callable[[int], bool]) -> Callable[[Value, Value], bool]:
    def ordered(left: Value, right: Value) -> bool:
        if type(left) not in ORDERED:
            raise EvalError(f"no such overload: {function}")
        return accepts(compare(left, right))

    return ordered


def contains(wanted: Value, aggregate: Value) -> bool:
    """Return True if a list has the element, or a map the key."""
    if isinstance(aggregate, MapValue):
        return wanted in aggregate
    if is_list(aggregate):
        return holds(aggregate, wanted)
    raise no_overload()


def size(value: Value) -> int:
    """Return the count of code points, bytes, elements or entries."""
    _has_size(value)
    return len(value)


# Functions with one effect for all their overloads. They check the types of their arguments themselves.
SINGLETONS: Final[dict[str, Callable[..., Any]]] = {
    "!_": invert,
    "-_": negate,
    "_+_": add,
    "_-_": subtract,
    "_*_": multiply,
    "_/_": divide,
    "_%_": rest,
    "_<_": _ordering("_<_", lambda order: order < 0),
    "_<=_": _ordering("_<=_", lambda order: order <= 0),
    "_>_": _ordering("_>_", lambda order: order > 0),
    "_>=_": _ordering("_>=_", lambda order: order >= 0),
    "@in": contains,
    "size": size,
    "type": type_of_value,
    "dyn": lambda value: value,
}

# Functions whose constant calls are evaluated when the expression is compiled.
CONVERSIONS: Final = {
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    "duration": types.DURATION,
    "int": types.INT,
    "string": types.STRING,
    "timestamp": types.TIMESTAMP,
    "uint": types.UINT,
}


def converting(wanted: types.Type) -> Callable[[Value], Value]:
    """Return a function that converts a value."""
    return lambda value: to_type(value, wanted)
