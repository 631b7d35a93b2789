"""What a released contract promised stays; what is added beside it is free."""

from __future__ import annotations

from collections.abc import MutableSequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)
from protocheck import breaking
from protocheck.walk import declarations

from contract.sample import SAMPLE, compile_files, compile_sample, rules


def test_contract_keeps_what_was_released(contract: FileDescriptorSet, released: FileDescriptorSet) -> None:
    assert breaking.check(contract, released) == []


def test_loss_of_anything_released_is_found(contract: FileDescriptorSet, released: FileDescriptorSet) -> None:
    unnoticed = []
    for declaration in declarations(contract):
        match declaration.proto:
            case DescriptorProto() as message:
                unnoticed += _losses(message.field, contract, released)
            case EnumDescriptorProto() as enum:
                unnoticed += _losses(enum.value, contract, released)
            case ServiceDescriptorProto() as service:
                unnoticed += _losses(service.method, contract, released)

    assert unnoticed == []
    assert breaking.check(contract, released) == []


def _losses(
    leaves: MutableSequence[Any], contract: FileDescriptorSet, released: FileDescriptorSet
) -> list[str]:
    """Take each leaf out in turn and put it back; the names of those whose loss was not found."""
    unnoticed = []
    for index in range(len(leaves)):
        lost = leaves.pop(index)
        if rules(breaking.check(contract, released)) != {"BREAKING_REMOVED"}:
            unnoticed.append(lost.name)
        leaves.insert(index, lost)
    return unnoticed


BREAKS = [
    pytest.param(
        ("  // OPTIONAL: how long to hold; unset: for ever.\n  google.protobuf.Duration hold = 2;\n", ""),
        "BREAKING_REMOVED",
        id="field removed",
    ),
    pytest.param(
        ("google.protobuf.Duration hold = 2;", 'reserved 2; reserved "hold";'),
        "BREAKING_REMOVED",
        id="field removed and reserved",
    ),
    pytest.param((" hold = 2", " hold = 20"), "BREAKING_RENUMBERED", id="field renumbered"),
    pytest.param((" hold = 2", " wait = 2"), "BREAKING_RENAMED", id="field renamed"),
    pytest.param(("google.protobuf.Duration hold", "string hold"), "BREAKING_RETYPED", id="field retyped"),
    pytest.param(("repeated Load loads", "Load loads"), "BREAKING_RETYPED", id="list made single"),
    pytest.param(("optional string note", "string note"), "BREAKING_RETYPED", id="presence lost"),
    pytest.param(("map<string, string>", "map<string, bytes>"), "BREAKING_RETYPED", id="map value retyped"),
    pytest.param(("oneof target", "oneof goal"), "BREAKING_RETYPED", id="field moved to another oneof"),
    pytest.param(("string note = 4", 'string note = 4 [json_name="n"]'), "BREAKING_RETYPED", id="json name"),
    pytest.param(
        ("// Nothing to say.\nmessage LowerResponse {}\n", ""), "BREAKING_REMOVED", id="message removed"
    ),
    pytest.param(("CARGO_KIND_BOX = 2;", ""), "BREAKING_REMOVED", id="value removed"),
    pytest.param(("CARGO_KIND_BOX = 2", "CARGO_KIND_BOX = 3"), "BREAKING_RENUMBERED", id="value renumbered"),
    pytest.param(("CARGO_KIND_BOX", "CARGO_KIND_CRATE"), "BREAKING_RENAMED", id="value renamed"),
    pytest.param(("CargoKind", "CargoSort"), "BREAKING_REMOVED", id="enum renamed"),
    pytest.param(("CraneService", "CranesService"), "BREAKING_REMOVED", id="service renamed"),
    pytest.param(
        ("  rpc Lower(LowerRequest) returns (LowerResponse);\n", ""), "BREAKING_REMOVED", id="rpc removed"
    ),
    pytest.param(("Lower(LowerRequest)", "Lower(LiftRequest)"), "BREAKING_RETYPED", id="request retyped"),
    pytest.param(("Lower(LowerRequest)", "Lower(stream LowerRequest)"), "BREAKING_RETYPED", id="made stream"),
    pytest.param(
        ("returns (LowerResponse)", "returns (stream LowerResponse)"),
        "BREAKING_RETYPED",
        id="response made stream",
    ),
    pytest.param(("reserved 9, 12 to 14;", "reserved 9, 12 to 13;"), "BREAKING_RESERVED", id="number freed"),
    pytest.param(('  reserved "tonnage";', ""), "BREAKING_RESERVED", id="name freed"),
    pytest.param(
        ('  reserved "tonnage";', "  // OPTIONAL: taken.\n  int32 tonnage = 7;"),
        "BREAKING_RESERVED",
        id="reserved name used",
    ),
    pytest.param(("reserved 7 to 9;", "reserved 7 to 8;"), "BREAKING_RESERVED", id="value's number freed"),
    pytest.param(
        ("reserved 7 to 9;", "reserved 8, 9; CARGO_KIND_REEL = 7;"),
        "BREAKING_RESERVED",
        id="value's reserved number used",
    ),
    pytest.param(('reserved "CARGO_KIND_PIPE";', ""), "BREAKING_RESERVED", id="value's name freed"),
]


@pytest.mark.parametrize(("edit", "rule"), BREAKS)
def test_break_is_found(edit: tuple[str, str], rule: str, tmp_path: Path) -> None:
    before = compile_sample(tmp_path / "before")
    after = _compile_broken(tmp_path / "after", edit)

    assert rule in rules(breaking.check(after, before))


def _compile_broken(root: Path, edit: tuple[str, str]) -> FileDescriptorSet:
    """Some edits leave a dangling use or import behind, which protoc would refuse first."""
    edits = [edit]
    if edit[1] == "" and "LowerResponse {}" in edit[0]:
        edits.append(("returns (LowerResponse)", "returns (LiftResponse)"))
    if "google.protobuf.Duration hold" in edit[0]:
        edits.append(('import "google/protobuf/duration.proto";\n', ""))
    return compile_sample(root, *edits)


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(
            ("message LowerRequest {}", "message LowerRequest {\n  // OPTIONAL: m.\n  int32 depth = 1;\n}"),
            id="field",
        ),
        pytest.param(("CARGO_KIND_BOX = 2;", "CARGO_KIND_BOX = 2; CARGO_KIND_TANK = 3;"), id="enum value"),
        pytest.param(("// One load.", "// More.\nmessage Rope {}\n\n// One load."), id="message"),
        pytest.param(
            ("  // Lowers what hangs.", "  rpc Turn(TurnRequest) returns (TurnResponse);\n  // Lowers."),
            id="rpc",
        ),
        pytest.param(("reserved 9, 12 to 14;", "reserved 9 to 14;"), id="reservation"),
        pytest.param(("// One load.", "// Just one load."), id="comment"),
    ],
)
def test_addition_is_free(edit: tuple[str, str], tmp_path: Path) -> None:
    before = compile_sample(tmp_path / "before")
    edits = [edit]
    if "rpc Turn" in edit[1]:
        edits.append(("message LowerRequest {}", "message LowerRequest {}\nmessage TurnRequest {}"))
        edits.append(("message LowerResponse {}", "message LowerResponse {}\nmessage TurnResponse {}"))

    assert breaking.check(compile_sample(tmp_path / "after", *edits), before) == []


def test_message_moved_to_another_file_is_found(tmp_path: Path) -> None:
    before = compile_sample(tmp_path / "before")
    moved = "// Nothing to say.\nmessage LowerResponse {}\n"
    head = 'syntax = "proto3";\npackage berth.plugin.v1;\n'
    after = compile_files(
        tmp_path / "after",
        {
            "berth/plugin/v1/rest.proto": f"{head}{moved}",
            "berth/plugin/v1/crane.proto": SAMPLE.replace(moved, "").replace(
                "import ", 'import "berth/plugin/v1/rest.proto";\nimport ', 1
            ),
        },
    )

    findings = breaking.check(after, before)

    assert rules(findings) == {"BREAKING_MOVED"}
    assert "was in berth/plugin/v1/crane.proto" in findings[0]


def test_number_kept_for_a_minor_may_be_taken_on_purpose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = compile_sample(tmp_path / "before")
    edit = ("reserved 7 to 9;", "reserved 8, 9; CARGO_KIND_REEL = 7;")
    after = compile_sample(tmp_path / "after", edit)
    monkeypatch.setattr(breaking, "RESERVED_TAKEN", frozenset({"CargoKind 7"}))

    assert breaking.check(after, before) == []
