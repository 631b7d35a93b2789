"""Descriptors with source info -> findings against the rule that the comments are the law.

Called by `generate.py --check`. A declaration without a comment, a field that does not say REQUIRED or
OPTIONAL, and an rpc without its paragraphs are findings; whether the words are true is the reviewer's part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor_pb2 import (
    FieldDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

from protocheck.walk import Declaration, declarations

RPC_PARAGRAPHS: Final = ("Caller:", "Errors:", "Repeat:")
"""What every rpc comment says: who calls it when, what each gRPC code means, may it be repeated."""

_PRESENCE: Final = re.compile(r"\s*(REQUIRED|OPTIONAL)\b")


def check(contract: FileDescriptorSet) -> list[str]:
    """Every finding, in the order of the files; empty if everything is commented."""
    return [finding for declaration in declarations(contract) for finding in _own(declaration)]


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
