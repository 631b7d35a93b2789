"""Write the project's address wherever it stands. Its home is `project.urls.Homepage` in pyproject.toml.

    python tests/deploy/address.py [--check]

The metadata of the other packages, the READMEs and the chart's runbook links can read no other file. After a
change of the home, this command writes the new address in place of the old one, which it finds in
sdk/pyproject.toml. With `--check` it changes nothing, and exits with 1 and one line for each file to change.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from support.places import ROOT

HOME: Final = "pyproject.toml"
BEFORE: Final = "sdk/pyproject.toml"
"""A file that has the address of before, until this command has run."""


def urls(path: Path) -> dict[str, str]:
    """Return the links in the metadata of a package, by name."""
    found: dict[str, str] = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["urls"]
    return found


def stale(root: Path) -> dict[Path, str]:
    """Return the files with the address of before, as they have to be."""
    now, before = (urls(root / name)["Homepage"].rstrip("/") for name in (HOME, BEFORE))
    if now == before:
        return {}
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True)
    found: dict[Path, str] = {}
    for path in (root / name for name in listed.stdout.splitlines()):
        content = path.read_bytes() if path.is_file() else b""
        if before.encode() in content:
            found[path] = content.decode().replace(before, now)
    return found


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write the address, or say where another one stands."""
    found = stale(root)
    if arguments == ["--check"]:
        for path in found:
            print(f"address: {path.relative_to(root)} has another address than {HOME}: run {__file__}")
        return 1 if found else 0
    for path, text in found.items():
        path.write_text(text, encoding="utf-8")
        print(f"address: {path.relative_to(root)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
