"""Names that v1 keeps free -> findings when something takes one. Called by `generate.py --check`.

proto3 can reserve the numbers and names of fields and enum values, not those of calls and messages, so
these are kept here. A minor that adds one of them takes it out of the list in the same change.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

from protocheck.walk import Declaration, declarations

KEPT_FREE: Final = frozenset({"SignPod"})
"""Calls that a later minor may add; their requests and responses are kept free with them."""


def check(contract: FileDescriptorSet) -> list[str]:
    """One finding for each call or message that has a name of `KEPT_FREE`."""
    return [
        declaration.finding("NAME_KEPT_FREE", "is kept for a later minor (reserved.KEPT_FREE)")
        for declaration in declarations(contract)
        if isinstance(declaration.proto, DescriptorProto | MethodDescriptorProto)
        and _call(declaration) in KEPT_FREE
    ]


def _call(declaration: Declaration) -> str:
    """Return the call that a declaration belongs to by its name."""
    return declaration.short_name.removesuffix("Request").removesuffix("Response")
