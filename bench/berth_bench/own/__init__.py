"""Workloads that come with the package, in scheduler_perf's own form: workloads.yaml and its templates."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).parent / "workloads.yaml"
