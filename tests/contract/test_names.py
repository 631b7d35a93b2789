"""The contract follows buf's STANDARD rules, and each check notices a violation of its rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from protocheck import compiler, names

from contract.sample import SAMPLE, compile_files, compile_sample, rules


def test_contract_follows_the_naming_rules(contract: FileDescriptorSet) -> None:
    assert names.check(contract) == []


def test_sample_follows_the_naming_rules(tmp_path: Path) -> None:
    assert names.check(compile_sample(tmp_path)) == []


def test_every_exception_to_the_plural_rule_is_needed(
    contract: FileDescriptorSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = names.NOT_PLURAL
    monkeypatch.setattr(names, "NOT_PLURAL", frozenset())

    findings = names.check(contract)

    assert rules(findings) == {"FIELD_PLURAL"}
    got = {".".join(finding.split(": ")[2].split(" ")[0].split(".")[-2:]) for finding in findings}
    assert got == needed


BREACHES = [
    pytest.param(("service CraneService", "service Crane"), "SERVICE_SUFFIX", id="service without Service"),
    pytest.param(("CraneService", "Crane_Service"), "SERVICE_PASCAL_CASE", id="service in snake case"),
    pytest.param(("rpc Lift(", "rpc lift("), "RPC_PASCAL_CASE", id="rpc in lower case"),
    pytest.param(("LiftRequest", "LiftOrder"), "RPC_REQUEST_STANDARD_NAME", id="request of another name"),
    pytest.param(("LiftResponse", "LiftAnswer"), "RPC_RESPONSE_STANDARD_NAME", id="response of another name"),
    pytest.param(
        ("Lower(LowerRequest)", "Lower(LiftRequest)"), "RPC_REQUEST_RESPONSE_UNIQUE", id="shared request"
    ),
    pytest.param(
        ("returns (LowerResponse)", "returns (LowerRequest)"),
        "RPC_REQUEST_RESPONSE_UNIQUE",
        id="request as response",
    ),
    pytest.param(("Load ", "Heavy_Load "), "MESSAGE_PASCAL_CASE", id="message in snake case"),
    pytest.param((" hold = 2", " holdTime = 2"), "FIELD_LOWER_SNAKE_CASE", id="field in camel case"),
    pytest.param((" note = 4", " note_ = 4"), "FIELD_LOWER_SNAKE_CASE", id="field that ends in underscore"),
    pytest.param((" loads = 1", " load = 1"), "FIELD_PLURAL", id="repeated field in the singular"),
    pytest.param(("oneof target", "oneof Target"), "ONEOF_LOWER_SNAKE_CASE", id="oneof in Pascal case"),
    pytest.param(("CargoKind", "cargoKind"), "ENUM_PASCAL_CASE", id="enum in camel case"),
    pytest.param(
        ("CARGO_KIND_BOX", "CARGO_KIND_box"), "ENUM_VALUE_UPPER_SNAKE_CASE", id="value in lower case"
    ),
    pytest.param(("CARGO_KIND_BOX", "KIND_BOX"), "ENUM_VALUE_PREFIX", id="value without the enum's name"),
    pytest.param(
        ("CARGO_KIND_UNSPECIFIED", "CARGO_KIND_NONE"), "ENUM_ZERO_VALUE_SUFFIX", id="zero is not UNSPECIFIED"
    ),
    pytest.param(
        ("    CARGO_KIND_BOX = 2;", "    option allow_alias = true;\n    CARGO_KIND_BOX = 1;"),
        "ENUM_NO_ALLOW_ALIAS",
        id="enum with aliases",
    ),
    pytest.param(
        ("package berth.plugin.v1;", "package berth.crane.v1;"),
        "PACKAGE_DIRECTORY_MATCH",
        id="package beside its folder",
    ),
    pytest.param(
        ("package berth.plugin.v1;", "package berth.plugin;"), "PACKAGE_VERSION_SUFFIX", id="no version"
    ),
    pytest.param(
        ("package berth.plugin.v1;", "package berth.Plugin.v1;"),
        "PACKAGE_LOWER_SNAKE_CASE",
        id="package in Pascal case",
    ),
    pytest.param(('import "', 'import public "'), "IMPORT_NO_PUBLIC", id="public import"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("edit", "rule"), BREACHES)
def test_breach_is_found(edit: tuple[str, str], rule: str, tmp_path: Path) -> None:
    assert rule in rules(names.check(compile_sample(tmp_path, edit)))


def test_finding_names_file_line_and_declaration(tmp_path: Path) -> None:
    contract = compile_sample(tmp_path, ("service CraneService", "service Crane"))

    line = SAMPLE.splitlines().index("service CraneService {") + 1
    assert names.check(contract) == [
        f"berth/plugin/v1/crane.proto:{line}: SERVICE_SUFFIX: berth.plugin.v1.Crane does not end in Service"
    ]


def test_file_name_in_camel_case_is_found(tmp_path: Path) -> None:
    contract = compile_files(tmp_path, {"berth/plugin/v1/craneService.proto": SAMPLE})

    assert rules(names.check(contract)) == {"FILE_LOWER_SNAKE_CASE"}


def test_proto2_file_is_found(tmp_path: Path) -> None:
    text = '// Old.\nsyntax = "proto2";\npackage berth.plugin.v1;\n'

    contract = compile_files(tmp_path, {"berth/plugin/v1/old.proto": text})

    assert rules(names.check(contract)) == {"SYNTAX_SPECIFIED"}


def test_file_options_that_differ_within_the_package_are_found(tmp_path: Path) -> None:
    head = 'syntax = "proto3";\npackage berth.plugin.v1;\n'
    files = {
        "berth/plugin/v1/a.proto": head,
        "berth/plugin/v1/b.proto": head + 'option go_package = "example.com/berth";\n',
    }

    assert rules(names.check(compile_files(tmp_path, files))) == {"PACKAGE_SAME_OPTIONS"}


def test_weak_import_and_enum_without_zero_are_found(contract: FileDescriptorSet) -> None:
    # protoc refuses to write these, but a descriptor set of another tool may contain them.
    identity = next(file for file in contract.file if file.name.endswith("identity.proto"))
    identity.weak_dependency.append(0)
    point = next(enum for enum in identity.enum_type if enum.name == "ExtensionPoint")
    del point.value[0]

    assert rules(names.check(contract)) == {"IMPORT_NO_WEAK", "ENUM_FIRST_VALUE_ZERO"}


def test_unused_import_is_refused_by_the_compiler(tmp_path: Path) -> None:
    edit = ('import "google/protobuf/duration.proto";', 'import "google/protobuf/any.proto";\n')

    with pytest.raises(compiler.CompilerError, match=r"any\.proto"):
        compile_sample(tmp_path, edit, ("google.protobuf.Duration hold", "string hold"))
        compiler.describe(tmp_path)
