"""Fixtures for tests of commands: files in a temporary folder, and a command that is run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_host.cli.main import berth
from click.testing import CliRunner, Result

Write = Callable[..., str]
Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def nobodys_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are strict where the environment says CI=true, and these tests run there, too."""
    for name in ("CI", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write objects into one file of manifests (`name`), and give its path."""

    def written(*objects: Any, name: str = "cluster.yaml") -> str:
        path = tmp_path / name
        path.write_text(yaml.safe_dump_all(objects, sort_keys=False))
        return str(path)

    return written


@pytest.fixture
def run() -> Run:
    """Run `berth` with arguments; an exception that is no exit fails the test."""

    def invoked(*arguments: str, stdin: str | bytes = "") -> Result:
        result = CliRunner().invoke(berth, list(arguments), input=stdin, catch_exceptions=False)
        assert isinstance(result, Result)
        return result

    return invoked
