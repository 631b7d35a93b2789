"""Fixtures for the tests of the commands."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.config.loading import load_configuration
from support.patience import with_patience
from support.running_commands import Run, Write, nobodys_ci, run, write

__all__ = ["Run", "Write", "nobodys_ci", "patient_plugins", "run", "write"]


@pytest.fixture(autouse=True)
def patient_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that was just started may be slow: no plugin is late whose deadline a test does not name."""

    def loaded(*given: Any, **more: Any) -> Any:
        return with_patience(load_configuration(*given, **more))

    monkeypatch.setattr("berth_host.cli.configuration.load_configuration", loaded)
