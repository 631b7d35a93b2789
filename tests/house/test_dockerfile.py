"""The image: built and run without root, with the pinned versions; its install lines really install.

The lines that an ordinary user runs in the build stage are taken from the Dockerfile and run here, with
`/berth` moved into a temporary folder. They need a package index, as the build does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from berth_sdk.cli import scaffold_sources
from packaging.requirements import Requirement
from support.places import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
USER_ID = 65532
# The index and its certificates belong to the machine, not to the build.
PASSED_ON = re.compile(r"(?i)PIP_.*|SSL_CERT_.*|REQUESTS_CA_BUNDLE|https?_proxy|no_proxy")
INSTALL = (
    "pip install --no-cache-dir -c host/constraints.txt"
    " ./sdk './plugins[dra]' ./plugins/scheduler_plugins '.[tracing]'"
)


def instructions(stage: int) -> list[tuple[str, str]]:
    """Return (word, rest) of every instruction of a stage, with continued lines joined."""
    stages = re.split(r"^FROM ", re.sub(r"\\\n", "", DOCKERFILE), flags=re.MULTILINE)[1:]
    lines = [line for line in stages[stage].splitlines()[1:] if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def test_image_runs_without_root_and_build_installs_without_root() -> None:
    user = f"{USER_ID}:{USER_ID}"
    build, image = instructions(0), instructions(1)
    assert ("USER", user) in image
    assert build.index(("USER", user)) < build.index(("RUN", INSTALL))


def test_image_of_the_examples_has_them_where_the_demo_of_the_chart_runs_them() -> None:
    lines = (ROOT / "examples/Dockerfile").read_text().splitlines()
    plugins = yaml.safe_load((ROOT / "deploy/values/demo.yaml").read_text())["plugins"]
    for container in (plugin["container"] for plugin in plugins):
        assert f"WORKDIR {container['workingDir']}" in lines
        assert f"COPY examples {container['workingDir']}/examples" in lines
        path = container["command"][-1].partition(":")[0]
        folders = [
            ROOT,
            *(ROOT / Path(one["value"]).relative_to("/berth") for one in container.get("env", ())),
        ]
        files = (path, f"{path.replace('.', '/')}.py", f"{path.replace('.', '/')}/__init__.py")
        assert any((folder / file).is_file() for folder in folders for file in files)


def test_constraints_pin_every_runtime_dependency() -> None:
    lines = (ROOT / "host/constraints.txt").read_text().splitlines()
    pinned = {Requirement(line).name.lower(): line for line in lines if line and not line.startswith("#")}
    assert all("==" in line for line in pinned.values())
    projects = [
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        for folder in (".", "sdk", "plugins", "plugins/scheduler_plugins")
    ]
    lines = [line for project in projects for line in project["dependencies"]]
    lines += projects[0]["optional-dependencies"]["uvloop"] + projects[2]["optional-dependencies"]["dra"]
    wanted = {Requirement(line).name.lower() for line in lines}
    assert {"numpy", "google-re2"} <= wanted
    assert wanted - {"berth-sdk", "berth-plugins"} <= pinned.keys()


@pytest.fixture
def python_path() -> str:
    """Return the system's Python, which any user may run; the build stage has no other."""
    found = shutil.which("python3", path="/usr/bin:/bin")
    code = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"
    if found is None or subprocess.run([found, "-c", code], capture_output=True, check=False).returncode:
        pytest.skip("no Python 3.11 with venv in /usr/bin: the build stage's lines need one")
    return "/usr/bin:/bin"


def copied(home: Path, sources: Sequence[str], target: str) -> None:
    source_folder = home / "source"
    for name in sources:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, source_folder / target, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source_folder / target / name)


@pytest.fixture
def home() -> Iterator[Path]:
    """Make a folder in place of /berth, outside pytest's own folder, which only pytest's user can read."""
    folder = Path(tempfile.mkdtemp(prefix="berth-image-"))
    (folder / "source").mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.long
def test_install_lines_give_a_working_berth_to_an_ordinary_user(home: Path, python_path: str) -> None:
    environment = {key: value for key, value in os.environ.items() if PASSED_ON.fullmatch(key)}
    environment |= {"PATH": python_path}
    as_root = os.geteuid() == 0
    user_lines: list[str] = []
    is_user = False
    for word, rest in instructions(0):
        if word == "USER":
            is_user = True
        elif word == "ENV":
            name, _, value = rest.partition("=")
            environment[name] = value.replace("/berth", str(home))
        elif word == "COPY":
            *sources, target = [part for part in rest.split() if not part.startswith("--")]
            copied(home, sources, target)
        elif word == "RUN" and is_user:
            user_lines.append(rest.replace("/berth", str(home)))
    assert INSTALL in user_lines
    if as_root:
        give_away(home)
    for line in user_lines:
        done = run_line(line, home / "source", environment, as_root)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert done.stdout == f"berth {version('berth-host')}\n"
    # Device selectors compile: the extra `dra` is there.
    code = "from berth_plugins.dynamic_resources.cel import Expression; Expression('true')"
    compiled = run_line(f'python3 -c "{code}"', home, environment, as_root)
    assert (compiled.returncode, compiled.stderr) == (0, "")
    # The data files are in the wheels too: those that `berth-sdk new` copies, and those that explain mistakes
    files = "*(p.relative_to(s) for p in s.rglob('*') if p.is_file())"
    code = f"from berth_sdk.cli.scaffold_sources import SCAFFOLD as s; print({files})"
    listed = run_line(f'python3 -c "{code}"', home, environment, as_root).stdout.split()
    assert sorted(listed) == list(scaffold_sources.files())
    bad = run_line(
        'echo \'{"apiVersion": "v1", "kind": "Pod"}\' | berth simulate -f -', home, environment, as_root
    )
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "metadata.name: is required" in bad.stderr


def run_line(
    line: str, folder: Path, environment: dict[str, str], as_root: bool
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        user=USER_ID if as_root else None,
        group=USER_ID if as_root else None,
        extra_groups=[] if as_root else None,
    )


def give_away(folder: Path) -> None:
    """Make the other user the owner of the folder."""
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, USER_ID, USER_ID)
