"""Adds to the packages of the SDK what `berth-sdk new` makes of the repository's other folders.

Called by hatchling for each archive and wheel. A wheel that is made from a source archive finds the files
there; an installation in place finds them at their sources.
"""

from __future__ import annotations

import runpy
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGE = "berth_sdk/cli"


class ScaffoldHook(BuildHookInterface):  # type: ignore[misc]  # the build's own environment has the base class
    """Puts the copies into the archive, at `berth_sdk/cli/scaffold`."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the copies into a folder and tell hatchling of them. Raises ScaffoldError."""
        self._folder: Path | None = None
        package = Path(self.root) / _PACKAGE
        if version == "editable" or (package / "scaffold" / "proto").is_dir():
            return
        sources = runpy.run_path(str(package / "scaffold_sources.py"))
        self._folder = Path(tempfile.mkdtemp(prefix="berth-scaffold-"))
        for name, text in sources["copies"](Path(self.root).parent).items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            build_data["force_include"][str(path)] = f"{_PACKAGE}/scaffold/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        if self._folder is not None:
            shutil.rmtree(self._folder)
