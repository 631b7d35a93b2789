"""The contract against that of the last release -> findings that would break a peer built from it.

Called by `generate.py --check`. Additions are fine; nothing may be removed, renumbered, renamed, retyped or
moved to another file, and what is reserved stays reserved (buf: category FILE).
Source: buf documentation, "Breaking change rules and categories".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

from protocheck.walk import Declaration, declarations

RESERVED_TAKEN: Final[frozenset[str]] = frozenset()
"""Reserved numbers and names that a minor took on purpose, as "ExtensionPoint 14" and "ExtensionPoint
EXTENSION_POINT_SIGN". Only what was kept for a minor from the start may stand here, nothing used before."""

_Numbered: TypeAlias = FieldDescriptorProto | EnumValueDescriptorProto
_Reserving: TypeAlias = DescriptorProto | EnumDescriptorProto
_CONTAINERS: Final = (DescriptorProto, EnumDescriptorProto, ServiceDescriptorProto)


def check(contract: FileDescriptorSet, released: FileDescriptorSet) -> list[str]:
    """Every finding, in the order of the release's files; empty if its peers can go on."""
    now = _containers(contract)
    findings = []
    for name, before in _containers(released).items():
        after = now.get(name)
        if after is None or type(after.proto) is not type(before.proto):
            findings.append(before.finding("BREAKING_REMOVED", "is gone"))
        else:
            if after.file != before.file:
                findings.append(after.finding("BREAKING_MOVED", f"was in {before.file}"))
            findings += [after.finding(rule, text) for rule, text in _compare(before, after)]
    return findings


def _containers(contract: FileDescriptorSet) -> dict[str, Declaration]:
    found = declarations(contract)
    return {d.name: d for d in found if isinstance(d.proto, _CONTAINERS)}


def _compare(before: Declaration, after: Declaration) -> Iterator[tuple[str, str]]:
    match before.proto, after.proto:
        case DescriptorProto() as old_message, DescriptorProto() as message:
            yield from _compare_numbered(old_message.field, message.field)
            yield from _compare_fields(old_message, message)
            yield from _compare_reserved(old_message, message)
        case EnumDescriptorProto() as old_enum, EnumDescriptorProto() as enum:
            yield from _compare_numbered(old_enum.value, enum.value)
            yield from _compare_reserved(old_enum, enum)
        case ServiceDescriptorProto() as old_service, ServiceDescriptorProto() as service:
            yield from _compare_rpcs(old_service.method, service.method)


def _compare_numbered(before: Sequence[_Numbered], after: Sequence[_Numbered]) -> Iterator[tuple[str, str]]:
    by_number = {item.number: item.name for item in after}
    by_name = {item.name: item.number for item in after}
    for item in before:
        if by_name.get(item.name, item.number) != item.number:
            text = f"has {item.name} = {by_name[item.name]}, released as {item.number}"
            yield "BREAKING_RENUMBERED", text
        elif item.number not in by_number:
            yield "BREAKING_REMOVED", f"lacks {item.name} = {item.number}"
        elif by_number[item.number] != item.name:
            text = f"calls {item.number} {by_number[item.number]}, released as {item.name}"
            yield "BREAKING_RENAMED", text


def _compare_fields(before: DescriptorProto, after: DescriptorProto) -> Iterator[tuple[str, str]]:
    by_number = {field.number: field for field in after.field}
    for field in before.field:
        if field.number not in by_number:
            continue
        old = _field_type(before, field)
        new = _field_type(after, by_number[field.number])
        if old != new:
            yield "BREAKING_RETYPED", f"has {field.name} as {new}, released as {old}"


def _field_type(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    """Everything of a field that its readers depend on, in words."""
    entries = {entry.name: entry for entry in message.nested_type if entry.options.map_entry}
    entry = entries.get(field.type_name.rsplit(".", 1)[-1])
    if entry is not None:
        return f"map<{', '.join(_field_type(entry, part) for part in entry.field)}>"
    base = field.type_name or FieldDescriptorProto.Type.Name(field.type)
    words = [FieldDescriptorProto.Label.Name(field.label), base, f"json_name={field.json_name}"]
    if field.proto3_optional:
        words.insert(0, "explicit")
    elif field.HasField("oneof_index"):
        words.insert(0, f"oneof {message.oneof_decl[field.oneof_index].name}")
    return " ".join(words)


def _compare_rpcs(
    before: Iterable[MethodDescriptorProto], after: Iterable[MethodDescriptorProto]
) -> Iterator[tuple[str, str]]:
    by_name = {rpc.name: _signature(rpc) for rpc in after}
    for rpc in before:
        if rpc.name not in by_name:
            yield "BREAKING_REMOVED", f"lacks rpc {rpc.name}"
        elif by_name[rpc.name] != _signature(rpc):
            text = f"has {rpc.name} as {by_name[rpc.name]}, released as {_signature(rpc)}"
            yield "BREAKING_RETYPED", text


def _signature(rpc: MethodDescriptorProto) -> str:
    request = f"{'stream ' if rpc.client_streaming else ''}{rpc.input_type}"
    return f"{request} -> {'stream ' if rpc.server_streaming else ''}{rpc.output_type}"


def _compare_reserved(before: _Reserving, after: _Reserving) -> Iterator[tuple[str, str]]:
    lost_names = set(before.reserved_name) - set(after.reserved_name)
    lost_numbers = _reserved_numbers(before) - _reserved_numbers(after)
    for word in [*sorted(lost_numbers), *sorted(lost_names)]:
        if f"{before.name} {word}" not in RESERVED_TAKEN:
            yield "BREAKING_RESERVED", f"no longer reserves {word}"


def _reserved_numbers(item: _Reserving) -> set[int]:
    """All reserved numbers. Messages write their ranges with the end excluded, enums with it included."""
    past_end = 1 if isinstance(item, EnumDescriptorProto) else 0
    return {n for r in item.reserved_range for n in range(r.start, r.end + past_end)}
