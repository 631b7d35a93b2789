"""A small contract that breaks no rule; tests break one rule at a time."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc
from protocheck import compiler

WELL_KNOWN: Final = files("grpc_tools") / "_proto"
"""Where protoc's own files lie, as google/protobuf/duration.proto."""

SAMPLE = """\
// What a crane can do.

syntax = "proto3";

package berth.plugin.v1;

import "google/protobuf/duration.proto";

// Served by cranes.
service CraneService {
  // Lifts a load.
  //
  // Caller: the harbour, at any time.
  // Errors: any code: nothing was lifted.
  // Repeat: no.
  rpc Lift(LiftRequest) returns (LiftResponse);

  // Lowers what hangs.
  //
  // Caller: the harbour, after Lift.
  // Errors: any code: it still hangs.
  // Repeat: yes.
  rpc Lower(LowerRequest) returns (LowerResponse);
}

// What to lift.
message LiftRequest {
  // REQUIRED: the loads.
  repeated Load loads = 1;
  // OPTIONAL: how long to hold; unset: for ever.
  google.protobuf.Duration hold = 2;
  // OPTIONAL: free words by name.
  map<string, string> labels = 3;
  // OPTIONAL: present and empty: say nothing.
  optional string note = 4;
  // Where to.
  oneof target {
    // OPTIONAL: a quay.
    string quay = 5;
    // OPTIONAL: a ship.
    string ship = 6;
  }

  // Was a field once.
  reserved 9, 12 to 14;
  reserved "tonnage";
}

// One load.
message Load {
  // What it is made of.
  enum CargoKind {
    // Read as BULK, as is every value that a crane does not know.
    CARGO_KIND_UNSPECIFIED = 0;
    // Loose goods.
    CARGO_KIND_BULK = 1;
    // Boxes.
    CARGO_KIND_BOX = 2;

    // Kept for later.
    reserved 7 to 9;
    reserved "CARGO_KIND_PIPE";
  }

  // OPTIONAL: unspecified: BULK.
  CargoKind kind = 1;
}

// Nothing to say.
message LiftResponse {}

// Nothing to say.
message LowerRequest {}

// Nothing to say.
message LowerResponse {}
"""


def compile_files(root: Path, files: dict[str, str]) -> FileDescriptorSet:
    """Write the files below `root`, paths as given, and compile them."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return _describe(root)


def _describe(root: Path) -> FileDescriptorSet:
    """Do what `compiler.describe` does, in this process: there are hundreds of samples."""
    out = root / "contract.binpb"
    names = [path.relative_to(root).as_posix() for path in compiler.source_files(root)]
    command = [
        "protoc",
        f"-I{root}",
        f"-I{WELL_KNOWN}",
        f"--descriptor_set_out={out}",
        "--include_source_info",
    ]
    if protoc.main([*command, *names]) != 0:
        raise ValueError(f"protoc refused the sample in {root}")
    return FileDescriptorSet.FromString(out.read_bytes())


def compile_sample(root: Path, *edits: tuple[str, str]) -> FileDescriptorSet:
    """Compile the sample after the edits; each edit replaces a text that must occur."""
    text = SAMPLE
    for old, new in edits:
        if old not in text:
            raise ValueError(f"the sample does not hold {old!r}")
        text = text.replace(old, new)
    return compile_files(root, {"berth/plugin/v1/crane.proto": text})


def rules(findings: list[str]) -> set[str]:
    """Return the rules that findings name: "file:line: RULE: text"."""
    return {finding.split(": ")[1] for finding in findings}
