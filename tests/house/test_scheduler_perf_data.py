"""`make scheduler-perf-data` copies Kubernetes' workloads where `berth bench` looks for them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from berth_host.cli.bench.scheduler_perf import upstream
from support.examples import ROOT
from support.real_servers import VERSION

FOLDER = "tests/cluster/envtest"
TOOLS = ("sh", "sed", "dirname", "mkdir", "mv", "rm", "cp", "chmod", "find", "cat")
INSIDE = "test/integration/scheduler_perf"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The script, and a PATH with the tools it calls, but without Go."""
    (tmp_path / FOLDER).mkdir(parents=True)
    for name in ("scheduler_perf_data.sh", "go.mod"):
        shutil.copy(ROOT / FOLDER / name, tmp_path / FOLDER / name)
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    return tmp_path


def kubernetes(folder: Path, threshold: int) -> Path:
    """What the script takes of a release, write-protected as in Go's module cache."""
    area = folder / INSIDE / "misc"
    (area / "templates").mkdir(parents=True)
    (area / "performance-config.yaml").write_text(f"- {threshold}\n")
    (area / "templates" / "pod.yaml").write_text("kind: Pod\n")
    (area / "misc_test.go").write_text("package misc\n")
    for path in area.rglob("*.yaml"):
        path.chmod(0o444)
    return folder


def go(clone: Path) -> Path:
    """A Go whose module cache has the release that the servers are built from; the cache."""
    cache = clone / "modules"
    here = kubernetes(cache / f"k8s.io/kubernetes@{VERSION}", 10)
    (clone / "answer").write_text(f'{{\n\t"Version": "x",\n\t"Dir": "{here}",\n\t"Sum": "y"\n}}\n')
    script = f"""#!/bin/sh
case "$*" in
'mod download -json k8s.io/kubernetes') cat {clone}/answer;;
'env GOMODCACHE') echo {cache};;
*) echo "unexpected: $*" >&2; exit 1;;
esac
"""
    (clone / "bin/go").write_text(script)
    (clone / "bin/go").chmod(0o755)
    return cache


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


def test_files_are_put_where_bench_looks_and_the_next_release_is_asked_for(clone: Path) -> None:
    go(clone)
    for _ in range(2):
        done = fetch(clone)
        assert done.returncode == 0, done.stderr
        assert files(clone, VERSION) == ["misc/performance-config.yaml", "misc/templates/pod.yaml"]
        assert "check out the tag v1.37.2" in done.stdout
        assert "make scheduler-perf-data KUBERNETES_LATER=THE_FOLDER" in done.stdout
    (found,) = upstream.files((), clone / upstream.DATA)
    assert found.read_text() == "- 10\n"
    assert [path.name for path in (clone / upstream.DATA).iterdir()] == [VERSION]


def test_next_release_comes_out_of_a_checkout_and_stays(clone: Path, tmp_path: Path) -> None:
    go(clone)
    done = fetch(clone, KUBERNETES_LATER=str(kubernetes(tmp_path / "checkout", 20)))
    assert done.returncode == 0, done.stderr
    path = clone / upstream.DATA / upstream.LATER / "misc/performance-config.yaml"
    assert path.read_text() == "- 20\n"
    again = fetch(clone)
    assert f"the files of {upstream.LATER}" in again.stdout
    assert "are left as they are" in again.stdout
    assert path.read_text() == "- 20\n"


def test_next_release_in_the_module_cache_is_taken(clone: Path) -> None:
    kubernetes(go(clone) / f"k8s.io/kubernetes@{upstream.LATER}", 30)
    assert fetch(clone).returncode == 0
    path = clone / upstream.DATA / upstream.LATER / "misc/performance-config.yaml"
    assert path.read_text() == "- 30\n"


def test_folder_that_has_no_workloads_is_named(clone: Path, tmp_path: Path) -> None:
    go(clone)
    done = fetch(clone, KUBERNETES_LATER=str(tmp_path))
    assert done.returncode == 1
    assert f"KUBERNETES_LATER names {tmp_path}, which has no {INSIDE}" in done.stderr


def test_missing_go_is_named_with_its_cure(clone: Path) -> None:
    done = fetch(clone)
    assert done.returncode == 1
    assert "Go is needed" in done.stderr
    assert "https://go.dev/doc/install" in done.stderr
