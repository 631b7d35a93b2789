"""Go's types for strict JSON decoding: the values that each type accepts, and the JSON that it writes.

A versioned type is a frozen dataclass whose fields carry a Go type (`json_field`); the decoder walks
them, so unknown fields, repeated ones and wrong types are found in one place for every schema. A JSON
null leaves a field at its zero value, as in Go. `Context` collects the errors; nothing is raised.
Source: Go `encoding/json`, sigs.k8s.io/json (case-sensitive, strict).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from berth_host.config.errors import Finding, nearest
from berth_host.config.source.node import Json, SourceNode, child


@dataclass(slots=True)
class Context:
    """One decoding run. `is_yaml`: repeated keys are errors even where the type is unknown."""

    is_yaml: bool
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


def json_field(name: str, go_type: GoType, *, omit_empty: bool = False) -> Any:
    """A dataclass field with its Go tag; absent or null means the type's zero value."""
    return field(default=go_type.zero, metadata={_METADATA: (name, go_type, omit_empty)})


def json_fields(cls: type[Any]) -> Mapping[str, JsonField]:
    """The fields of a versioned type by JSON name, in order."""
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
    """An object with fixed fields, as the frozen dataclass `cls`."""

    def decode(node: SourceNode, path: str, context: Context) -> object:
        if not isinstance(node.value, Mapping):
            context.reject(path, node, "an object")
            return cls()
        context.reject_repeated(path, node, everywhere=False)
        fields = json_fields(cls)
        values: dict[str, object] = {}
        for key, member in node.members.items():
            where = child(path, key)
            if key in fields:
                values[fields[key].attribute] = decode_value(fields[key].type, member.node, where, context)
                continue
            suggestion = nearest(key, fields) if len(context.findings) < MAX_SUGGESTIONS else None
            context.findings.append(
                Finding(f'unknown field "{where}"', line=member.key_line, suggestion=suggestion)
            )
            if context.is_yaml:
                context.reject_repeated(where, member.node, everywhere=True)
        return cls(**values)

    return GoType(zero=cls(), decode=decode, encode=encode_struct, is_empty=lambda value: False)


def encode_struct(value: Any) -> dict[str, Json]:
    """The JSON object of a versioned value."""
    result: dict[str, Json] = {}
    for name, known in json_fields(type(value)).items():
        item = getattr(value, known.attribute)
        if not (known.omit_empty and known.type.is_empty(item)):
            result[name] = known.type.encode(item)
    return result


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
