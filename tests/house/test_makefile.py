"""The targets of the Makefile: what they call, and their messages if they cannot work."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.places import ROOT

MAKE = shutil.which("make") or "make"
PARTS = [f"{part}/pyproject.toml" for part in ("sdk", "plugins", "bench")]


def make(folder: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    if path is not None:
        environment["PATH"] = path
    return subprocess.run(
        [MAKE, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Make a folder with the files that the Makefile reads, without a .venv."""
    for name in ("Makefile", "pyproject.toml", *PARTS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "host").mkdir()
    shutil.copy(ROOT / "host/constraints.txt", tmp_path / "host/constraints.txt")
    return tmp_path


def tools(folder: Path, *, python: str = "") -> str:
    """Return a PATH with the shell's tools and, with `python`, a script of that text as python3.11."""
    folder.mkdir()
    for tool in ("sh", "echo", "test"):
        found = shutil.which(tool)
        if found is not None:
            (folder / tool).symlink_to(found)
    if python:
        script = folder / "python3.11"
        script.write_text(f"#!/bin/sh\n{python}\n")
        script.chmod(0o755)
    return str(folder)


def made(clone: Path) -> None:
    """Make a .venv that is newer than all of its sources."""
    (clone / ".venv").mkdir()
    (clone / ".venv/.made").touch()


def test_targets_are_listed() -> None:
    text = make(ROOT).stdout
    for word in ("make demo", "make test", "make check", "make setup"):
        assert word in text


def test_check_calls_each_tool_and_test_calls_pytest(clone: Path) -> None:
    made(clone)
    lines = make(clone, "-n", "check").stdout
    for tool in ("ruff check", "ruff format --check", "mypy", "lint-imports", "proto/generate.py --check"):
        assert tool in lines
    test = make(clone, "-n", "test").stdout.split()
    assert test == [".venv/bin/pytest", "--numprocesses=3", "--dist=worksteal"]


@pytest.mark.slow
def test_fresh_environment_is_kept_and_a_stale_one_is_rebuilt(clone: Path) -> None:
    made(clone)
    assert "pip install" not in make(clone, "-n", "setup").stdout
    words = ("demo", "test", "check", "setup")
    os.utime(clone / ".venv/.made", (2, 2))
    sources = ("pyproject.toml", *PARTS, "host/constraints.txt")
    for name in sources:
        os.utime(clone / name, (1, 1))
    for name in sources:
        os.utime(clone / name, (3, 3))
        for word in words if name == sources[0] else ("setup",):
            assert "pip install" in make(clone, "-n", word).stdout
        os.utime(clone / name, (1, 1))
    for word in words:
        assert "pip install" not in make(clone, "-n", word).stdout


def test_missing_python_is_named_with_its_cure(clone: Path, tmp_path: Path) -> None:
    done = make(clone, "test", path=tools(tmp_path / "bin"))
    assert done.returncode != 0
    assert "berth needs Python 3.11 or newer, but there is none on PATH" in done.stderr
    assert "apt-get install python3.11" in done.stderr


def test_missing_venv_module_is_named_with_its_cure(clone: Path, tmp_path: Path) -> None:
    script = 'case "$2" in *ensurepip*) exit 1;; esac'
    done = make(clone, "demo", path=tools(tmp_path / "bin", python=script))
    assert done.returncode != 0
    assert "the venv module of python3.11 is missing: apt-get install python3-venv" in done.stderr


def test_python_that_is_too_old_is_named(clone: Path) -> None:
    done = make(clone, "PYTHON=false", "check")
    assert done.returncode != 0
    assert "berth needs Python 3.11 or newer, but false is older" in done.stderr


def test_ci_builds_the_servers_then_checks_and_tests_without_standard_input(tmp_path: Path) -> None:
    log = tmp_path / "log"
    fake = tmp_path / "bin"
    path = tools(fake) + ":/usr/bin:/bin"
    (fake / "make").write_text(f'#!/bin/sh\necho "$* CI=$CI $(cat)" >> {log}\n')
    (fake / "make").chmod(0o755)
    subprocess.run([ROOT / ".ci/run"], env={"PATH": path}, input="x", text=True, check=True, cwd=tmp_path)
    assert log.read_text().splitlines() == [
        "-j2 envtest check CI=true ",
        "test CI=true ",
        "test-long CI=true ",
    ]
