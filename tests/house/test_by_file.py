"""`--by-file`: each file is collected by the worker that runs it, and the same tests run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.places import ROOT

CONFTEST = """
import os
import pytest
from support.by_file import ByFile, worker_of

def pytest_configure(config):
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(ByFile(worker_of(config)))

@pytest.fixture(scope="session")
def once(tmp_path_factory):
    yield
    print("the end of", os.environ["PYTEST_XDIST_WORKER"])
"""
FILE = """
import os
from pathlib import Path
import pytest

with Path(__file__).with_suffix(".imports").open("a") as imports:
    imports.write(os.environ["PYTEST_XDIST_WORKER"] + " ")

@pytest.mark.parametrize("number", range(3))
def test_number(number, once):
    assert number < 9

@pytest.mark.long
def test_long(once):
    raise AssertionError("was left out")
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Without the last one, the folders above, whose names hold numbers, would be among the words of `-k`.
    places = ["-c", "/dev/null", f"--rootdir={folder}", f"--confcutdir={folder}"]
    options = [*places, "-p", "no:cacheprovider", "-n", "2"]
    markers = ["-o", "markers=long: is left out", "-o", f"pythonpath={ROOT / 'tests'}", "-m", "not long"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *markers, "--dist=worksteal", "-rpfE", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_each_file_is_imported_once_and_a_failure_and_a_file_that_cannot_be_read_are_reported(
    tmp_path: Path,
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in ("a", "b", "c"):
        (tmp_path / f"test_{name}.py").write_text(FILE)
    (tmp_path / "test_red.py").write_text("def test_red():\n    assert 1 == 2\n")
    (tmp_path / "test_unreadable.py").write_text("import no_such_module\n")
    (tmp_path / "test_empty.py").write_text("")
    done = run(tmp_path)
    assert done.returncode == 1, done
    assert "1 failed, 9 passed, 1 error" in done.stdout
    for name in ("a", "b", "c"):
        assert len((tmp_path / f"test_{name}.imports").read_text().split()) == 1
        assert f"PASSED test_{name}.py::test_number[2]" in done.stdout
    assert "FAILED test_red.py::test_red" in done.stdout
    assert "ERROR test_unreadable.py" in done.stdout


@pytest.mark.slow
def test_a_file_without_a_chosen_test_between_two_folders_ends_what_the_one_before_it_began(
    tmp_path: Path,
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    only_long = "import pytest\n@pytest.mark.long\ndef test_long():\n    raise AssertionError\n"
    for folder in "abcdef":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"test_{folder}_1.py").write_text(f"def test_{folder}():\n    pass\n")
        (tmp_path / folder / f"test_{folder}_2.py").write_text(only_long)
    done = run(tmp_path, "-n", "1")
    assert "6 passed" in done.stdout, done.stdout
    assert "error" not in done.stdout


@pytest.mark.long
@pytest.mark.slow
def test_words_choose_among_the_tests_of_each_file(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in ("a", "b"):
        (tmp_path / f"test_{name}.py").write_text(FILE)
    done = run(tmp_path, "-k", "test_number and 1")
    assert done.returncode == 0, done
    assert "2 passed" in done.stdout
