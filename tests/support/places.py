"""Folders of the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = next(folder for folder in Path(__file__).resolve().parents if (folder / "proto").is_dir())
"""The root of the clone."""
TESTS: Final = ROOT / "tests"
"""The folder on the import path of tests: `support` is below it."""
