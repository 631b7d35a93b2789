"""`chromium.sh`, on a machine whose only programs are those that the test puts on the PATH."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

NAME: Final = "chromium-headless-shell"
SCRIPT: Final = Path(__file__).with_name("chromium.sh")
INSTALL: Final = "install -q -y --no-install-recommends chromium-headless-shell fonts-dejavu-core"
APT: Final = """
echo "$DEBIAN_FRONTEND $*" >> {log}
if [ "$1" = update ]; then
	[ {update} = 0 ] || echo 'E: no network' >&2
	exit {update}
fi
if [ {installs} = never ] || {{ [ {installs} = after-update ] && ! grep -q update {log}; }}; then
	echo 'E: no package chromium' >&2
	exit 100
fi
[ -z '{brings}' ] || {{ echo > '{bin}/{brings}' && chmod +x '{bin}/{brings}'; }}
"""
Program = Callable[[str, str], None]
Run = Callable[[], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def bin_(tmp_path: Path) -> Path:
    """A folder with the few programs that the script and the fake of apt-get need."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "env", "grep", "chmod"):
        (folder / name).symlink_to(shutil.which(name) or "")
    return folder


@pytest.fixture
def program(bin_: Path) -> Program:
    def put(name: str, text: str) -> None:
        (bin_ / name).write_text(f"#!{shutil.which('sh')}\n{text}\n")
        (bin_ / name).chmod(0o755)

    return put


@pytest.fixture
def apt(bin_: Path, tmp_path: Path, program: Program) -> Callable[..., Path]:
    """Put an apt-get on the PATH; return the file with what it was asked.

    `installs`: `at-once`, `after-update` or `never`; `update`: the exit code of an update; `brings`: the
    program that an installation brings, or "".
    """

    def put(*, installs: str = "at-once", update: int = 0, brings: str = "chromium-headless-shell") -> Path:
        log = tmp_path / "asked"
        log.write_text("")
        program("apt-get", APT.format(installs=installs, update=update, brings=brings, bin=bin_, log=log))
        return log

    return put


@pytest.fixture
def run(bin_: Path) -> Run:
    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [bin_ / "sh", SCRIPT], env={"PATH": str(bin_)}, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture
def root(program: Program) -> None:
    program("id", "echo 0")


@pytest.mark.parametrize("name", ["chromium-headless-shell", "chromium", "chromium-browser"])
@pytest.mark.usefixtures("root")
def test_chromium_that_is_there_is_named_and_nothing_is_installed(
    name: str, bin_: Path, program: Program, apt: Callable[..., Path], run: Run
) -> None:
    program(name, "exit 0")
    asked = apt()
    done = run()
    assert (done.returncode, done.stdout, done.stderr) == (0, f"chromium-headless-shell: {bin_ / name}\n", "")
    assert asked.read_text() == ""


@pytest.mark.parametrize("name", ["chromium-headless-shell", "chromium", "chromium-browser"])
@pytest.mark.usefixtures("root")
def test_missing_chromium_is_installed_without_questions(
    name: str, bin_: Path, apt: Callable[..., Path], run: Run
) -> None:
    asked = apt(brings=name)
    done = run()
    assert (done.returncode, done.stdout, done.stderr) == (0, f"chromium-headless-shell: {bin_ / name}\n", "")
    assert asked.read_text() == f"noninteractive {INSTALL}\n"


@pytest.mark.usefixtures("root")
def test_lists_of_packages_are_read_if_the_package_is_not_found(
    bin_: Path, apt: Callable[..., Path], run: Run
) -> None:
    asked = apt(installs="after-update")
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"chromium-headless-shell: {bin_ / 'chromium-headless-shell'}"
    assert asked.read_text().splitlines() == [
        f"noninteractive {INSTALL}",
        " update -q",
        f"noninteractive {INSTALL}",
    ]


@pytest.mark.parametrize(
    ("installs", "update", "said", "asked_for"),
    [("never", 0, "E: no package chromium", 3), ("after-update", 100, "E: no network", 2)],
    ids=["no-package", "no-network"],
)
@pytest.mark.usefixtures("root")
def test_failure_of_apt_get_is_an_error_with_its_own_words(
    installs: str, update: int, said: str, asked_for: int, apt: Callable[..., Path], run: Run
) -> None:
    asked = apt(installs=installs, update=update)
    done = run()
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first == said
    assert second.startswith(
        "chromium-headless-shell: apt-get failed, as it says above; install Chromium yourself"
    )
    assert len(asked.read_text().splitlines()) == asked_for


@pytest.mark.usefixtures("root")
def test_installation_that_brings_no_program_is_an_error(apt: Callable[..., Path], run: Run) -> None:
    apt(brings="")
    done = run()
    assert (done.returncode, done.stdout) == (1, "")
    assert f"the PATH has none of: {NAME} chromium chromium-browser. Install Chromium yourself" in done.stderr


def test_machine_without_apt_get_is_told_what_to_do(run: Run) -> None:
    done = run()
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        "chromium-headless-shell: no apt-get here; install Chromium yourself,"
        " or the tests of the page are skipped (in CI they fail)\n"
    )


def test_user_without_rights_is_told_what_to_run(
    program: Program, apt: Callable[..., Path], run: Run
) -> None:
    program("id", "echo 1000")
    program("sudo", "echo 'a password is required' >&2; exit 1")
    asked = apt()
    done = run()
    assert (done.returncode, done.stdout, asked.read_text()) == (0, "", "")
    assert "only root may: apt-get install chromium-headless-shell, or the tests" in done.stderr
    assert "password" not in done.stderr


def test_user_who_may_become_root_installs_through_sudo(
    bin_: Path, program: Program, apt: Callable[..., Path], run: Run
) -> None:
    program("id", "echo 1000")
    program(
        "sudo",
        f'[ "$1" = -n ] || exit 9; shift; [ "$1" = true ] || echo "$*" >> {bin_}/sudone; exec env "$@"',
    )
    (bin_ / "true").symlink_to(shutil.which("true") or "")
    asked = apt(installs="after-update")
    assert run().returncode == 0
    installed = f"env DEBIAN_FRONTEND=noninteractive apt-get {INSTALL}"
    assert (bin_ / "sudone").read_text().splitlines() == [installed, "apt-get update -q", installed]
    assert len(asked.read_text().splitlines()) == 3
