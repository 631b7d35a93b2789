"""`make test-changed`: which test files a change concerns."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from changed import Imports, changed_files, main
from support.places import ROOT

FILES = {
    "host/berth_host/__init__.py": "",
    "host/berth_host/__main__.py": "from berth_host import command\nfrom berth_host.cli import commands",
    "host/berth_host/command.py": "def run():\n    from berth_host import late\n",
    "host/berth_host/late.py": "",
    "host/berth_host/cli/commands.py": "",
    "host/berth_sim/commands/simulate.py": "",
    "pyproject.toml": "project.entry-points.'berth.commands'.x = 'berth_sim.commands.simulate:simulate'",
    "host/berth_host/heap.py": "",
    "host/berth_host/queue.py": "from berth_host.heap import Heap",
    "host/berth_host/unknown.py": "",
    "tests/conftest.py": "import support.everywhere\ndef seldom():\n    import support.seldom\n",
    "tests/support/everywhere.py": "",
    "tests/support/seldom.py": "import berth_host.heap",
    "tests/support/echo.py": "",
    "tests/support/hosts.py": "import berth_host.queue",
    "tests/test_heap.py": "from berth_host import heap",
    "tests/test_queue.py": "from support.hosts import World",
    "tests/test_served.py": "PLUGIN = 'support.echo:Echo'",
    "tests/test_command.py": "BERTH = BIN / 'berth'",
    "tests/test_script.py": "SCRIPT = 'examples/some/script.py'",
    "examples/some/script.py": "",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("host/berth_host/heap.py", ["tests/test_heap.py", "tests/test_queue.py"]),
        ("host/berth_host/queue.py", ["tests/test_queue.py"]),
        ("host/berth_host/late.py", ["tests/test_command.py"]),
        ("host/berth_sim/commands/simulate.py", ["tests/test_command.py"]),
        ("tests/support/echo.py", ["tests/test_served.py"]),
        ("examples/some/script.py", ["tests/test_script.py"]),
        ("tests/test_heap.py", ["tests/test_heap.py"]),
        ("tests/support/everywhere.py", sorted(name for name in FILES if "/test_" in name)),
        ("docs/glossary.md", []),
        ("host/berth_host/unknown.py", None),
        ("proto/berth/v1/plugin.proto", None),
        ("tests/parity/golden/ties.jsonl.gz", None),
        ("tests/conftest.py", None),
        ("pyproject.toml", None),
    ],
)
def test_tests_that_import_a_file_are_chosen(repository: Path, changed: str, tests: list[str] | None) -> None:
    assert Imports(repository).tests_of([changed]) == tests


def test_page_is_for_the_tests_of_pages(repository: Path) -> None:
    for folder in ("docs", "house"):
        (repository / "tests" / folder).mkdir()
    assert Imports(repository).tests_of(["docs/glossary.md"]) == ["tests/docs", "tests/house"]


def test_file_that_is_gone_is_for_the_tests_that_import_it_still(repository: Path) -> None:
    (repository / "tests/support/echo.py").unlink()
    assert Imports(repository).tests_of(["tests/support/echo.py", "tests/test_gone.py"]) == []


def git(folder: Path, *arguments: str) -> None:
    named = ["-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run(["git", "-C", folder, *named, *arguments], check=True, capture_output=True)


@pytest.mark.slow
def test_what_differs_is_found_in_commits_in_the_tree_and_in_new_files(repository: Path) -> None:
    git(repository, "init", "--initial-branch=main")
    git(repository, "add", "-A")
    git(repository, "commit", "-m", "first")
    git(repository, "switch", "-c", "part")
    assert changed_files(repository, "main") == set()
    (repository / "tests/support/hosts.py").write_text("import berth_host.heap")
    git(repository, "commit", "-am", "second")
    (repository / "tests/test_heap.py").unlink()
    (repository / "tests/test_new.py").touch()
    assert changed_files(repository, "main") == {
        "tests/support/hosts.py",
        "tests/test_heap.py",
        "tests/test_new.py",
    }


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="is no clone")
def test_unknown_commit_is_an_error_that_git_explains(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-commit"]) == 1
    assert "no-such-commit" in capfd.readouterr().err
