"""The contract's files compile with the oldest compilers that authors have."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Final

import grpc_tools
import pytest
from support.places import ROOT

PROTO: Final = ROOT / "proto"
WELL_KNOWN: Final = Path(grpc_tools.__file__).parent / "_proto"
"""The files of protobuf itself, which the contract imports."""
INSTALL: Final = "no protoc 3.21 on the PATH: `make envtest` installs Debian's package protobuf-compiler"


@pytest.fixture
def protoc() -> str:
    """The protoc of Debian 12, which C++ plugins must use: it fits Debian's runtime."""
    for found in (shutil.which("protoc"), "/usr/bin/protoc"):
        if found is not None and Path(found).exists():
            told = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
            if re.match(r"libprotoc 3\.21\.", told):
                return found
    assert not os.environ.get("CI"), f"{INSTALL}; CI must run these tests"
    pytest.skip(INSTALL)


@pytest.mark.parametrize("package", ["plugin", "query"])
def test_protoc_3_21_compiles_the_contract_for_cpp(package: str, protoc: str, tmp_path: Path) -> None:
    files = sorted((PROTO / "berth" / package).rglob("*.proto"))
    command = [protoc, f"-I{PROTO}", f"-I{WELL_KNOWN}", f"--cpp_out={tmp_path}", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(tmp_path.rglob("*.pb.h"))) == len(files) > 0


def test_generated_code_is_made_by_the_oldest_grpcio_tools_that_fits_the_sdk() -> None:
    """`make check` generates with the installed one, so this one compiles the contract too."""
    project = tomllib.loads((ROOT / "sdk/pyproject.toml").read_text("utf-8"))["project"]
    (least,) = [one.partition(">=")[2] for one in project["dependencies"] if one.startswith("grpcio>=")]
    assert version("grpcio-tools").startswith(f"{least}.")
