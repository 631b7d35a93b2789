"""The plugins in Go for `berth bench versus`: two of `examples/go`, built on demand.

The host starts one as a child. It needs a clone of berth, Go, and grpcio-tools. Called by the command.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from berth_bench.versus.extender import clone

MODULE: Final = Path("examples/go")
"""The Go module, relative to the root of a clone."""
_PROGRAMS: Final = Path(".cache/versus")
"""The folder of the programs, relative to the root of a clone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoPlugin:
    """One plugin. `folder`: in the module; its program has the same name."""

    name: str
    folder: str

    @property
    def program(self) -> Path:
        """The program, in the clone that holds the working directory."""
        return (clone() / _PROGRAMS / self.folder).absolute()


DECLARED: Final = GoPlugin(name="NameRank", folder="declared")
"""Names of nodes; the host keeps its answers."""
UNDECLARED: Final = GoPlugin(name="FreeCpu", folder="bitmaps")
"""A copy of the nodes; the host asks it about every pod."""


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


def build(plugins: Iterable[GoPlugin]) -> None:
    """Build some plugins. Raises GoPluginError."""
    if problem := missing():
        raise GoPluginError(problem)
    root = clone()
    done = subprocess.run(
        [
            str(root / MODULE / "build.sh"),
            str((root / _PROGRAMS).absolute()),
            " ".join(sorted({plugin.folder for plugin in plugins})),
        ],
        env={**os.environ, "PROTOC": f"{sys.executable} -m grpc_tools.protoc"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise GoPluginError(f"a Go plugin cannot be built:\n{done.stderr.strip()}")
