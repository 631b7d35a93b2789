"""Build the packages, the chart and the list of what they bring (SBOM) into dist/, and check them.

    python tests/deploy/dist.py [--into FOLDER]

Needs the package index, and helm (`make envtest`). Exits with 1 and one line for each fault found.

- `twine check --strict`: the pages that the index will show can be rendered.
- Each wheel is made from the source archive. It is typed, and has all files of its package, the licence, a
  README, URLs and classifiers.
- The wheels are installed in an empty environment, with the pinned versions, and all commands of README.md
  run there; the first plugin of that page among them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import Final

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from berth_bench.versus.real_servers import program
from berth_sdk.cli import scaffold_sources
from docs.pages import Page
from docs.workspace import BlockError, Workspace
from support.places import ROOT

PACKAGES: Final = {
    ".": "berth_host",
    "sdk": "berth_sdk",
    "plugins": "berth_plugins",
    "plugins/scheduler_plugins": "berth_scheduler_plugins",
    "bench": "berth_bench",
}
"""The package of each folder with a pyproject.toml, by which its distribution is named."""
BESIDE: Final = {".": ("berth_kube", "berth_sim")}
"""Further packages of a distribution."""
CONSTRAINTS: Final = ROOT / "host" / "constraints.txt"
_SUFFIXES: Final = (".whl", ".gz", ".tgz", ".json")
_WANTED: Final = (
    "License-Expression",
    "License-File",
    "Description-Content-Type",
    "Project-URL",
    "Classifier",
)


class DistError(Exception):
    """A step that failed; the message has what its command printed."""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command and return its output. Raises DistError with it when the command fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DistError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def build(into: Path) -> None:
    """Build a source archive and a wheel of each package, and the chart's archive."""
    for folder in PACKAGES:
        # `build` makes the wheel from the source archive: what the archive lacks, the wheel lacks.
        run(sys.executable, "-m", "build", "--outdir", into, ROOT / folder)
    run(program("helm"), "package", ROOT / "deploy/helm/berth", "--destination", into)


def faults_of(wheel: Path, folder: str) -> Iterator[str]:
    """Yield what a wheel lacks beside its source folder, and of its metadata."""
    package = PACKAGES[folder]
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata_name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(metadata_name).decode())
    for field in _WANTED:
        if not metadata.get_all(field):
            yield f"{wheel.name}: no {field}"
    if not str(metadata.get_payload()).strip():
        yield f"{wheel.name}: no README"
    packages = (package, *BESIDE.get(folder, ()))
    for one in packages:
        if f"{one}/py.typed" not in names:
            yield f"{wheel.name}: {one} is not typed"
        source = (ROOT / folder / "host" if folder == "." else ROOT / folder) / one
        tracked = run("git", "ls-files", "--cached", "--others", "--exclude-standard", source).split()
        for name in tracked:
            inside = Path(name).relative_to(source.parent.relative_to(ROOT)).as_posix()
            if inside not in names:
                yield f"{wheel.name}: without {inside}"
    made = scaffold_sources.copies(ROOT) if package == "berth_sdk" else ()
    for name in made:
        if f"berth_sdk/cli/scaffold/{name}" not in names:
            yield f"{wheel.name}: without the scaffold's {name}"
    for name in names:
        if not name.startswith((f"{package}-", *(f"{one}/" for one in packages))):
            yield f"{wheel.name}: {name} is of no package"


def install(wheels: Sequence[Path], folder: Path) -> Path:
    """Install the wheels in an empty environment; return the folder of its commands."""
    venv.create(folder, with_pip=True)
    binaries = folder / "bin"
    extras = {"berth_sdk": "[server]", "berth_plugins": "[dra]"}
    wanted = []
    for wheel in wheels:
        name, version, *_ = wheel.name.split("-")
        wanted.append(f"{name}{extras.get(name, '')}=={version}")
    quiet = ("--quiet", "--disable-pip-version-check")
    run(binaries / "pip", "install", *quiet, "-c", CONSTRAINTS, "--find-links", wheels[0].parent, *wanted)
    run(binaries / "pip", "check")
    return binaries


def try_readme(binaries: Path) -> None:
    """Run every block of README.md with these commands. Raises BlockError."""
    folder = Path(tempfile.mkdtemp(prefix="berth-dist-"))  # short: it has sockets
    try:
        shutil.copytree(
            ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("node_modules", "target")
        )
        (folder / ".venv").symlink_to(binaries.parent)
        workspace = Workspace(Page(ROOT / "README.md"), folder, binaries)
        try:
            workspace.run()
        finally:
            workspace.close()
    finally:
        shutil.rmtree(folder)


def write_sbom(binaries: Path, into: Path, version: str) -> None:
    """Write the CycloneDX list of what the environment has, without pip."""
    run(binaries / "pip", "uninstall", "--quiet", "--yes", "pip")
    target = into / f"berth-{version}.cdx.json"
    python = binaries / "python"
    run(
        Path(sys.executable).parent / "cyclonedx-py",
        "environment",
        python,
        "--output-reproducible",
        "-o",
        target,
    )
    named = {component["name"] for component in json.loads(target.read_text())["components"]}
    missing = {package.replace("_", "-") for package in PACKAGES.values()} - named
    if missing:
        raise DistError(f"{target.name} lacks {', '.join(sorted(missing))}")


def empty(into: Path) -> None:
    """Make the folder, without what an earlier run left. Raises DistError if it holds anything else."""
    left = sorted(into.iterdir()) if into.is_dir() else []
    for path in left:
        if not (path.is_file() and path.name.startswith("berth") and path.suffix in _SUFFIXES):
            raise DistError(f"{into} holds {path.name}, which is of no package: give a folder of its own")
    for path in left:
        path.unlink()
    into.mkdir(parents=True, exist_ok=True)


def make(into: Path) -> list[str]:
    """Build and check all; return the faults. Raises DistError and BlockError."""
    empty(into)
    build(into)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(into.glob("berth_*")))
    wheels = {folder: next(into.glob(f"{package}-*.whl")) for folder, package in PACKAGES.items()}
    faults = [fault for folder, wheel in wheels.items() for fault in faults_of(wheel, folder)]
    version = wheels["."].name.split("-")[1]
    with tempfile.TemporaryDirectory(prefix="berth-dist-") as folder:
        binaries = install([*wheels.values()], Path(folder) / "venv")
        try_readme(binaries)
        write_sbom(binaries, into, version)
    return faults


def main(argv: Sequence[str] | None = None) -> int:
    """Make dist/, print what is in it, and return the exit code."""
    parser = argparse.ArgumentParser(description="Build and check the packages, the chart and the SBOM.")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="the folder (default: dist)")
    into = parser.parse_args(argv).into.resolve()
    try:
        faults = make(into)
    except (DistError, BlockError) as err:
        faults = [str(err)]
    for fault in faults:
        print(fault, file=sys.stderr)
    for path in sorted(into.glob("berth*")):
        print(f"{os.path.relpath(path)}  {path.stat().st_size} bytes")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
