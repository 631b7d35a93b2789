"""Print the test files of `make test-changed`: those that import, directly or not, what a branch changed.

`python tests/changed.py [COMMIT]` compares the working tree, new files included, with where the branch left
COMMIT (main). A module that a test names in a string (`--plugin support.echo_plugin:Echo`, a path) counts as
imported, as another process imports it. All tests are printed (`tests`) where something changed that no test
imports: a proto, data, a fixture, the configuration of the tests, or code that only a child runs. A page of
the documentation is for `tests/docs` and `tests/house`.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

CODE = ("host", "sdk", "plugins", "bench", "tests", "examples", "proto")
NAMED = re.compile(r"[A-Za-z_][\w-]*(?:[./][A-Za-z_][\w-]*)+")
"""Matches text in a string that may name a module or a path."""
LONGEST = 500
"""The number of characters of the longest string that is looked at."""
OF_PAGES = {"tests/docs", "tests/house"}
COMMANDS = {
    "berth": "berth_host.__main__",
    "berth-scheduler": "berth_host.__main__",
    "kubectl-berth": "berth_host.__main__",
    "berth_host": "berth_host.__main__",
    "berth-sdk": "berth_sdk.__main__",
    "berth_sdk": "berth_sdk.__main__",
}
"""The module that a command runs: a test that starts the command counts as importing it."""
FINDS_COMMANDS = "host/berth_host/cli/commands.py"
"""The file that imports the commands of other packages, by the entry points of their distributions."""


def changed_files(root: Path, commit: str) -> set[str]:
    """Return the paths, relative to the repository, that differ from where the branch left this commit."""

    def git(*arguments: str) -> list[str]:
        done = subprocess.run(["git", "-C", root, *arguments], stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.splitlines()

    base = git("merge-base", commit, "HEAD")[0]
    differing = git("diff", "--name-only", "--no-renames", base)
    return {*differing, *git("ls-files", "--others", "--exclude-standard")}


class Imports:
    """Which of the repository's Python files imports which."""

    def __init__(self, root: Path) -> None:
        """Read every Python file below `root`."""
        folders = [root / folder for folder in CODE]
        files = [file for folder in folders for file in folder.rglob("*.py") if ".venv" not in file.parts]
        self._root = root
        self._modules = {file.relative_to(root).as_posix(): file for file in sorted(files)}
        self._homes = self._by_name()

    def tests_of(self, changed: Iterable[str]) -> list[str] | None:
        """Return the test files that import one of these files; None if one may concern every test."""
        chosen: set[str] = set()
        for name in changed:
            if name.startswith("docs/") or name.endswith(".md"):
                chosen |= OF_PAGES
                continue
            if not name.endswith(".py") or name.endswith("conftest.py"):
                return None
            tests = {file for file in self._reached_by(name) if Path(file).name.startswith("test_")}
            if not tests and (self._root / name).exists():
                return None
            chosen |= tests
        return sorted(test for test in chosen if (self._root / test).exists())

    @cached_property
    def _importers(self) -> dict[str, set[str]]:
        """The files that import each file directly."""
        found: dict[str, set[str]] = {}
        for name in self._modules:
            for imported in self._imported(name):
                found.setdefault(imported, set()).add(name)
        return found

    def _reached_by(self, name: str) -> set[str]:
        """Return the files from which imports lead to this one, itself included."""
        found, waiting = {name}, [name]
        while waiting:
            new = self._importers.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        return found & self._modules.keys()

    def _by_name(self) -> dict[str, str]:
        """Return the file of each name of a module: of `tests/support/hosts.py` also `support.hosts`."""
        homes: dict[str, str] = {}
        for name in self._modules:
            parts = name.removesuffix(".py").removesuffix("/__init__").split("/")
            roots = 2 if parts[0] == "examples" else 1
            for start in {0, roots}:
                homes.setdefault(".".join(parts[start:]), name)
        homes.pop("", None)
        return homes

    def _imported(self, name: str) -> Iterator[str]:
        """Yield the files that this one imports, with their packages, or names in strings."""
        for parent in Path(name).parents:
            yield f"{parent.as_posix()}/conftest.py"
        if name == FINDS_COMMANDS:
            yield from self._commands()
        tree = ast.parse(self._modules[name].read_text(encoding="utf-8"))
        if name == "tests/conftest.py":  # what its functions import is for options that are seldom given
            tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        for dotted in self._names_in(tree):
            parts = dotted.split(".")
            for end in range(1, len(parts) + 1):
                home = self._homes.get(".".join(parts[:end]))
                if home is not None and home != name:
                    yield home

    def _commands(self) -> Iterator[str]:
        """Yield the files of the commands that the distributions of this repository name as entry points."""
        for file in sorted([self._root / "pyproject.toml", *self._root.glob("*/pyproject.toml")]):
            project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
            for point in project.get("entry-points", {}).get("berth.commands", {}).values():
                yield self._homes[point.partition(":")[0]]

    def _names_in(self, tree: ast.AST) -> Iterator[str]:
        for node in ast.walk(tree):
            match node:
                case ast.Import():
                    yield from (alias.name for alias in node.names)
                case ast.ImportFrom(module=str(module)):
                    yield from (f"{module}.{alias.name}" for alias in node.names)
                case ast.Constant(value=str(text)) if len(text) < LONGEST:
                    command = COMMANDS.get(text.rpartition("/")[2])
                    if command is not None:
                        yield command
                    for found in NAMED.findall(text):
                        yield found.removesuffix(".py").replace("/", ".")


def main(arguments: list[str]) -> int:
    """Print the files, one a line; to standard error why."""
    root = Path(__file__).parents[1]
    commit = arguments[0] if arguments else "main"
    try:
        changed = changed_files(root, commit)
    except subprocess.CalledProcessError:
        return 1  # git has said why
    if not changed:
        print(f"nothing differs from {commit}", file=sys.stderr)
        return 0
    tests = Imports(root).tests_of(sorted(changed))
    if tests is None:
        print("something differs that every test may use: all tests run", file=sys.stderr)
        print("tests")
    elif not tests:
        print("no test imports what differs", file=sys.stderr)
    else:
        print(f"{len(tests)} test files import what differs", file=sys.stderr)
        print("\n".join(tests))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
