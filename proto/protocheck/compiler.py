"""Contract sources -> generated Python, or descriptors. Called by `generate.py` and `tests/contract`.

The only module that starts protoc. The generator comes from grpcio-tools, the stubs from mypy-protobuf,
both pinned in the root `pyproject.toml` at the floor of what users may run.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

SOURCE_PREFIX = "berth/plugin"
"""The folder of the contract's files below the proto root: their package."""

QUERY_PREFIX = "berth/query"
"""The folder of the service for other programs, which is no part of the contract with plugins."""

_OWN_IMPORT = re.compile(r"^from berth\.(plugin|query)\b", re.MULTILINE)
_HAS_SERVICE = re.compile(r"^service\s", re.MULTILINE)
_STUB_OPTIONS = "quiet,generate_concrete_servicer_stubs"


class CompilerError(Exception):
    """protoc or one of its plugins failed; the message holds what it printed and the cure."""


def source_files(proto_root: Path, prefix: str = SOURCE_PREFIX) -> list[Path]:
    """Return the .proto files of one package, sorted. Raises CompilerError if there is none."""
    files = sorted((proto_root / prefix).rglob("*.proto"))
    if not files:
        raise CompilerError(f"no .proto file under {proto_root / prefix}")
    return files


def generate(proto_root: Path, prefixes: Sequence[str] = (SOURCE_PREFIX,)) -> dict[str, str]:
    """Compile every source of the packages; path below the SDK's package (`plugin/v1/x_pb2.py`) -> text."""
    sources = [path for prefix in prefixes for path in source_files(proto_root, prefix)]
    with_services = [path for path in sources if _HAS_SERVICE.search(path.read_text("utf-8"))]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        _protoc(
            proto_root,
            sources,
            [
                f"--python_out={out}",
                f"--plugin=protoc-gen-mypy={_tool('protoc-gen-mypy')}",
                f"--mypy_out={_STUB_OPTIONS}:{out}",
            ],
        )
        _protoc(
            proto_root,
            with_services,
            [
                f"--grpc_python_out={out}",
                f"--plugin=protoc-gen-mypy_grpc={_tool('protoc-gen-mypy_grpc')}",
                f"--mypy_grpc_out={_STUB_OPTIONS}:{out}",
            ],
        )
        base = out / "berth"
        return {
            path.relative_to(base).as_posix(): _move_imports(path.read_text("utf-8"))
            for path in sorted(base.rglob("*.py*"))
        }


def describe(proto_root: Path, prefix: str = SOURCE_PREFIX) -> FileDescriptorSet:
    """Return the descriptors of one package's files, comments included, files in sorted order."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "contract.binpb"
        _protoc(
            proto_root,
            source_files(proto_root, prefix),
            [f"--descriptor_set_out={out}", "--include_source_info"],
        )
        return FileDescriptorSet.FromString(out.read_bytes())


def _move_imports(text: str) -> str:
    """Point imports at the package that ships the code: protoc only knows the proto package."""
    return _OWN_IMPORT.sub(r"from berth_sdk.\1", text)


def _tool(name: str) -> Path:
    tool = Path(sys.executable).parent / name
    if not tool.exists():
        raise CompilerError(f"{tool} is missing: install the root package with its extra `dev`")
    return tool


def _protoc(proto_root: Path, sources: Iterable[Path], options: Sequence[str]) -> None:
    names = [path.relative_to(proto_root).as_posix() for path in sources]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{proto_root}", *options, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or "warning:" in done.stderr:
        raise CompilerError(f"protoc refused the contract:\n{done.stderr.strip()}")
