"""Which modules a command imports: what a start does not use, it does not wait for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

V1 = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
OLDER = V1.replace("/v1", "/v1beta3")


def imported_by(code: str, *arguments: str) -> set[str]:
    """Run `code` in a child with the arguments, and return the modules that it imported."""
    report = "\nimport sys; print(*sys.modules)"
    child = subprocess.run(
        [sys.executable, "-c", code + report, *arguments], capture_output=True, text=True, check=True
    )
    return set(child.stdout.splitlines()[-1].split())


def packages_among(modules: set[str], *names: str) -> list[str]:
    """Return the names that were imported, themselves or as the package of something imported."""
    return [name for name in names if any(f"{found}.".startswith(f"{name}.") for found in modules)]


COMMAND = """
import sys
from berth_host import run
try:
    run(arguments=sys.argv[1:])
except SystemExit as done:
    assert not done.code, done.code
"""


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_command_without_work_imports_none_of_its_commands(option: str) -> None:
    modules = imported_by(COMMAND, option)
    assert "berth_host.cli.main" in modules
    heavy = ("aiohttp", "berth_bench", "google", "grpc", "kubernetes", "numpy", "rich", "structlog", "yaml")
    own = ("berth_host.app", "berth_host.config", "berth_host.older_config", "berth_sdk.author")
    assert packages_among(modules, *heavy, *own) == []


LOAD = """
import sys
from berth_host.cli.scheduler.settings import loaded
from berth_host.cli.scheduler.parsing import parse
loaded(parse(["--config", sys.argv[1]]), {})
"""


@pytest.mark.parametrize(("text", "expected"), [(V1, []), (OLDER, ["berth_host.older_config"])])
def test_scheduler_imports_the_conversion_of_older_forms_for_an_older_file_alone(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    modules = imported_by(LOAD, str(file))
    assert "berth_host.config.loading" in modules
    assert packages_among(modules, "berth_host.older_config") == expected
