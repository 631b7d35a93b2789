"""The targets of the Makefile: what they call, and their messages if they cannot work."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.places import ROOT

MAKE = shutil.which("make") or "make"
WITHOUT_VENV = 'case "$2" in *ensurepip*) exit 1;; esac'
SETTINGS = ("PYTHON", "NEWEST", "VENV", "PYTEST_ARGS")
PARTS = [f"{part}/pyproject.toml" for part in ("sdk", "plugins", "plugins/scheduler_plugins", "bench")]


def make(folder: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    # What a `make` above was told (`make test-newest` tells its own) is in the environment, too.
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("MAKE") and key not in SETTINGS
    }
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


def tools(folder: Path, **pythons: str) -> str:
    """Return a PATH with the shell's tools, and with these scripts as python3.11 (`v11`) and so on."""
    folder.mkdir()
    for tool in ("sh", "echo", "test", "mkdir", "touch"):
        found = shutil.which(tool)
        if found is not None:
            (folder / tool).symlink_to(found)
    for name, text in pythons.items():
        script(folder / f"python3.{name.removeprefix('v')}", text)
    return str(folder)


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def made(clone: Path, name: str = ".venv") -> Path:
    """Make an environment that is newer than all of its sources; return its folder of commands."""
    (clone / name / "bin").mkdir(parents=True)
    (clone / name / ".made").touch()
    return clone / name / "bin"


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
    assert test[:4] == [".venv/bin/pytest", "--numprocesses=3", "--dist=worksteal", "--by-file"]
    assert "-m" not in test
    rest = make(clone, "-n", "test-rest").stdout.split()
    assert rest == [*test, "-m", "long"]


def test_all_tests_are_those_of_make_test_then_the_rest(clone: Path) -> None:
    script(made(clone) / "pytest", 'echo "pytest $*"')
    done = make(clone, "test-all")
    first, second = [line for line in done.stdout.splitlines() if line.startswith("pytest")]
    assert second == f"{first} -m long"


@pytest.mark.long
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
    assert "apt-get install python3 python3-venv" in done.stderr


def test_missing_venv_module_is_named_with_its_cure(clone: Path, tmp_path: Path) -> None:
    done = make(clone, "demo", path=tools(tmp_path / "bin", v11=WITHOUT_VENV))
    assert done.returncode != 0
    assert "the venv module of python3.11 is missing: apt-get install python3-venv" in done.stderr


@pytest.mark.parametrize(
    "absent", ["echo 'pyenv: python3.11: command not found' >&2; exit 127", WITHOUT_VENV]
)
def test_python_that_can_make_an_environment_is_used_though_another_name_is_found_first(
    clone: Path, tmp_path: Path, absent: str
) -> None:
    done = make(clone, "-n", "setup", path=tools(tmp_path / "bin", v11=absent, v12=absent, v13="exit 0"))
    assert "python3.13 -m venv --clear .venv" in done.stdout, done


def newest(clone: Path, path: str, used: str) -> str:
    """Return what `make test-newest` prints if `make test` uses this Python."""
    script(made(clone) / "python", f"echo {used}")
    done = make(clone, "test-newest", path=path)
    assert done.returncode == 0, done
    return done.stdout


def test_newest_python_gets_an_environment_of_its_own(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyenv = tmp_path / "pyenv/versions/3.14.2/bin"
    pyenv.mkdir(parents=True)
    script(pyenv / "python3.14", 'case "$2" in *version*) echo 3.14;; esac')
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    script(made(clone, ".venv-3.14") / "pytest", 'echo "pytest $*"')
    shims = tools(tmp_path / "bin", v14="exit 127", v12='case "$2" in *version*) echo 3.12;; esac')
    said = newest(clone, shims, "3.11").splitlines()
    assert said[0] == "make test runs on Python 3.11"
    assert said[1].startswith(f"the newest Python here is 3.14 ({pyenv}/python3.14)")
    assert said[-1].startswith("pytest --numprocesses=3 --dist=worksteal")


@pytest.mark.parametrize(
    ("pythons", "used", "said"),
    [
        ({}, "3.11", "there is no Python 3.12, 3.13 or 3.14 here with its venv module"),
        ({"v13": WITHOUT_VENV}, "3.11", "there is no Python 3.12, 3.13 or 3.14 here with its venv module"),
        ({"v13": "echo 3.13"}, "3.13", "this is the newest Python here"),
    ],
    ids=["none", "none with venv", "the same"],
)
def test_no_other_python_is_said(
    clone: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pythons: dict[str, str],
    used: str,
    said: str,
) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    lines = newest(clone, tools(tmp_path / "bin", **pythons), used).splitlines()
    assert lines[0] == f"make test runs on Python {used}"
    assert lines[1].startswith(said)
    assert len(lines) == 2


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
        "test-newest CI=true ",
        "test-rest CI=true ",
    ]
