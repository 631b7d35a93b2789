"""The plugin in Go for `berth bench versus`: `declared` of `examples/go`, built on demand.

The host starts it as a child. It needs a clone of berth, Go, and grpcio-tools. Called by the command.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from berth_bench.versus.extender import clone

NAME: Final = "NameRank"
MODULE: Final = Path("examples/go")
"""The Go module, relative to the root of a clone."""
PLUGIN: Final = "declared"
"""The folder of the plugin in the module, and the name of its program."""
PROGRAM: Final = Path(".cache/versus") / PLUGIN
"""The program, relative to the root of a clone."""


class GoPluginError(RuntimeError):
    """The plugin cannot be built. The text gives the reason and the remedy."""


def missing() -> str:
    """Return what is missing to build the plugin, and the remedy; empty if nothing is missing."""
    script = clone() / MODULE / "build.sh"
    if not script.exists():
        return f"no {script}: run this in a clone of berth, or choose workloads without a Go plugin"
    if shutil.which("go") is None:
        return (
            "Go is needed to build the plugin, and is not on PATH: install it (https://go.dev/doc/install),"
            " or choose workloads without a Go plugin"
        )
    if importlib.util.find_spec("grpc_tools") is None:
        return "grpcio-tools is needed to generate the plugin's stubs: pip install grpcio-tools"
    return ""


def build() -> None:
    """Build the plugin. Raises GoPluginError."""
    if problem := missing():
        raise GoPluginError(problem)
    root = clone()
    done = subprocess.run(
        [str(root / MODULE / "build.sh"), str((root / PROGRAM).parent.absolute()), PLUGIN],
        env={**os.environ, "PROTOC": f"{sys.executable} -m grpc_tools.protoc"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise GoPluginError(f"the Go plugin cannot be built:\n{done.stderr.strip()}")
