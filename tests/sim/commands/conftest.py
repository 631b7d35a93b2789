"""Fixtures for the tests of the commands."""

from __future__ import annotations

from support.running_commands import Run, Write, nobodys_ci, run, write

__all__ = ["Run", "Write", "nobodys_ci", "run", "write"]
