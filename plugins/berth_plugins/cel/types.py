"""The types of CEL, and how the checker compares them.

Source: `cel-go` common/types/types.go and checker/types.go, v0.29.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from berth_plugins.cel.work import spend


class Type:
    """One type. `kind` groups types: `list`, `map`, `struct`, `opaque`, `param`, `type`, or its own name.

    `name`: the type's name at runtime. `has_parameters`: whether a type parameter is in it.
    """

    __slots__ = ("has_parameters", "kind", "name", "params")

    def __init__(self, kind: str, name: str, params: Sequence[Type] = ()) -> None:
        self.kind = kind
        self.name = name
        self.params = tuple(params)
        self.has_parameters: bool = kind == "param" or any(one.has_parameters for one in self.params)

    def __str__(self) -> str:
        """Return the type as error messages write it."""
        return self._written()

    def _written(self) -> str:
        if self.kind in _SHORT_NAMES:
            return _SHORT_NAMES[self.kind]
        if not self.params:
            return self.name
        spend(len(self.params))
        return f"{self.name}({', '.join([one._written() for one in self.params])})"

    @property
    def full_name(self) -> str:
        """The type with the runtime names of its parts."""
        if not self.params:
            return self.name
        spend(len(self.params))
        return f"{self.name}({', '.join([one.full_name for one in self.params])})"


_SHORT_NAMES: Final = {
    "null": "null",
    "timestamp": "timestamp",
    "duration": "duration",
    "error": "!error!",
    "any": "any",
}

DYN: Final = Type("dyn", "dyn")
ERROR: Final = Type("error", "error")
BOOL: Final = Type("bool", "bool")
INT: Final = Type("int", "int")
UINT: Final = Type("uint", "uint")
DOUBLE: Final = Type("double", "double")
STRING: Final = Type("string", "string")
BYTES: Final = Type("bytes", "bytes")
NULL: Final = Type("null", "null_type")
TIMESTAMP: Final = Type("timestamp", "google.protobuf.Timestamp")
DURATION: Final = Type("duration", "google.protobuf.Duration")
TYPE: Final = Type("type", "type")

_SIMPLE: Final = frozenset(
    {"bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration", "any", "struct"}
)
_NULLABLE: Final = frozenset({"opaque", "struct", "any", "duration", "timestamp"})


def list_of(element: Type) -> Type:
    """Return the type of lists of such elements."""
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of maps."""
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    """Return the type of optional values."""
    return Type("opaque", "optional_type", (value,))


def type_of(one: Type) -> Type:
    """Return the type of a type."""
    return Type("type", "type", (one,))


def struct(name: str) -> Type:
    """Return a type with named fields, or one that only functions look into."""
    return Type("struct", name)


def opaque(name: str) -> Type:
    """Return a type that only functions look into."""
    return Type("opaque", name)


def param(name: str) -> Type:
    """Return a type parameter."""
    return Type("param", name)


def is_dyn(one: Type) -> bool:
    """Return True if any value may have this type."""
    return one.kind in ("dyn", "any")


def is_dyn_or_error(one: Type) -> bool:
    """Return True if the checker accepts anything for this type."""
    return one.kind in ("dyn", "any", "error")


def unwrap_optional(one: Type) -> tuple[Type, bool]:
    """Return the type inside of an optional type, and True; any other type itself, and False."""
    if one.kind == "opaque" and one.name == "optional_type":
        return one.params[0], True
    return one, False


def _every(holds: Callable[[Type, Type], bool], some: Sequence[Type], others: Sequence[Type]) -> bool:
    """Return True if two lists of the same length agree. Names for values (`cel.bind`) nest types without
    end: the loop takes no stack of C, and its steps are counted.
    """
    spend(len(some))
    for one, other in zip(some, others, strict=True):  # noqa: SIM110
        if not holds(one, other):
            return False
    return True


def are_same(one: Type, other: Type) -> bool:
    """Return True if two types are exactly equal."""
    if one is other:
        return True
    return (
        one.kind == other.kind
        and one.name == other.name
        and len(one.params) == len(other.params)
        and _every(are_same, one.params, other.params)
    )


def are_equivalent(one: Type, other: Type) -> bool:
    """Return True if two types are equal but for the names of type parameters."""
    if one.kind == "param" and other.kind == "param":
        return True
    return (
        one.kind == other.kind
        and one.name == other.name
        and len(one.params) == len(other.params)
        and _every(are_equivalent, one.params, other.params)
    )


class Substitutions:
    """The types that type parameters stand for. A failed comparison leaves no trace."""

    def __init__(self) -> None:
        self._known: dict[str, Type] = {}
        self._trail: list[tuple[str, Type | None]] = []

    def assigns(self, one: Type, other: Type) -> bool:
        """Return True if a value of one type can stand where the other type is wanted."""
        return self.assigns_all((one,), (other,))

    def assigns_all(self, some: Sequence[Type], others: Sequence[Type]) -> bool:
        """Return True if each type is assignable to the type at its place."""
        mark = len(self._trail)
        if self._all(some, others):
            self._trail.clear()
            return True
        while len(self._trail) > mark:
            name, before = self._trail.pop()
            if before is None:
                del self._known[name]
            else:
                self._known[name] = before
        return False

    def apply(self, one: Type, *, free_to_dyn: bool = False) -> Type:
        """Return the type with its parameters replaced. `free_to_dyn`: those without a meaning are dyn."""
        while one.kind == "param":
            found = self._known.get(one.name)
            if found is None:
                return DYN if free_to_dyn else one
            one = found
        if not one.has_parameters:
            return one
        spend(len(one.params))
        params = tuple([self.apply(part, free_to_dyn=free_to_dyn) for part in one.params])
        return Type(one.kind, one.name, params)

    def _add(self, name: str, meaning: Type) -> None:
        self._trail.append((name, self._known.get(name)))
        self._known[name] = meaning

    def _all(self, some: Sequence[Type], others: Sequence[Type]) -> bool:
        return len(some) == len(others) and _every(self._is_assignable, some, others)

    def _is_assignable(self, one: Type, other: Type) -> bool:
        if other.kind == "param":
            valid, has_meaning = self._substitutes(one, other)
            if valid or has_meaning:
                return valid
        if one.kind == "param":
            return self._substitutes(other, one)[0]
        if is_dyn_or_error(one) or is_dyn_or_error(other):
            return True
        if one.kind == "null":
            return other.kind == "null" or other.kind in _NULLABLE
        if other.kind == "null":
            return one.kind in _NULLABLE
        if one.kind in _SIMPLE:
            return one.kind == other.kind and one.name == other.name
        if one.kind == "type":
            return other.kind == "type"
        return one.kind == other.kind and one.name == other.name and self._all(one.params, other.params)

    def _substitutes(self, one: Type, parameter: Type) -> tuple[bool, bool]:
        """Return whether the parameter can stand for a type, and whether it stands for one already."""
        if one.kind == "param" and one.name == parameter.name:
            return True, True
        meaning = self._known.get(parameter.name)
        if meaning is None:
            if self._is_free_in(parameter, one):
                self._add(parameter.name, one)
                return True, False
            return False, False
        if are_same(one, meaning):
            return True, True
        if not self._is_assignable(one, meaning):
            return False, True
        general = most_general(one, meaning)
        if self._is_free_in(parameter, general):
            self._add(parameter.name, general)
        return True, True

    def _is_free_in(self, parameter: Type, within: Type) -> bool:
        if within.kind == "param":
            if within.name == parameter.name:
                return False
            meaning = self._known.get(within.name)
            return meaning is None or self._is_free_in(parameter, meaning)
        if not within.has_parameters:
            return True
        spend(len(within.params))
        for part in within.params:  # noqa: SIM110
            if not self._is_free_in(parameter, part):
                return False
        return True


def most_general(one: Type, other: Type) -> Type:
    """Return the more general of two types that are assignable to each other."""
    return one if _is_less_specific(one, other) else other


def _is_less_specific(one: Type, other: Type) -> bool:
    if is_dyn(one) or one.kind == "param":
        return True
    if is_dyn(other) or other.kind == "param" or one.kind != other.kind:
        return False
    if one.kind == "type":
        return True
    if one.kind in ("opaque", "list", "map"):
        return (
            one.name == other.name
            and len(one.params) == len(other.params)
            and _every(_is_less_specific, one.params, other.params)
        )
    return are_same(one, other)
