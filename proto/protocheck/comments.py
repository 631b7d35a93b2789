"""Check that comments say everything that the contract needs: descriptors with source info -> findings.

Called by `generate.py --check`. A declaration without a comment, a field that does not say REQUIRED or
OPTIONAL, and an rpc without its paragraphs are findings; whether the words are true is the reviewer's part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor_pb2 import (
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

from protocheck.walk import Declaration, declarations

RPC_PARAGRAPHS: Final = ("Caller:", "Errors:", "Repeat:")
"""The paragraphs of every rpc comment: its caller, the meaning of gRPC codes, whether to repeat it."""

_PRESENCE: Final = re.compile(r"\s*(REQUIRED|OPTIONAL)\b")


_UNKNOWN_VALUE: Final = re.compile(r"\bdo(es)?\s+not\s+know\b")


def check(contract: FileDescriptorSet) -> list[str]:
    """Every finding, in the order of the files; empty if everything is commented."""
    found = declarations(contract)
    findings = [finding for declaration in found for finding in _own(declaration)]
    open_enums = enums_that_may_grow(contract)
    return findings + [
        item.finding(
            "COMMENT_UNKNOWN_VALUE", "does not say what a reader does with a value that it does not know"
        )
        for item in found
        if isinstance(item.proto, EnumDescriptorProto) and item.comment and item.name not in open_enums
    ]


def is_required(comment: str) -> bool:
    """Return True if a field's comment says that the sender must set it."""
    return comment.lstrip().startswith("REQUIRED")


def enums_that_may_grow(contract: FileDescriptorSet) -> set[str]:
    """Return the full names of the enums of which a comment says how an unknown value is read.

    The comment is that of the enum, of one of its values, or of a field of its type.
    """
    growing: set[str] = set()
    for item in declarations(contract):
        if not _UNKNOWN_VALUE.search(item.comment):
            continue
        match item.proto:
            case EnumDescriptorProto():
                growing.add(item.name)
            case EnumValueDescriptorProto():
                growing.add(item.name.rpartition(".")[0])
            case FieldDescriptorProto() as field if field.type == FieldDescriptorProto.TYPE_ENUM:
                growing.add(field.type_name.removeprefix("."))
    return growing


def _own(declaration: Declaration) -> Iterator[str]:
    if not declaration.comment:
        yield declaration.finding("COMMENT", "has no comment")
        return
    match declaration.proto:
        case FieldDescriptorProto() if not _PRESENCE.match(declaration.comment):
            yield declaration.finding(
                "COMMENT_PRESENCE", "does not begin its comment with REQUIRED or OPTIONAL"
            )
        case MethodDescriptorProto():
            for paragraph in RPC_PARAGRAPHS:
                if not re.search(rf"^\s*{paragraph}\s*\S", declaration.comment, re.MULTILINE):
                    yield declaration.finding("COMMENT_RPC", f"has no paragraph `{paragraph}`")
