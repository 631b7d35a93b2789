"""A change that breaks a peer of a release is a finding, and one that does not is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import generate
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from protocheck import breaking, compiler, released
from support.places import ROOT

from contract.sample import SAMPLE, compile_files, compile_sample, rules

LAST_FIELD = "  optional string note = 4;\n"
LAST_VALUE = "    CARGO_KIND_BOX = 2;\n"
LOWER = "  // Lowers what hangs.\n"
NEW_CALL = """\
  // Turns.
  //
  // Caller: the harbour, at any time.
  // Errors: any code.
  // Repeat: yes.
  rpc Turn(TurnRequest) returns (TurnResponse);

"""
NEW_MESSAGES = "// None.\nmessage TurnRequest {}\n\n// None.\nmessage TurnResponse {}\n\n"
CLOSED = (", as is every value that a crane does not know.", ".")

BREAKS = [
    pytest.param("DELETED", [("string note = 4", "string note = 44"), (LAST_VALUE, "")], id="value gone"),
    pytest.param("RENAMED", [("string note = 4", "string remark = 4")], id="field renamed"),
    pytest.param("RENAMED", [("CARGO_KIND_BOX", "CARGO_KIND_CASE")], id="value renamed"),
    pytest.param("NUMBER", [("string note = 4", "string note = 20")], id="number of a field"),
    pytest.param("NUMBER", [("CARGO_KIND_BOX = 2", "CARGO_KIND_BOX = 3")], id="number of a value"),
    pytest.param("FIELD_TYPE", [("string note = 4", "bytes note = 4")], id="type of a field"),
    pytest.param("FIELD_TYPE", [("map<string, string>", "map<string, int32>")], id="values of a map"),
    pytest.param("FIELD_LABEL", [("repeated Load loads", "Load loads")], id="list that became one"),
    pytest.param("FIELD_PRESENCE", [("optional string note", "string note")], id="presence"),
    pytest.param(
        "FIELD_ONEOF",
        [
            ("  // Where to.\n  oneof target {\n", ""),
            ("    string ship = 6;\n  }\n", "    string ship = 6;\n"),
        ],
        id="out of a oneof",
    ),
    pytest.param("PRESENCE", [("// OPTIONAL: how long", "// REQUIRED: how long")], id="became REQUIRED"),
    pytest.param("PRESENCE", [("// REQUIRED: the loads", "// OPTIONAL: the loads")], id="became OPTIONAL"),
    pytest.param("RPC_TYPES", [("Lower(LowerRequest)", "Lower(LiftRequest)")], id="request of a call"),
    pytest.param(
        "RPC_STREAMING", [("returns (LowerResponse)", "returns (stream LowerResponse)")], id="stream"
    ),
    pytest.param(
        "DELETED", [("  rpc Lower(LowerRequest) returns (LowerResponse);\n", "")], id="call that is gone"
    ),
    pytest.param("FILE_OPTION", [("import ", 'option go_package = "crane";\n\nimport ')], id="package in Go"),
    pytest.param(
        "FILE_OPTION", [("import ", 'option csharp_namespace = "Crane";\n\nimport ')], id="namespace in C#"
    ),
    pytest.param(
        "FILE_OPTION",
        [("import ", 'option java_outer_classname = "Crane";\n\nimport ')],
        id="class around all in Java",
    ),
    pytest.param(
        "FIELD_TYPE",
        [
            (
                "  map<string, string> labels = 3;\n",
                "  repeated LabelsEntry labels = 3;\n  // One.\n  message LabelsEntry {\n"
                "    // OPTIONAL: a key.\n    string key = 1;\n"
                "    // OPTIONAL: a value.\n    string value = 2;\n  }\n",
            )
        ],
        id="map that became a list",
    ),
    pytest.param(
        "FIELD_ONEOF",
        [
            (
                "    // OPTIONAL: a ship.\n",
                "  }\n  // By what.\n  oneof vehicle {\n    // OPTIONAL: a ship.\n",
            )
        ],
        id="into another oneof",
    ),
    pytest.param(
        "PRESENCE",
        [("// REQUIRED: the loads", '// REQUIRED with the feature "loads": the loads')],
        id="REQUIRED only with a feature",
    ),
    pytest.param(
        "NEW_CALL",
        [
            (LOWER, NEW_CALL + LOWER),
            ("// One load.", NEW_MESSAGES + "// One load."),
        ],
        id="new call that old peers lack",
    ),
    pytest.param("RESERVED", [("reserved 9, 12 to 14", "reserved 9, 12 to 13")], id="reserved number let go"),
    pytest.param("RESERVED", [('  reserved "tonnage";\n', "")], id="reserved name let go"),
    pytest.param(
        "NEW_REQUIRED",
        [(LAST_FIELD, LAST_FIELD + "  // REQUIRED: who asks.\n  string who = 21;\n")],
        id="duty",
    ),
    pytest.param(
        "NEW_REQUIRED",
        [(LAST_FIELD, LAST_FIELD + "  // REQUIRED: the feature in use.\n  string used = 21;\n")],
        id="duty that speaks of features and names none",
    ),
    pytest.param(
        "RESERVED", [("reserved 9, 12 to 14", "reserved 9, 14 to 20")], id="start of a range let go"
    ),
    pytest.param(
        "NEW_IN_ONEOF",
        [
            (
                "    string ship = 6;\n",
                "    string ship = 6;\n    // OPTIONAL: a train.\n    string train = 22;\n",
            )
        ],
        id="new case of a oneof",
    ),
    pytest.param(
        "NEW_VALUE",
        [CLOSED, (LAST_VALUE, LAST_VALUE + "    // Liquids.\n    CARGO_KIND_TANK = 3;\n")],
        id="new value of an enum of which nothing is said",
    ),
]
"""(the rule, the edits)"""

KEEPS = [
    pytest.param([("// One load.", "// One of the loads.")], id="other words"),
    pytest.param(
        [(LAST_FIELD, LAST_FIELD + "  // OPTIONAL: who asks; empty: nobody.\n  string who = 21;\n")],
        id="new OPTIONAL field",
    ),
    pytest.param(
        [
            (
                LAST_FIELD,
                LAST_FIELD + '  // REQUIRED with the feature "names": who asks.\n  string who = 21;\n',
            )
        ],
        id="new field by a feature",
    ),
    pytest.param([(LAST_VALUE, LAST_VALUE + "    // Liquids.\n    CARGO_KIND_TANK = 3;\n")], id="new value"),
    pytest.param(
        [
            (
                "// Nothing to say.\nmessage LowerRequest {}",
                "// How.\nmessage LowerRequest {\n  // OPTIONAL: how.\n  bool gently = 1;\n}",
            )
        ],
        id="first field of an empty message",
    ),
    pytest.param(
        [
            (
                "// What to lift.",
                "// Else.\nmessage Else {\n  // REQUIRED: what.\n  string what = 1;\n}\n\n// What to lift.",
            )
        ],
        id="new message",
    ),
    pytest.param(
        [
            ("reserved 9, 12 to 14", "reserved 9, 12 to 13"),
            (LAST_FIELD, LAST_FIELD + "  // OPTIONAL: how heavy.\n  int64 weight = 14;\n"),
        ],
        id="reserved number that is used",
    ),
    pytest.param(
        [
            (
                "  // Was a field once.\n",
                "  // Who.\n  oneof who {\n    // OPTIONAL: a driver.\n    string driver = 31;\n"
                "    // OPTIONAL: a robot.\n    string robot = 32;\n  }\n\n  // Was a field once.\n",
            )
        ],
        id="new oneof",
    ),
    pytest.param(
        [
            (LOWER, NEW_CALL.replace("at any time", 'if both named the feature "turn"') + LOWER),
            ("// One load.", NEW_MESSAGES + "// One load."),
        ],
        id="new call by a feature",
    ),
    pytest.param([("import ", "option deprecated = true;\n\nimport ")], id="deprecated file"),
]


def _both(tmp_path: Path, *edits: tuple[str, str]) -> tuple[FileDescriptorSet, FileDescriptorSet]:
    """Return the sample and the edited one. CLOSED: neither says how unknown values are read."""
    before = [CLOSED] if CLOSED in edits else []
    return compile_sample(tmp_path / "old", *before), compile_sample(tmp_path / "new", *edits)


@pytest.mark.parametrize(("rule", "edits"), BREAKS)
def test_change_that_breaks_a_peer_of_the_release_is_a_finding(
    tmp_path: Path, rule: str, edits: list[tuple[str, str]]
) -> None:
    assert rule in rules(breaking.check(*_both(tmp_path, *edits)))


@pytest.mark.parametrize("edits", KEEPS)
def test_change_that_every_peer_of_the_release_survives_is_none(
    tmp_path: Path, edits: list[tuple[str, str]]
) -> None:
    assert breaking.check(*_both(tmp_path, *edits)) == []


def test_message_that_moves_to_another_file_is_a_finding(tmp_path: Path) -> None:
    old = compile_sample(tmp_path / "old")
    start, end = SAMPLE.index("// One load."), SAMPLE.index("// Nothing to say.\nmessage LiftResponse")
    importing = 'import "berth/plugin/v1/load.proto";\nimport '
    new = compile_files(
        tmp_path / "new",
        {
            "berth/plugin/v1/crane.proto": (SAMPLE[:start] + SAMPLE[end:]).replace("import ", importing),
            "berth/plugin/v1/load.proto": '// Loads.\nsyntax = "proto3";\n\npackage berth.plugin.v1;\n\n'
            + SAMPLE[start:end],
        },
    )
    assert [finding.split(": ")[1:] for finding in breaking.check(old, new)] == [
        [
            "MOVED",
            "berth.plugin.v1.Load was in berth/plugin/v1/crane.proto in the release; generated code of"
            " authors moves",
        ]
    ]


def test_numbers_that_are_reserved_up_to_the_last_one_are_compared(tmp_path: Path) -> None:
    edit = ("reserved 9, 12 to 14", "reserved 9, 12 to max")
    assert breaking.check(compile_sample(tmp_path / "a", edit), compile_sample(tmp_path / "b", edit)) == []
    findings = breaking.check(compile_sample(tmp_path / "c", edit), compile_sample(tmp_path / "d"))
    assert "does not keep the number 15" in findings[0]


def test_other_words_of_a_released_declaration_are_listed_for_the_reviewer(tmp_path: Path) -> None:
    old, new = _both(tmp_path, ("// One load.", "// One of the loads."))
    assert [place.rpartition(" ")[2] for place in breaking.reworded(old, new)] == ["berth.plugin.v1.Load"]
    assert not breaking.has_grown(old, new)


def test_contract_breaks_no_peer_of_any_release(contract: FileDescriptorSet) -> None:
    found = {
        release.name: breaking.check(release.describe(), contract)
        for release in released.releases(ROOT / "proto")
    }
    assert found
    assert found == {release: [] for release in found}


def test_release_is_kept_once_and_in_order(tmp_path: Path) -> None:
    compile_sample(tmp_path)
    assert released.keep(tmp_path, "0").name == "1.0"
    with pytest.raises(Exception, match=r"the next release is 1.1: run `--release 1`"):
        released.keep(tmp_path, "0")
    assert [release.name for release in released.releases(tmp_path)] == ["1.0"]
    assert (tmp_path / "released/1.0/berth/plugin/v1/crane.proto").exists()


def test_release_that_was_deleted_is_missed(tmp_path: Path) -> None:
    compile_sample(tmp_path)
    for minor in "01":
        released.keep(tmp_path, minor)
    shutil.rmtree(tmp_path / "released/1.0")
    with pytest.raises(compiler.CompilerError, match=r"has 1.1 and no 1.0: restore that folder"):
        released.releases(tmp_path)


def test_check_without_any_release_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compile_sample(tmp_path)
    shutil.copytree(ROOT / "proto/berth/query", tmp_path / "berth/query")
    monkeypatch.setattr(generate, "PROTO_ROOT", tmp_path)
    monkeypatch.setattr(generate, "OUT_ROOT", tmp_path / "out")
    monkeypatch.setattr("sys.argv", ["generate.py", "--check", "--release"])
    assert generate.main() == 1
    assert "has no release to compare with: restore the folder" in capsys.readouterr().err
