"""Every declaration of the contract has its comment, and the check notices a missing one."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from protocheck import comments
from protocheck.walk import declarations

from contract.sample import compile_sample, rules


def test_contract_is_commented(contract: FileDescriptorSet) -> None:
    assert comments.check(contract) == []


def test_rule_looks_at_every_field_of_the_contract(contract: FileDescriptorSet) -> None:
    for file in contract.file:
        file.ClearField("source_code_info")

    found = declarations(contract)

    assert len(comments.check(contract)) == len(found)
    assert sum(isinstance(d.proto, FieldDescriptorProto) for d in found) > 250


def test_sample_is_commented(tmp_path: Path) -> None:
    assert comments.check(compile_sample(tmp_path)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("comment", "name"),
    [
        pytest.param("// What a crane can do.\n", "berth.plugin.v1", id="file"),
        pytest.param("// Served by cranes.\n", "berth.plugin.v1.CraneService", id="service"),
        pytest.param("// What to lift.\n", "berth.plugin.v1.LiftRequest", id="message"),
        pytest.param("  // REQUIRED: the loads.\n", "berth.plugin.v1.LiftRequest.loads", id="field"),
        pytest.param("  // Where to.\n", "berth.plugin.v1.LiftRequest.target", id="oneof"),
        pytest.param("  // What it is made of.\n", "berth.plugin.v1.Load.CargoKind", id="enum"),
        pytest.param(
            "    // Loose goods.\n", "berth.plugin.v1.Load.CargoKind.CARGO_KIND_BULK", id="enum value"
        ),
    ],
)
def test_missing_comment_is_found(comment: str, name: str, tmp_path: Path) -> None:
    findings = comments.check(compile_sample(tmp_path, (comment, "")))

    assert len(findings) == 1
    assert f" COMMENT: {name} has no comment" in findings[0]


def test_comment_behind_the_declaration_counts(tmp_path: Path) -> None:
    edits = [
        ("    // Boxes.\n", ""),
        ("CARGO_KIND_BOX = 2;", "CARGO_KIND_BOX = 2; // Boxes."),
    ]

    assert comments.check(compile_sample(tmp_path, *edits)) == []


def test_comment_apart_from_the_declaration_does_not_count(tmp_path: Path) -> None:
    edit = ("// What to lift.\n", "// What to lift.\n\n")

    assert rules(comments.check(compile_sample(tmp_path, edit))) == {"COMMENT"}


def test_field_without_presence_is_found(tmp_path: Path) -> None:
    contract = compile_sample(tmp_path, ("// REQUIRED: the loads.", "// The loads, which are OPTIONAL."))

    assert rules(comments.check(contract)) == {"COMMENT_PRESENCE"}


@pytest.mark.parametrize(
    "paragraph", ["Caller: the harbour, after Lift.", "Errors: any code: it still hangs.", "Repeat: yes."]
)
def test_rpc_without_a_paragraph_is_found(paragraph: str, tmp_path: Path) -> None:
    findings = comments.check(compile_sample(tmp_path, (f"  // {paragraph}\n", "")))

    assert len(findings) == 1
    assert f"has no paragraph `{paragraph.split(' ')[0]}`" in findings[0]


def test_rpc_with_an_empty_paragraph_is_found(tmp_path: Path) -> None:
    contract = compile_sample(tmp_path, ("  // Repeat: yes.\n", "  // Repeat:\n"))

    assert rules(comments.check(contract)) == {"COMMENT_RPC"}


def test_enum_that_does_not_say_how_an_unknown_value_is_read_is_found(tmp_path: Path) -> None:
    contract = compile_sample(tmp_path, (", as is every value that a crane does not know.", "."))
    assert rules(comments.check(contract)) == {"COMMENT_UNKNOWN_VALUE"}


def test_words_about_unknown_values_may_stand_at_a_field_of_the_enum(tmp_path: Path) -> None:
    unsaid = (", as is every value that a crane does not know.", ".")
    said = ("OPTIONAL: unspecified: BULK.", "OPTIONAL: a crane that does not know the value reads BULK.")
    assert comments.check(compile_sample(tmp_path, unsaid, said)) == []
