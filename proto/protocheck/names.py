"""Descriptors -> findings against buf's STANDARD rules on names and form. Called by `generate.py --check`.

Findings carry buf's names for the rules. What protoc refuses or warns of by itself (unused imports, an
enum that does not begin at zero, import cycles) is left to protoc: see `compiler`.
Source: buf documentation, "Rules and categories", STANDARD.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final, TypeAlias

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    OneofDescriptorProto,
    ServiceDescriptorProto,
)

from protocheck.walk import Declaration, Proto, declarations

_PASCAL: Final = re.compile(r"[A-Z][A-Za-z0-9]*")
_LOWER_SNAKE: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_UPPER_SNAKE: Final = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
_VERSION: Final = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
_CAMEL_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_Finding: TypeAlias = tuple[str, str]  # rule, what is wrong

NOT_PLURAL: Final = frozenset(
    {
        "HandshakeRequest.offered",
        "HandshakeResponse.supported",
        "PluginDescriptor.reads_shared",
        "PluginArgs.enabled",
        "CallContext.shared",
        "CallContext.ended",
        "ReplyContext.missing",
        "ReplyContext.publish",
        "StateDelta.removed",
        "ReconcileRequest.live",
        "QueueingHintsResponse.queue",
        "NodeVerdicts.rejected",
        "ScenarioNode.removed",
        "ScenarioNode.added",
        "PostFilterRequest.rejected",
        "PostFilterRequest.rejected_by",
        "Scores.dense",
        "Scores.named",
        "PreBindRequest.patched",
        "EndCyclesRequest.ended",
        "CycleGroup.scheduled",
        "CycleGroup.children",
        "TryPodGroupRequest.removed",
    }
)
"""Repeated fields that say what their items are and have no plural form. New ones need a reason."""


def check(contract: FileDescriptorSet) -> list[str]:
    """Every finding, in the order of the files; empty if all names follow the rules."""
    found = declarations(contract)
    findings = [declaration.finding(rule, text) for declaration in found for rule, text in _own(declaration)]
    return [*findings, *_same_options(contract), *_unique_messages(found)]


def _own(declaration: Declaration) -> Iterator[_Finding]:
    """Yield the findings that one declaration can give without knowing the others."""
    match declaration.proto:
        case FileDescriptorProto() as file:
            yield from _file(file)
        case DescriptorProto() as message:
            yield from _pascal("MESSAGE", message.name)
        case FieldDescriptorProto() as field:
            yield from _field(field, declaration)
        case OneofDescriptorProto() as oneof:
            yield from _lower_snake("ONEOF", oneof.name)
        case EnumDescriptorProto() as enum:
            yield from _enum(enum)
        case EnumValueDescriptorProto() as value:
            yield from _value(value, declaration.parent)
        case ServiceDescriptorProto() as service:
            yield from _pascal("SERVICE", service.name)
            if not service.name.endswith("Service"):
                yield "SERVICE_SUFFIX", "does not end in Service"
        case MethodDescriptorProto() as rpc:
            yield from _rpc(rpc)


def _file(file: FileDescriptorProto) -> Iterator[_Finding]:
    path = PurePosixPath(file.name)
    parts = file.package.split(".")
    yield from _lower_snake("FILE", path.stem)
    if file.syntax != "proto3":
        yield "SYNTAX_SPECIFIED", "does not say proto3"
    if parts != list(path.parent.parts):
        yield "PACKAGE_DIRECTORY_MATCH", f"does not lie in a folder of its name but in {path.parent}"
    if not _VERSION.fullmatch(parts[-1]):
        yield "PACKAGE_VERSION_SUFFIX", "does not end in a version like v1"
    for part in parts:
        yield from _lower_snake("PACKAGE", part)
    if file.public_dependency:
        yield "IMPORT_NO_PUBLIC", "has a public import"
    if file.weak_dependency:
        yield "IMPORT_NO_WEAK", "has a weak import"


def _field(field: FieldDescriptorProto, declaration: Declaration) -> Iterator[_Finding]:
    yield from _lower_snake("FIELD", field.name)
    is_map = any(
        entry.options.map_entry and field.type_name.endswith(f".{entry.name}")
        for entry in getattr(declaration.parent, "nested_type", ())
    )
    repeated = field.label == FieldDescriptorProto.LABEL_REPEATED and not is_map
    local_name = ".".join(declaration.name.split(".")[-2:])
    if repeated and not field.name.endswith("s") and local_name not in NOT_PLURAL:
        yield "FIELD_PLURAL", "is repeated and not plural (names.NOT_PLURAL lists the exceptions)"


def _enum(enum: EnumDescriptorProto) -> Iterator[_Finding]:
    yield from _pascal("ENUM", enum.name)
    if enum.options.allow_alias:
        yield "ENUM_NO_ALLOW_ALIAS", "allows aliases"
    if not enum.value or enum.value[0].number != 0:
        yield "ENUM_FIRST_VALUE_ZERO", "does not begin with the value 0"


def _value(value: EnumValueDescriptorProto, enum: Proto | None) -> Iterator[_Finding]:
    prefix = _CAMEL_HUMP.sub("_", enum.name if enum else "").upper() + "_"
    if not _UPPER_SNAKE.fullmatch(value.name):
        yield "ENUM_VALUE_UPPER_SNAKE_CASE", "is not in UPPER_SNAKE_CASE"
    if not value.name.startswith(prefix):
        yield "ENUM_VALUE_PREFIX", f"does not begin with {prefix}"
    if value.number == 0 and value.name != f"{prefix}UNSPECIFIED":
        yield "ENUM_ZERO_VALUE_SUFFIX", f"is 0 and not called {prefix}UNSPECIFIED"


def _rpc(rpc: MethodDescriptorProto) -> Iterator[_Finding]:
    yield from _pascal("RPC", rpc.name)
    for kind, type_name in (("Request", rpc.input_type), ("Response", rpc.output_type)):
        if type_name.rsplit(".", 1)[-1] != f"{rpc.name}{kind}":
            yield f"RPC_{kind.upper()}_STANDARD_NAME", f"uses {type_name}, not {rpc.name}{kind}"


def _pascal(what: str, name: str) -> Iterator[_Finding]:
    if not _PASCAL.fullmatch(name):
        yield f"{what}_PASCAL_CASE", f"is not in PascalCase ({name})"


def _lower_snake(what: str, name: str) -> Iterator[_Finding]:
    if not _LOWER_SNAKE.fullmatch(name):
        yield f"{what}_LOWER_SNAKE_CASE", f"is not in lower_snake_case ({name})"


def _unique_messages(found: list[Declaration]) -> list[str]:
    """Each message may be the request or the response of one rpc only, and of all services."""
    uses = [
        (declaration, type_name)
        for declaration in found
        if isinstance(declaration.proto, MethodDescriptorProto)
        for type_name in (declaration.proto.input_type, declaration.proto.output_type)
    ]
    counts = Counter(type_name for _, type_name in uses)
    return [
        declaration.finding("RPC_REQUEST_RESPONSE_UNIQUE", f"shares {type_name} with another use")
        for declaration, type_name in uses
        if counts[type_name] > 1
    ]


def _same_options(contract: FileDescriptorSet) -> list[str]:
    """All files of a package carry the same file options (go_package and its like)."""
    first: dict[str, FileDescriptorProto] = {}
    return [
        f"{file.name}:0: PACKAGE_SAME_OPTIONS: {file.package} has other file options than "
        f"{first[file.package].name}"
        for file in contract.file
        if first.setdefault(file.package, file).options != file.options
    ]
