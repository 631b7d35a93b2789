"""Make `proto/protocheck` importable, and compile the contract once."""

from __future__ import annotations

import sys

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from support.places import ROOT

REPOSITORY = ROOT
PROTO_ROOT = REPOSITORY / "proto"
sys.path.insert(0, str(PROTO_ROOT))


@pytest.fixture(scope="session")
def compiled_contract() -> FileDescriptorSet:
    """Return the contract with comments; it is shared, so tests change only copies."""
    from protocheck import compiler

    return compiler.describe(PROTO_ROOT)


@pytest.fixture
def contract(compiled_contract: FileDescriptorSet) -> FileDescriptorSet:
    """Return a copy of the contract that the test may change."""
    copy = FileDescriptorSet()
    copy.CopyFrom(compiled_contract)
    return copy
