"""Go's types for strict JSON decoding: the values that each type accepts, and the JSON that it writes.

A decoded type is a frozen dataclass whose fields carry a Go type (`json_field`). The decoder walks the
fields, so unknown fields, repeated ones and wrong types are found in one place for every schema. A JSON
null leaves a field at its zero value, as in Go. `Context` collects the errors; nothing is raised.
Source: Go `encoding/json`, sigs.k8s.io/json (case-sensitive, strict).
"""

from __future__ import annotations

import base64
import dataclasses
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from berth_sdk.duration import SECOND_NS, format_seconds, parse_duration

from berth_host.config.errors import Finding, nearest
from berth_host.config.source.node import Json, SourceNode, child


@dataclass(slots=True)
class Context:
    """One decoding run. `is_yaml`: repeated keys are errors even where the type is unknown. `absent_fields`:
    the ends of the paths of fields that count as unknown.
    """

    is_yaml: bool
    absent_fields: frozenset[str] = frozenset()
    findings: list[Finding] = field(default_factory=list)

    def reject(self, path: str, node: SourceNode, wanted: str) -> None:
        """Record a value of the wrong type."""
        message = f"expected {wanted}, got {_describe(node)}{_cure(node, wanted)}"
        self.findings.append(Finding(message, field=path, line=node.line))

    def reject_repeated(self, path: str, node: SourceNode, *, everywhere: bool) -> None:
        """Record the repeated keys of a mapping, or of all mappings inside."""
        found = node.repeated_keys(path) if everywhere else ((path, key) for key in node.repeated)
        for where, key in found:
            finding = Finding(f'key "{key.key}" already set in map', field=where, line=key.line)
            if finding not in self.findings:
                self.findings.append(finding)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoType:
    """One type, as functions over untyped values.

    `zero` is the value of an absent field. `decode` gets a node, its field path and the context, and
    returns `zero` after recording an error. `encode` gives the JSON that Go writes. `is_empty`:
    `omitempty` leaves the value out. `reads_null`: `decode` gets null too; for other types null is absent.
    """

    zero: Any
    decode: Callable[[SourceNode, str, Context], Any]
    encode: Callable[[Any], Json]
    is_empty: Callable[[Any], bool]
    reads_null: bool = False


@dataclass(frozen=True, slots=True)
class JsonField:
    """The Go tag of a field: its type and `omitempty`; `attribute` is the dataclass's own name."""

    attribute: str
    type: GoType
    omit_empty: bool


_METADATA: Final = "go"


def _is_falsy(value: Any) -> bool:
    return not value


def _never(value: Any) -> bool:
    return False


def json_field(name: str, go_type: GoType, *, omit_empty: bool = False) -> Any:
    """Return a dataclass field with its Go tag; absent or null means the type's zero value."""
    metadata = {_METADATA: (name, go_type, omit_empty)}
    if isinstance(go_type.zero, dict):
        return field(default_factory=go_type.zero.copy, metadata=metadata)
    return field(default=go_type.zero, metadata=metadata)


def json_fields(cls: type[Any]) -> Mapping[str, JsonField]:
    """Return the fields of a decoded type by JSON name, in order."""
    found: dict[str, JsonField] = {}
    for attribute in dataclasses.fields(cls):
        if _METADATA in attribute.metadata:
            name, go_type, omit_empty = attribute.metadata[_METADATA]
            found[name] = JsonField(attribute.name, go_type, omit_empty)
    return found


def decode_value(go_type: GoType, node: SourceNode, path: str, context: Context) -> Any:
    """Decode one value; null is the zero value, except where a type reads null itself."""
    if node.value is None and not go_type.reads_null:
        return go_type.zero
    return go_type.decode(node, path, context)


def struct_of(cls: type[Any]) -> GoType:
    """Return an object with fixed fields, as the frozen dataclass `cls`."""

    def decode(node: SourceNode, path: str, context: Context) -> object:
        fields = json_fields(cls)
        types = {name: known.type for name, known in fields.items()}
        values = _decode_members(types, node, path, context)
        return cls(**{fields[name].attribute: value for name, value in values.items()})

    return GoType(zero=cls(), decode=decode, encode=encode_struct, is_empty=_never)


def object_of(types: Mapping[str, GoType]) -> GoType:
    """Return an object with fixed fields, as a dict of the fields that it has; null is absent."""

    def decode(node: SourceNode, path: str, context: Context) -> dict[str, object]:
        values = _decode_members(types, node, path, context)
        return {name: value for name, value in values.items() if value is not None}

    def encode(value: Mapping[str, Any]) -> Json:
        return {name: types[name].encode(item) for name, item in value.items()}

    return GoType(zero={}, decode=decode, encode=encode, is_empty=_is_falsy)


def _decode_members(
    types: Mapping[str, GoType], node: SourceNode, path: str, context: Context
) -> dict[str, object]:
    """Decode the known fields of an object, by name; record the others as unknown."""
    if not isinstance(node.value, Mapping):
        context.reject(path, node, "an object")
        return {}
    context.reject_repeated(path, node, everywhere=False)
    values: dict[str, object] = {}
    for key, member in node.members.items():
        where = child(path, key)
        if key in types and not where.endswith(tuple(context.absent_fields)):
            values[key] = decode_value(types[key], member.node, where, context)
            continue
        suggestion = nearest(key, types) if len(context.findings) < MAX_SUGGESTIONS else None
        context.findings.append(
            Finding(f'unknown field "{where}"', line=member.key_line, suggestion=suggestion)
        )
        if context.is_yaml:
            context.reject_repeated(where, member.node, everywhere=True)
    return values


def encode_struct(value: Any) -> dict[str, Json]:
    """Return the JSON object of a versioned value."""
    result: dict[str, Json] = {}
    for name, known in json_fields(type(value)).items():
        item = getattr(value, known.attribute)
        if not (known.omit_empty and known.type.is_empty(item)):
            result[name] = known.type.encode(item)
    return result


def _decode_string(node: SourceNode, path: str, context: Context) -> str:
    if isinstance(node.value, str):
        return node.value
    context.reject(path, node, "a string")
    return ""


STRING: Final = GoType(zero="", decode=_decode_string, encode=str, is_empty=_is_falsy)


def _decode_bool(node: SourceNode, path: str, context: Context) -> bool:
    if isinstance(node.value, bool):
        return node.value
    context.reject(path, node, "true or false")
    return False


BOOL: Final = GoType(zero=False, decode=_decode_bool, encode=bool, is_empty=_is_falsy)


def _integer(bits: int) -> GoType:
    def decode(node: SourceNode, path: str, context: Context) -> int:
        limit = 1 << (bits - 1)
        if type(node.value) is int and -limit <= node.value < limit:
            return node.value
        context.reject(path, node, f"an integer of {bits} bits")
        return 0

    return GoType(zero=0, decode=decode, encode=int, is_empty=_is_falsy)


INT32: Final = _integer(32)
INT64: Final = _integer(64)


def _decode_float32(node: SourceNode, path: str, context: Context) -> float:
    value = node.value
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
        packed = _pack_float32(float(value))
        if packed is not None:
            return float(struct.unpack("<f", packed)[0])
    context.reject(path, node, "a number of 32 bits")
    return 0.0


def _pack_float32(number: float) -> bytes | None:
    try:
        return struct.pack("<f", number)
    except OverflowError:
        return None


def _encode_float32(value: Any) -> Json:
    """Return the shortest text that is the same 32-bit number, as Go prints it; whole numbers as integers."""
    number = float(value)
    if number.is_integer():
        return int(number)
    candidates = (float(f"{number:.{digits}g}") for digits in range(1, 10))
    return next((c for c in candidates if _pack_float32(c) == _pack_float32(number)), number)


FLOAT32: Final = GoType(zero=0.0, decode=_decode_float32, encode=_encode_float32, is_empty=_is_falsy)


def _decode_duration(node: SourceNode, path: str, context: Context) -> float:
    if not isinstance(node.value, str):
        context.reject(path, node, 'a duration with a unit, such as "15s"')
        return 0.0
    try:
        return parse_duration(node.value) / SECOND_NS
    except ValueError as err:
        context.findings.append(Finding(str(err), field=path, line=node.line))
        return 0.0


DURATION: Final = GoType(
    zero=0.0, decode=_decode_duration, encode=format_seconds, is_empty=_never, reads_null=True
)
"""metav1.Duration: a text such as `1m30s`, kept in seconds. It rejects null."""


def _decode_bytes(node: SourceNode, path: str, context: Context) -> bytes:
    try:
        if isinstance(node.value, str):
            # Go skips line ends inside, and wants padding.
            return base64.b64decode(node.value.replace("\r", "").replace("\n", ""), validate=True)
        if isinstance(node.value, tuple):
            return bytes(_byte(item) for item in node.items)
    except ValueError:  # binascii.Error is a ValueError
        pass
    context.reject(path, node, "base64 data")
    return b""


def _byte(node: SourceNode) -> int:
    if type(node.value) is int:
        return node.value
    raise ValueError("not a byte")


def _encode_bytes(value: bytes) -> Json:
    return base64.b64encode(value).decode()


BYTES: Final = GoType(zero=b"", decode=_decode_bytes, encode=_encode_bytes, is_empty=_is_falsy)


def _decode_raw(node: SourceNode, path: str, context: Context) -> SourceNode:
    if context.is_yaml:
        context.reject_repeated(path, node, everywhere=True)
    return node


def _encode_raw(value: SourceNode | None) -> Json:
    return None if value is None else value.to_json()


RAW: Final = GoType(zero=None, decode=_decode_raw, encode=_encode_raw, is_empty=_never)
"""runtime.RawExtension: anything, kept as a SourceNode; None for null."""


def pointer_to(of: GoType) -> GoType:
    """Return a value that may be absent: None, where the plain type has its zero value."""
    return GoType(
        zero=None,
        decode=of.decode,
        encode=lambda value: None if value is None else of.encode(value),
        is_empty=lambda value: value is None,
    )


def slice_of(of: GoType) -> GoType:
    """Return a list as a tuple; None is Go's nil slice, which some defaults treat unlike an empty one."""

    def decode(node: SourceNode, path: str, context: Context) -> tuple[object, ...] | None:
        if not isinstance(node.value, tuple):
            context.reject(path, node, "a list")
            return None
        return tuple(
            decode_value(of, item, f"{path}[{index}]", context) for index, item in enumerate(node.items)
        )

    return GoType(
        zero=None,
        decode=decode,
        encode=lambda value: None if value is None else [of.encode(item) for item in value],
        is_empty=_is_falsy,
    )


def map_of(of: GoType) -> GoType:
    """Return an object with free keys, as a dict; None is Go's nil map."""

    def decode(node: SourceNode, path: str, context: Context) -> dict[str, object] | None:
        if not isinstance(node.value, Mapping):
            context.reject(path, node, "an object")
            return None
        context.reject_repeated(path, node, everywhere=False)
        return {
            key: decode_value(of, member.node, child(path, key), context)
            for key, member in node.members.items()
        }

    return GoType(
        zero=None,
        decode=decode,
        encode=lambda value: None if value is None else {key: of.encode(v) for key, v in value.items()},
        is_empty=_is_falsy,
    )


def one_of(words: type[Enum]) -> GoType:
    """Return a word of an enumeration. Any other word stays a text, which the checks refuse."""

    def decode(node: SourceNode, path: str, context: Context) -> object:
        text = _decode_string(node, path, context)
        return next((word for word in words if word.value == text), text)

    return GoType(zero=None, decode=decode, encode=word_of, is_empty=lambda value: value is None)


def word_of(value: Enum | str) -> str:
    """Return the text of a value of `one_of`."""
    return str(value.value) if isinstance(value, Enum) else value


def with_zero(of: GoType, zero: object) -> GoType:
    """Return the same type with another value for an absent field and for null."""
    return dataclasses.replace(of, zero=zero)


MAX_SUGGESTIONS: Final = 100
"""A file with more unknown fields is another kind of file; looking for near names takes most of the time."""
_KINDS: Final = {bool: "boolean", int: "number", float: "number", str: "string"}


def _describe(node: SourceNode) -> str:
    if isinstance(node.value, Mapping):
        return "an object"
    if isinstance(node.value, tuple):
        return "a list"
    if node.value is None:
        return "null"
    shown = f'"{node.value}"' if isinstance(node.value, str) else str(node.value).lower()
    return f"the {_KINDS[type(node.value)]} {shown[:80]}"


def _cure(node: SourceNode, wanted: str) -> str:
    if wanted == "a string" and node.plain:
        return f" (YAML reads the plain word {node.plain[:80]} so: put it in quotes)"
    if isinstance(node.value, str) and node.plain is None and wanted != "an object" and wanted != "a list":
        return " (remove the quotes)"
    return ""
