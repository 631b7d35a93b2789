"""A released contract, and the contract now -> findings for each change that breaks a peer of the release.

Called by `generate.py --check --release`. A peer of the release is a host or a plugin that was built from it.
A change breaks it in one of two directions: the peer does not understand what a peer of today sends, or a
peer of today does not understand what it sends. So what a release has stays as it is, and what is new is
nothing that an old peer had to set or had to know.

What no program can see is a change of meaning: `reworded` lists the released declarations whose comments
differ, for the reviewer.

Source: what proto3 says of updating a message type, on the wire and in JSON, and the words of common.proto.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

from protocheck.comments import enums_that_may_grow, is_required
from protocheck.walk import Declaration, Proto, declarations

_Finding: TypeAlias = tuple[str, str]
_Key: TypeAlias = tuple[str, str]
"""The name of the parent, and the number of a field or of an enum's value in it."""

BY_FEATURE: Final = re.compile(r'\bfeature\s+"')
"""The words of a new duty's comment if it holds only between peers that named `feature "x"`."""

BY_POINT: Final = re.compile(r"\bpoint\b")
"""The words of a new call's comment if the host makes it only to plugins that declared a point."""


def check(released: FileDescriptorSet, now: FileDescriptorSet) -> list[str]:
    """Every change that breaks a peer of `released`, in the order of the release; empty if none does."""
    old, new = _by_name(released), _by_name(now)
    numbers = {_number_key(found): found for found in new.values() if _number_key(found) is not None}
    findings = [
        (new.get(name) or found).finding(rule, text)
        for name, found in old.items()
        for rule, text in _kept(found, new.get(name), numbers)
    ]
    growing = enums_that_may_grow(released)
    for name, found in new.items():
        parent = old.get(name.rpartition(".")[0])
        if name not in old and parent is not None:
            findings += [found.finding(rule, text) for rule, text in _added(found, parent, growing, old)]
    return findings


def reworded(released: FileDescriptorSet, now: FileDescriptorSet) -> list[str]:
    """Return the places of released declarations whose words are not those of the release."""
    new = _by_name(now)
    return [
        f"{new[name].file}:{new[name].line}: {found.name}"
        for name, found in _by_name(released).items()
        if name in new and new[name].comment.split() != found.comment.split()
    ]


def has_grown(released: FileDescriptorSet, now: FileDescriptorSet) -> bool:
    """Return True if the contract now declares something that the release does not."""
    return not _by_name(now).keys() <= _by_name(released).keys()


def _by_name(contract: FileDescriptorSet) -> dict[str, Declaration]:
    """Return the declarations by full name; a file, whose package has several files, by its path."""
    return {found.file if found.parent is None else found.name: found for found in declarations(contract)}


def _number_key(found: Declaration) -> _Key | None:
    if isinstance(found.proto, FieldDescriptorProto | EnumValueDescriptorProto):
        return found.name.rpartition(".")[0], str(found.proto.number)
    return None


def _kept(
    old: Declaration, new: Declaration | None, numbers: Mapping[_Key | None, Declaration]
) -> Iterator[_Finding]:
    """Yield what is wrong with what became of one released declaration."""
    if new is None:
        key = _number_key(old)
        successor = None if key is None else numbers.get(key)
        if successor is not None:
            yield (
                "RENAMED",
                f"is called {successor.short_name} now; JSON and generated code of old peers use the name",
            )
        else:
            yield "DELETED", "is gone; peers of the release still use it"
        return
    if type(old.proto) is not type(new.proto):
        yield "CHANGED_KIND", "is another kind of declaration now"
        return
    if old.file != new.file and isinstance(old.parent, FileDescriptorProto):
        yield "MOVED", f"was in {old.file} in the release; generated code of authors moves"
    match old.proto, new.proto:
        case FileDescriptorProto() as before, FileDescriptorProto() as after:
            for option in sorted({name for name, _ in _file_options(before) ^ _file_options(after)}):
                yield "FILE_OPTION", f"has another {option}; generated code of authors moves"
        case FieldDescriptorProto() as before, FieldDescriptorProto() as after:
            yield from _field(before, after)
            if _oneof(old) != _oneof(new):
                yield "FIELD_ONEOF", "moved into a oneof, out of it, or into another one"
            if is_required(old.comment) != is_required(new.comment):
                yield "PRESENCE", _presence(is_required(new.comment))
            elif is_required(new.comment) and _by_feature(old) != _by_feature(new):
                yield "PRESENCE", "is REQUIRED with a feature in one of the two and without one in the other"
        case EnumValueDescriptorProto() as before, EnumValueDescriptorProto() as after:
            if before.number != after.number:
                yield "NUMBER", f"has the number {after.number}, and {before.number} in the release"
        case MethodDescriptorProto() as before, MethodDescriptorProto() as after:
            if (before.input_type, before.output_type) != (after.input_type, after.output_type):
                yield "RPC_TYPES", "has another request or response than in the release"
            if (before.client_streaming, before.server_streaming) != (
                after.client_streaming,
                after.server_streaming,
            ):
                yield "RPC_STREAMING", "streams otherwise than in the release"
        case (DescriptorProto() as before, DescriptorProto() as after) | (
            EnumDescriptorProto() as before,
            EnumDescriptorProto() as after,
        ):
            yield from _reserved(before, after)
            if isinstance(before, DescriptorProto) and isinstance(after, DescriptorProto):
                yield from _maps(before, after)


def _presence(required: bool) -> str:
    if required:
        return "is REQUIRED now; peers of the release may leave it out"
    return "is OPTIONAL now; peers of the release need it"


def _field(before: FieldDescriptorProto, after: FieldDescriptorProto) -> Iterator[_Finding]:
    if before.number != after.number:
        yield "NUMBER", f"has the number {after.number}, and {before.number} in the release"
    if (before.type, before.type_name) != (after.type, after.type_name):
        yield "FIELD_TYPE", "has another type than in the release"
    if before.label != after.label:
        yield "FIELD_LABEL", "is repeated in one of the two and not in the other"
    if before.proto3_optional != after.proto3_optional:
        yield "FIELD_PRESENCE", "tells absent from zero in one of the two and not in the other"
    if before.json_name != after.json_name:
        yield "FIELD_JSON_NAME", "has another name in JSON than in the release"


def _oneof(field: Declaration) -> str:
    """Return the name of a field's oneof; empty: it is in none."""
    match field.proto, field.parent:
        case FieldDescriptorProto() as proto, DescriptorProto() as message if (
            proto.HasField("oneof_index") and not proto.proto3_optional
        ):
            return message.oneof_decl[proto.oneof_index].name
    return ""


def _by_feature(found: Declaration) -> bool:
    return BY_FEATURE.search(found.comment) is not None


def _file_options(file: FileDescriptorProto) -> set[tuple[str, str]]:
    """Return the file's options and their values. A file may become deprecated."""
    return {
        (option.name, str(value))
        for option, value in file.options.ListFields()
        if option.name != "deprecated"
    }


def _maps(before: DescriptorProto, after: DescriptorProto) -> Iterator[_Finding]:
    """Yield the maps of a message whose keys or values have another type."""
    entries = {entry.name: entry for entry in after.nested_type if entry.options.map_entry}
    for old in before.nested_type:
        new = entries.get(old.name) if old.options.map_entry else None
        if old.options.map_entry and new is None:
            yield "FIELD_TYPE", f"has no map of {old.name} now, which is one in the release"
        if new is not None and [(f.type, f.type_name) for f in old.field] != [
            (f.type, f.type_name) for f in new.field
        ]:
            yield "FIELD_TYPE", f"has other keys or values in the map of {old.name} than in the release"


def _reserved(
    before: DescriptorProto | EnumDescriptorProto, after: DescriptorProto | EnumDescriptorProto
) -> Iterator[_Finding]:
    """Yield the reserved numbers and names that are neither reserved nor in use now."""
    free = _first_free(_ranges(before), _ranges(after), {item.number for item in _items(after)})
    if free is not None:
        yield "RESERVED", f"does not keep the number {free}, which the release reserves"
    names = {*before.reserved_name} - {*after.reserved_name} - {item.name for item in _items(after)}
    if names:
        yield "RESERVED", f"does not keep the name {min(names)}, which the release reserves"


def _items(proto: Proto) -> list[FieldDescriptorProto | EnumValueDescriptorProto]:
    if isinstance(proto, DescriptorProto):
        return list(proto.field)
    return list(proto.value) if isinstance(proto, EnumDescriptorProto) else []


def _ranges(proto: DescriptorProto | EnumDescriptorProto) -> list[range]:
    """Return the reserved numbers. A message's ranges end before `end`, an enum's with it."""
    last = 0 if isinstance(proto, DescriptorProto) else 1
    return [range(item.start, item.end + last) for item in proto.reserved_range]


def _first_free(before: list[range], after: list[range], used: set[int]) -> int | None:
    """Return the first number of `before` that is neither in `after` nor used. A range may be `to max`."""
    for reserved in before:
        number = reserved.start
        while number in reserved:
            kept = next((one for one in after if number in one), None)
            if kept is None and number not in used:
                return number
            number = number + 1 if kept is None else kept.stop
    return None


def _added(
    found: Declaration, parent: Declaration, growing: set[str], old: Mapping[str, Declaration]
) -> Iterator[_Finding]:
    """Yield what is wrong with a declaration that the release `old` lacks. `parent`: its parent there."""
    match found.proto:
        case FieldDescriptorProto():
            if is_required(found.comment) and not _by_feature(found):
                yield (
                    "NEW_REQUIRED",
                    "is new and REQUIRED, and peers of the release do not set it",
                )
            if f"{parent.name}.{_oneof(found)}" in old:
                yield (
                    "NEW_IN_ONEOF",
                    "is new in a oneof, which a peer of the release then sees unset",
                )
        case EnumValueDescriptorProto() if parent.name not in growing:
            yield (
                "NEW_VALUE",
                "is new in an enum whose reader is not told what to do with a new value",
            )
        case MethodDescriptorProto() if not _by_feature(found) and not BY_POINT.search(found.comment):
            yield (
                "NEW_CALL",
                "is new, and its comment names neither a feature nor an extension point without which it is"
                " not made; peers of the release do not serve it",
            )
