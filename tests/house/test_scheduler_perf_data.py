"""`make scheduler-perf-data` copies Kubernetes' workloads to the folder that `berth bench` reads."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from berth_bench.scheduler_perf import upstream
from berth_bench.versus.real_servers import VERSION
from support.places import ROOT

FOLDER = "tests/cluster/envtest"
TOOLS = ("sh", "sed", "dirname", "mkdir", "mv", "rm", "cp", "chmod", "find", "cat")
INSIDE = "test/integration/scheduler_perf"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Make a folder with the script, and a PATH with the tools that it calls, but without Go."""
    (tmp_path / FOLDER).mkdir(parents=True)
    for name in ("scheduler_perf_data.sh", "version.sh", "go.mod"):
        shutil.copy(ROOT / FOLDER / name, tmp_path / FOLDER / name)
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    return tmp_path


def kubernetes(folder: Path, threshold: int) -> Path:
    """Make the files of a release that the script copies, write-protected as in Go's module cache."""
    area = folder / INSIDE / "misc"
    (area / "templates").mkdir(parents=True)
    (area / "performance-config.yaml").write_text(f"- {threshold}\n")
    (area / "templates" / "pod.yaml").write_text("kind: Pod\n")
    (area / "misc_test.go").write_text("package misc\n")
    for path in area.rglob("*.yaml"):
        path.chmod(0o444)
    return folder


def go(clone: Path, releases: Mapping[str, int]) -> None:
    """Make a Go that can download these releases: by version the threshold in their files."""
    answers = ""
    for version, threshold in releases.items():
        here = kubernetes(clone / "modules" / f"k8s.io/kubernetes@{version}", threshold)
        answer = f'{{\\n\\t"Version": "x",\\n\\t"Dir": "{here}",\\n\\t"Sum": "y"\\n}}\\n'
        answers += f"'mod download -json k8s.io/kubernetes@{version}') printf '{answer}';;\n"
    (clone / "bin/go").write_text(
        f'#!/bin/sh\ncase "$*" in\n{answers}*) echo "no such module: $*" >&2; exit 1;;\nesac\n'
    )
    (clone / "bin/go").chmod(0o755)


def old_go(clone: Path, version: str) -> None:
    """Make a Go that downloads this release and does not unpack it, as it wants a newer Go."""
    module = f"k8s.io/kubernetes@{version}"
    here = kubernetes(clone / "modules" / module, 11)
    archive = clone / "kubernetes.zip"
    with zipfile.ZipFile(archive, "w") as files:
        for path in here.rglob("*.*"):
            files.write(path, f"{module}/{path.relative_to(here)}")
    shutil.rmtree(clone / "modules")
    answer = f'{{\\n\\t"Error": "requires a newer Go",\\n\\t"Zip": "{archive}"\\n}}\\n'
    (clone / "bin/go").write_text(f"#!/bin/sh\nprintf '{answer}'\nexit 1\n")
    (clone / "bin/go").chmod(0o755)


def fetch(clone: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [clone / "bin/sh", clone / FOLDER / "scheduler_perf_data.sh"],
        env={"PATH": str(clone / "bin"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def files(clone: Path, version: str) -> list[str]:
    own = clone / upstream.DATA / version
    return sorted(str(path.relative_to(own)) for path in own.rglob("*") if path.is_file())


def test_bench_runs_the_release_that_the_servers_are_built_from() -> None:
    assert upstream.VERSION == VERSION


def test_files_are_put_where_bench_looks(clone: Path) -> None:
    for threshold in (10, 11):
        shutil.rmtree(clone / "modules", ignore_errors=True)
        go(clone, {VERSION: threshold})
        done = fetch(clone)
        assert done.returncode == 0, done.stderr
        assert files(clone, VERSION) == ["misc/performance-config.yaml", "misc/templates/pod.yaml"]
        (found,) = upstream.files((), clone / upstream.DATA)
        assert found.read_text() == f"- {threshold}\n"
    assert [path.name for path in (clone / upstream.DATA).iterdir()] == [VERSION]


def test_another_release_has_a_folder_of_its_own(clone: Path) -> None:
    go(clone, {VERSION: 10, "v1.38.0-beta.0": 11})
    assert fetch(clone).returncode == 0
    done = fetch(clone, ENVTEST_K8S_VERSION="1.38.0-beta.0")
    assert done.returncode == 0, done.stderr
    data = clone / upstream.DATA
    assert upstream.files(("misc",), data)[0].read_text() == "- 10\n"
    assert upstream.files(("misc",), data, "1.38.0-beta.0")[0].read_text() == "- 11\n"
    refused = fetch(clone, ENVTEST_K8S_VERSION="1.38")
    assert (refused.returncode, "set a full version" in refused.stderr) == (1, True)


def test_files_of_a_release_that_wants_a_newer_go_come_from_its_archive(clone: Path) -> None:
    old_go(clone, "v1.38.0-beta.0")
    done = fetch(clone, ENVTEST_K8S_VERSION="1.38.0-beta.0", PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    assert files(clone, "v1.38.0-beta.0") == ["misc/performance-config.yaml", "misc/templates/pod.yaml"]
    assert [path.name for path in (clone / upstream.DATA).iterdir()] == ["v1.38.0-beta.0"]


def test_failed_download_is_named_with_its_cure(clone: Path) -> None:
    go(clone, {})
    done = fetch(clone)
    assert done.returncode == 1
    assert f"has not downloaded k8s.io/kubernetes@{VERSION}: mend what it says above" in done.stderr
    assert "GOPROXY" in done.stderr
    assert not (clone / upstream.DATA / VERSION).exists()


def test_missing_go_is_named_with_its_cure(clone: Path) -> None:
    done = fetch(clone)
    assert done.returncode == 1
    assert "Go is needed" in done.stderr
    assert "https://go.dev/doc/install" in done.stderr
