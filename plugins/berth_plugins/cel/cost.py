"""What a call costs at runtime.

Source: `cel-go` interpreter/runtimecost.go, ext/lists.go and ext/sets.go, v0.29;
`apiserver/pkg/cel/library/cost.go`, v1.37.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from berth_plugins.cel.functions.formats import Format
from berth_plugins.cel.functions.networks import CidrValue, IpValue
from berth_plugins.cel.pieces import each
from berth_plugins.cel.values import MapValue, Opaque, Optional, Value, is_list
from berth_plugins.cel.work import spend

LIST_COST: Final = 10
MAP_COST: Final = 30
_PER_CHARACTER: Final = 0.1
_PER_REGEX_CHARACTER: Final = 0.25

Cost = Callable[[Sequence[Value], Value], int]


def size_of(value: Value) -> int:
    """Return the size of a text, a list or a map; 1 for any other value."""
    while isinstance(value, Optional) and value.has_value:
        value = value.value
    if isinstance(value, str | bytes | list | MapValue):
        return len(value)
    if isinstance(value, IpValue | CidrValue):
        return value.size
    return 1


def _read(size: float) -> int:
    return math.ceil(size * _PER_CHARACTER)


def _traversal(value: Value) -> int:
    """Return the cost of reading a value with everything in it."""
    if isinstance(value, str | bytes):
        size = len(value.encode(errors="replace")) if isinstance(value, str) else len(value)
        return int(size * _PER_CHARACTER)
    if is_list(value):
        spend(len(value))
        return sum([_traversal(one) for one in each(value, len(value))])
    if isinstance(value, MapValue):
        spend(len(value))
        return sum([_traversal(key) + _traversal(entry) for key, entry in each(value.items(), len(value))])
    return 1


def _list_cost(factor: float, size: int) -> int:
    return int(size * factor) + 1 + LIST_COST


def _self_compared(values: list[Value]) -> int:
    factor = 2.0
    if values and isinstance(values[0], str | bytes):
        factor += _PER_CHARACTER
    return _list_cost(factor, len(values) ** 2)


def _regex(args: Sequence[Value], _: Value) -> int:
    return _read(1.0 + size_of(args[0])) * math.ceil(size_of(args[1]) * _PER_REGEX_CHARACTER)


def _of_receiver(factor: float = 1.0) -> Cost:
    return lambda args, _: math.ceil(size_of(args[0]) * factor * _PER_CHARACTER)


def _smaller(args: Sequence[Value], _: Value) -> int:
    return _read(min(size_of(args[0]), size_of(args[1])))


def _equals(args: Sequence[Value], result: Value) -> int:
    return 1 if isinstance(args[0], Opaque) else _smaller(args, result)


def _both(args: Sequence[Value], _: Value) -> int:
    return _read(size_of(args[0]) + size_of(args[1]))


def _contains(args: Sequence[Value], _: Value) -> int:
    return _read(size_of(args[0])) * _read(size_of(args[1]))


def _joined(_: Sequence[Value], result: Value) -> int:
    return math.ceil(size_of(result) * 2 * _PER_CHARACTER)


def _validated(args: Sequence[Value], _: Value) -> int:
    one = args[0]
    if not isinstance(one, Format):
        return 1
    return _read(1.0 + size_of(args[1])) * math.ceil(one.regex_size * _PER_REGEX_CHARACTER)


def _covers_ip(parses: bool) -> Cost:
    def cost(args: Sequence[Value], _: Value) -> int:
        return _read(2 * size_of(args[0])) + (_read(size_of(args[1])) if parses else 0)

    return cost


def _covers_cidr(parses: bool) -> Cost:
    def cost(args: Sequence[Value], _: Value) -> int:
        size = size_of(args[0])
        return _read(2 * size) + _read(size) + 1 + (_read(size_of(args[1])) if parses else 0)

    return cost


def _sets(factor: int) -> Cost:
    return lambda args, _: 1 + size_of(args[0]) * size_of(args[1]) * factor


def _flattened(args: Sequence[Value], _: Value) -> int:
    depth = args[1] if len(args) == 2 else 1
    # A depth below zero counts as one.
    return _list_cost(depth if depth >= 0 else 1.0, size_of(args[0]))


def _new_list(_: Sequence[Value], result: Value) -> int:
    return _list_cost(1, size_of(result))


_COMPARABLE: Final = (
    "int",
    "uint",
    "double",
    "bool",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "string",
    "bytes",
)
# Costs of one overload. They count before the costs of functions.
_BY_OVERLOAD: Final[dict[str, Cost]] = {
    "list_slice": _new_list,
    "lists_range": _new_list,
    "list_reverse": _new_list,
    "list_flatten": _flattened,
    "list_flatten_int": _flattened,
    "list_distinct": lambda args, _: _self_compared(args[0]),
    **{f"list_{name}_sort": lambda args, _: _self_compared(args[0]) for name in _COMPARABLE},
    **{f"list_{name}_sortByAssociatedKeys": lambda args, _: _self_compared(args[1]) for name in _COMPARABLE},
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
    "cidr_ip": lambda _, __: 1,
    "cidr_contains_ip_string": _covers_ip(True),
    "cidr_contains_ip_ip": _covers_ip(False),
    "cidr_contains_cidr_string": _covers_cidr(True),
    "cidr_contains_cidr": _covers_cidr(False),
}
# Costs of functions, whichever their overload.
_BY_FUNCTION: Final[dict[str, Cost]] = {
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"),
        lambda args, _: _traversal(args[0]),
    ),
    **dict.fromkeys(
        (
            "url",
            "lowerAscii",
            "upperAscii",
            "substring",
            "trim",
            "cidr",
            "isIP",
            "isCIDR",
            "ip",
            "quantity",
            "isQuantity",
            "semver",
            "isSemver",
        ),
        _of_receiver(),
    ),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _of_receiver(2.0)),
    "join": _joined,
    "find": _regex,
    "findAll": _regex,
    "containsIP": _covers_ip(False),
    "containsCIDR": _covers_cidr(False),
    "validate": _validated,
    "_==_": _equals,
    "_!=_": _smaller,
    "check": lambda _, __: 350_000,
}
# Costs of overloads of the standard library.
_BY_STANDARD_OVERLOAD: Final[dict[str, Cost]] = {
    "starts_with_string": lambda args, _: _read(size_of(args[1])),
    "ends_with_string": lambda args, _: _read(size_of(args[1])),
    **dict.fromkeys(("string_to_bytes", "bytes_to_string", "strings_quote", "string_format"), _of_receiver()),
    "in_list": lambda args, _: size_of(args[1]),
    **{
        f"{order}_{kind}": _smaller
        for order in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
    "add_string": _both,
    "add_bytes": _both,
    "matches": _regex,
    "matches_string": _regex,
    "contains_string": _contains,
}


def cost_of(function: str, overload: str) -> Cost | None:
    """Return the function that computes a call's cost from its arguments and result; None for a cost of 1.

    `overload`: the empty text if the types of the arguments decide at runtime.
    """
    return _BY_OVERLOAD.get(overload) or _BY_FUNCTION.get(function) or _BY_STANDARD_OVERLOAD.get(overload)
