"""Lists, sets, optional values and the maps of comprehensions.

Source: `cel-go` ext/lists.go, ext/sets.go, ext/comprehensions.go and cel/library.go, v0.29;
`apiserver/pkg/cel/library/lists.go`, v1.37.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cmp_to_key
from typing import Any, Final

from berth_plugins.cel.errors import EvalError
from berth_plugins.cel.functions.operators import add, no_overload
from berth_plugins.cel.pieces import count, each
from berth_plugins.cel.values import (
    NOTHING,
    ORDERED,
    Duration,
    GrowingMap,
    MapValue,
    Optional,
    Uint,
    Value,
    are_equal,
    compare,
    holds,
    is_list,
    shown,
    type_name,
)
from berth_plugins.cel.work import spend

_COMPARABLE: Final = ("int", "uint", "double", "bool", "string", "bytes")
# About the times that sorting compares one element.
_STEPS_OF_SORTING: Final = 10
_TIMES: Final = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp"}


# --- lists -----------------------------------------------------------------------------------------


def _range(count: int) -> list[Value]:
    if count < 0:
        raise EvalError(f"lists.range: size must be non-negative, got {count}")
    spend(count)
    return list(range(count))


def _slice(values: list[Value], start: int, end: int) -> list[Value]:
    call = f"cannot slice({start}, {end})"
    if start < 0 or end < 0:
        raise EvalError(f"{call}, negative indexes not supported")
    if start > end:
        raise EvalError(f"{call}, start index must be less than or equal to end index")
    if end > len(values):
        raise EvalError(f"{call}, list is length {len(values)}")
    return values[start:end]


def _flatten(values: Any, depth: Any = 1) -> list[Value]:
    if not is_list(values) or type(depth) is not int:
        raise EvalError(f"no such overload: {type_name(values)}.flatten({type_name(depth)})")
    if depth < 0:
        raise EvalError("level must be non-negative")
    found: list[Value] = []
    waiting = [(iter(values), depth)]
    while waiting:
        rest, level = waiting[-1]
        for one in rest:
            spend(1)
            if is_list(one) and level > 0:
                waiting.append((iter(one), level - 1))
                break
            found.append(one)
        else:
            waiting.pop()
    return found


def _distinct(values: list[Value]) -> list[Value]:
    found: list[Value] = []
    for one in values:
        spend(len(found))
        if not any(_is_same(one, other) for other in found):
            found.append(one)
    return found


def _is_same(one: Value, other: Value) -> bool:
    try:
        return are_equal(one, other)
    except EvalError:
        return False


def _sort(values: list[Value]) -> list[Value]:
    return _sort_by(values, values)


def _sort_by(values: list[Value], keys: list[Value]) -> list[Value]:
    if len(values) != len(keys):
        raise EvalError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(values)} and {len(keys)} elements respectively"
        )
    if not values:
        return values
    if type(keys[0]) not in ORDERED:
        raise EvalError("list elements must be comparable")
    if any(type(key) is not type(keys[0]) for key in keys):
        raise EvalError("list elements must have the same type")
    spend(_STEPS_OF_SORTING * len(values))
    order = cmp_to_key(_quiet_order)
    return [value for _, value in sorted(zip(keys, values, strict=True), key=lambda one: order(one[0]))]


def _quiet_order(one: Value, other: Value) -> int:
    count(1)
    try:
        return compare(one, other)
    except EvalError:  # NaN
        return 0


def _is_sorted(values: list[Value]) -> bool:
    for one, other in itertools.pairwise(each(values, len(values))):
        if type(one) not in ORDERED or type(other) not in ORDERED:
            raise no_overload()
        if _order_or_none(one, other) == 1:
            return False
    return True


def _order_or_none(one: Value, other: Value) -> int | None:
    try:
        return compare(one, other)
    except EvalError:
        return None


def _sum(zero: Value) -> Callable[[list[Value]], Value]:
    def total(values: list[Value]) -> Value:
        found = zero
        for one in each(values, len(values)):
            found = add(found, one)
        return found

    return total


def _extreme(name: str, loses: int) -> Callable[[list[Value]], Value]:
    def extreme(values: list[Value]) -> Value:
        if not values:
            raise EvalError(f"{name} called on empty list")
        found = values[0]
        for one in each(values, len(values)):
            if type(one) not in ORDERED:
                raise no_overload()
            if _order_or_none(found, one) == loses:
                found = one
        return found

    return extreme


def _index_of(values: list[Value], wanted: Value) -> int:
    return next((i for i, one in enumerate(each(values, len(values))) if _is_same(one, wanted)), -1)


def _last_index_of(values: list[Value], wanted: Value) -> int:
    indices = each(reversed(range(len(values))), len(values))
    return next((i for i in indices if _is_same(values[i], wanted)), -1)


def _includes(target: Value, wanted: Value) -> bool:
    if is_list(target):
        return any(_is_same(one, wanted) for one in each(target, len(target)))
    return _is_same(target, wanted)


# --- sets ------------------------------------------------------------------------------------------


def _contains_all(values: list[Value], others: list[Value]) -> bool:
    return all(holds(values, one) for one in others)


def _are_equivalent(values: list[Value], others: list[Value]) -> bool:
    return _contains_all(values, others) and _contains_all(others, values)


def _intersect(values: list[Value], others: list[Value]) -> bool:
    return any(holds(others, one) for one in values)


# --- optional values and maps ---------------------------------------------------------------------


def _non_zero(value: Value) -> Optional:
    is_zero = (
        value is None
        or (isinstance(value, bool | int | float | str | bytes | list | MapValue) and not value)
        or (isinstance(value, Duration) and value.nanoseconds == 0)
        or (isinstance(value, Optional) and not value.has_value)
    )
    return NOTHING if is_zero else Optional(value)


def _unwrapped(values: list[Value]) -> list[Value]:
    for one in each(values, len(values)):
        if not isinstance(one, Optional):
            raise EvalError(f"value {shown(one)} is not optional")
    return [one.value for one in values if one.has_value]


def _insert(target: MapValue, key: Value, value: Value) -> MapValue:
    if not isinstance(target, GrowingMap):
        target = MapValue(target.items())
    target.insert(key, value)
    return target


def _insert_all(target: MapValue, added: MapValue) -> MapValue:
    for key, value in added.items():
        target = _insert(target, key, value)
    return target


# Functions with one effect for all their overloads, whose arguments need not be checked.
FREE: Final[dict[str, Callable[..., Any]]] = {"flatten": _flatten}
OVERLOADS: Final[dict[str, Callable[..., Any]]] = {
    "lists_range": _range,
    "list_slice": _slice,
    "list_distinct": _distinct,
    "list_reverse": lambda values: values[::-1],
    "list_first": lambda values: Optional(values[0]) if values else NOTHING,
    "list_last": lambda values: Optional(values[-1]) if values else NOTHING,
    "list_a_index_of_int": _index_of,
    "list_a_last_index_of_int": _last_index_of,
    "list_includes_dyn_dyn": _includes,
    **{f"list_{_TIMES.get(name, name)}_sort": _sort for name in (*_COMPARABLE, *_TIMES)},
    **{f"list_{_TIMES.get(name, name)}_sortByAssociatedKeys": _sort_by for name in (*_COMPARABLE, *_TIMES)},
    **{f"list_{name}_is_sorted_bool": _is_sorted for name in (*_COMPARABLE, *_TIMES)},
    **{f"list_{name}_max_{name}": _extreme("max", -1) for name in (*_COMPARABLE, *_TIMES)},
    **{f"list_{name}_min_{name}": _extreme("min", 1) for name in (*_COMPARABLE, *_TIMES)},
    "list_int_sum_int": _sum(0),
    "list_uint_sum_uint": _sum(Uint(0)),
    "list_double_sum_double": _sum(0.0),
    "list_duration_sum_duration": _sum(Duration(0)),
    "list_sets_contains_list": _contains_all,
    "list_sets_equivalent_list": _are_equivalent,
    "list_sets_intersects_list": _intersect,
    "optional_of": Optional,
    "optional_none": lambda: NOTHING,
    "optional_ofNonZeroValue": _non_zero,
    "optional_hasValue": lambda value: value.has_value,
    "optional_value": lambda value: value.get(),
    "optional_unwrap": _unwrapped,
    "optional_unwrapOpt": _unwrapped,
    "@mapInsert_map_key_value": _insert,
    "@mapInsert_map_map": _insert_all,
}
