"""Descriptors -> a flat list of declarations with name, place and comment. Used by every rule.

Source: the path numbers are the field numbers of google/protobuf/descriptor.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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
    SourceCodeInfo,
)

Proto: TypeAlias = (
    FileDescriptorProto
    | DescriptorProto
    | FieldDescriptorProto
    | OneofDescriptorProto
    | EnumDescriptorProto
    | EnumValueDescriptorProto
    | ServiceDescriptorProto
    | MethodDescriptorProto
)

_FILE_MESSAGES, _FILE_ENUMS, _FILE_SERVICES, _FILE_SYNTAX = 4, 5, 6, 12
_MESSAGE_FIELDS, _MESSAGE_NESTED, _MESSAGE_ENUMS, _MESSAGE_ONEOFS = 2, 3, 4, 8
_ENUM_VALUES = 2
_SERVICE_METHODS = 2

_Path: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One thing that a .proto file declares.

    `name` is full (`berth.plugin.v1.NodeSet.names`); values are named below their enum, unlike in
    protobuf, so that equal names stay apart. `line` counts from 1, 0 without source info. `parent`
    is None for a file.
    """

    name: str
    file: str
    line: int
    comment: str
    proto: Proto
    parent: Proto | None

    @property
    def short_name(self) -> str:
        """The last part of the name; a file has its path."""
        return self.proto.name

    def finding(self, rule: str, text: str) -> str:
        """One line for the reader: where, which rule, what."""
        return f"{self.file}:{self.line}: {rule}: {self.name} {text}"


def declarations(contract: FileDescriptorSet) -> list[Declaration]:
    """Everything that the files declare, in the order of the files, map entries left out."""
    return [found for file in contract.file for found in _Walker(file).walk()]


class _Walker:
    """Walks one file and looks up place and comment by path."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._places: dict[_Path, SourceCodeInfo.Location] = {
            tuple(place.path): place for place in file.source_code_info.location
        }

    def walk(self) -> Iterator[Declaration]:
        file = self._file
        yield self._declare(file.package, (_FILE_SYNTAX,), file, None)
        for index, message in enumerate(file.message_type):
            yield from self._message(file.package, (_FILE_MESSAGES, index), message, file)
        for index, enum in enumerate(file.enum_type):
            yield from self._enum(file.package, (_FILE_ENUMS, index), enum, file)
        for index, service in enumerate(file.service):
            path = (_FILE_SERVICES, index)
            name = f"{file.package}.{service.name}"
            yield self._declare(name, path, service, file)
            yield from self._leaves(name, (*path, _SERVICE_METHODS), service.method, service)

    def _message(
        self, scope: str, path: _Path, message: DescriptorProto, parent: Proto
    ) -> Iterator[Declaration]:
        if message.options.map_entry:
            return
        name = f"{scope}.{message.name}"
        yield self._declare(name, path, message, parent)
        yield from self._leaves(name, (*path, _MESSAGE_FIELDS), message.field, message)
        synthetic = {field.oneof_index for field in message.field if field.proto3_optional}
        for index, oneof in enumerate(message.oneof_decl):
            if index not in synthetic:
                oneof_path = (*path, _MESSAGE_ONEOFS, index)
                yield self._declare(f"{name}.{oneof.name}", oneof_path, oneof, message)
        for index, nested in enumerate(message.nested_type):
            yield from self._message(name, (*path, _MESSAGE_NESTED, index), nested, message)
        for index, enum in enumerate(message.enum_type):
            yield from self._enum(name, (*path, _MESSAGE_ENUMS, index), enum, message)

    def _enum(
        self, scope: str, path: _Path, enum: EnumDescriptorProto, parent: Proto
    ) -> Iterator[Declaration]:
        name = f"{scope}.{enum.name}"
        yield self._declare(name, path, enum, parent)
        yield from self._leaves(name, (*path, _ENUM_VALUES), enum.value, enum)

    def _leaves(
        self, scope: str, path: _Path, leaves: Sequence[Proto], parent: Proto
    ) -> Iterator[Declaration]:
        for index, leaf in enumerate(leaves):
            yield self._declare(f"{scope}.{leaf.name}", (*path, index), leaf, parent)

    def _declare(self, name: str, path: _Path, proto: Proto, parent: Proto | None) -> Declaration:
        place = self._places.get(path, SourceCodeInfo.Location())
        comments = [place.leading_comments, place.trailing_comments]
        if parent is None:  # a file's introduction stands apart from `syntax`
            comments = [*place.leading_detached_comments, *comments]
        return Declaration(
            name=name,
            file=self._file.name,
            line=place.span[0] + 1 if place.span else 0,
            comment="\n".join(comment for comment in comments if comment.strip()),
            proto=proto,
            parent=parent,
        )
