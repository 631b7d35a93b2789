"""The CEL environment of device selectors: quantities and semantic versions beside the standard library.

Expressions treat both as opaque values. Both are messages of one type, because the library tells overloads
apart by argument types, and does not tell messages apart.

Source: `apiserver/pkg/cel/library/quantity.go` and `semverlib.go`, v1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from berth_sdk.errors import BerthError, QuantityError
from berth_sdk.quantity import NANO, nano_value

EXTRA: Final = "berth-plugins[dra]"
MISSING: Final = f"CEL selectors need the extra {EXTRA} (pip install '{EXTRA}')"
_INT64: Final = 2**63
_OPAQUE: Final = "kubernetes.Opaque"
_SEMVER_TEXT: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?",
    re.ASCII,
)


class CelError(BerthError):
    """An expression cannot be compiled or evaluated."""


@cache
def library() -> Any:
    """Return the library's module `cel`; None without the extra."""
    # Imported late: a cluster without CEL selectors never needs the library.
    try:
        from cel_expr_python import cel
    except ImportError:
        return None
    return cel


def is_installed() -> bool:
    """Return True if the extra is installed."""
    return library() is not None


@cache
def environment() -> Any:
    """Return the environment for compiling expressions, made at the first use. Raises CelError without the
    extra.
    """
    cel = library()
    if cel is None:
        raise CelError(MISSING)
    from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings
    from google.protobuf import descriptor_pool

    _message_class()
    kind = cel.Type
    types = {
        "opaque": kind(_OPAQUE),
        "string": kind.STRING,
        "bool": kind.BOOL,
        "int": kind.INT,
        "double": kind.DOUBLE,
    }
    overloads: dict[str, list[Any]] = {}
    for name, takes, gives, call in _functions():
        first, *_ = takes
        made = cel.Overload(
            f"{name}_{'_'.join(takes)}",
            types[gives],
            [types[one] for one in takes],
            # Functions of a plain text stand alone, the others are called on their first argument.
            first != "string",
            call,
        )
        overloads.setdefault(name, []).append(made)
    return cel.NewEnv(
        descriptor_pool=descriptor_pool.Default(),
        variables={"device": kind.Map(kind.STRING, kind.DYN)},
        extensions=[ext_bindings.ExtBindings(), ext_optional.ExtOptional(), ext_strings.ExtStrings()],
        functions=[cel.FunctionDecl(name, made) for name, made in overloads.items()],
    )


def quantity_message(nano: int) -> Any:
    """Return the message of a quantity in billionths. The number may be beyond an int64."""
    return _message_class()(nano=str(nano))


def semver(text: str) -> Any:
    """Return the message of a semantic version. Raises CelError."""
    if not _is_semver(text):
        raise CelError(f"parse semantic version: {text!r} is none")
    return _message_class()(version=text)


@cache
def _message_class() -> Any:
    """Return the class of messages: a quantity has `nano`, a version has `version`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name="berth/dra_cel.proto", package="kubernetes", syntax="proto3"
    )
    message = file.message_type.add(name=_OPAQUE.rpartition(".")[2])
    for number, name in enumerate(("nano", "version"), start=1):
        field = message.field.add(name=name, number=number)
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
        field.label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(_OPAQUE))


# --- functions: name, types of the arguments, type of the result, effect ---------------------------

_Function = tuple[str, tuple[str, ...], str, Callable[..., Any]]


def _functions() -> Iterator[_Function]:
    one, two = ("opaque",), ("opaque", "opaque")
    yield "quantity", ("string",), "opaque", lambda text: quantity_message(nano_value(text))
    yield "isQuantity", ("string",), "bool", _is_quantity
    yield "isInteger", one, "bool", _fits_int
    yield "asInteger", one, "int", _as_integer
    yield "asApproximateFloat", one, "double", lambda left: _nano(left) / NANO
    yield "sign", one, "int", lambda left: _compared(_nano(left), 0)
    yield "add", two, "opaque", lambda left, right: quantity_message(_nano(left) + _nano(right))
    yield "sub", two, "opaque", lambda left, right: quantity_message(_nano(left) - _nano(right))
    yield "add", ("opaque", "int"), "opaque", lambda left, n: quantity_message(_nano(left) + n * NANO)
    yield "sub", ("opaque", "int"), "opaque", lambda left, n: quantity_message(_nano(left) - n * NANO)
    yield "semver", ("string",), "opaque", semver
    yield "isSemver", ("string",), "bool", _is_semver
    yield "major", one, "int", lambda left: _precedence(left)[0]
    yield "minor", one, "int", lambda left: _precedence(left)[1]
    yield "patch", one, "int", lambda left: _precedence(left)[2]
    yield "compareTo", two, "int", _order
    yield "isGreaterThan", two, "bool", lambda left, right: _order(left, right) > 0
    yield "isLessThan", two, "bool", lambda left, right: _order(left, right) < 0


def _order(left: Any, right: Any) -> int:
    """Compare two quantities, or two versions."""
    order = _nano if left.nano else _precedence
    return _compared(order(left), order(right))


def _compared(one: Any, other: Any) -> int:
    return int(one > other) - int(one < other)


def _nano(quantity: Any) -> int:
    if not quantity.nano:
        raise CelError("no such overload: not a quantity")
    return int(quantity.nano)


def _is_quantity(text: str) -> bool:
    try:
        nano_value(text)
    except QuantityError:
        return False
    return True


def _fits_int(quantity: Any) -> bool:
    whole, rest = divmod(_nano(quantity), NANO)
    return rest == 0 and -_INT64 <= whole < _INT64


def _as_integer(quantity: Any) -> int:
    if not _fits_int(quantity):
        raise CelError("cannot convert value to integer")
    return _nano(quantity) // NANO


def _is_semver(text: str) -> bool:
    return _SEMVER_TEXT.fullmatch(text) is not None


def _precedence(version: Any) -> tuple[Any, ...]:
    """Return the sort key of semver.org: a version without a suffix comes after those with one, and numbers
    in a suffix come before words.
    """
    match = _SEMVER_TEXT.fullmatch(version.version)
    if match is None:
        raise CelError("no such overload: not a semantic version")
    major, minor, patch, suffix, _ = match.groups()
    parts = suffix.split(".") if suffix else ()
    ranks = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)
    return int(major), int(minor), int(patch), suffix is None, ranks
