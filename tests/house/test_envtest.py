"""`make envtest` builds each program completely or not at all; without them tests/cluster is skipped, not in
CI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from berth_bench.versus.real_servers import PROGRAMS, VERSION
from support.e2e_cluster import PROGRAMS as MORE
from support.places import ROOT

BUILD = "tests/cluster/envtest"
SPECS = "tests/cluster/e2e"
TOOLS = ("sh", "sed", "dirname", "mkdir", "ln", "mv")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Make a folder with the script, and a PATH with the tools that it calls, but without Go."""
    shutil.copytree(ROOT / BUILD, tmp_path / BUILD)
    (tmp_path / "bin").mkdir()
    shutil.copytree(ROOT / SPECS, tmp_path / SPECS)
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    return tmp_path


def build(clone: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [clone / "bin/sh", clone / BUILD / "build.sh", *words],
        env={"PATH": str(clone / "bin"), "HOME": str(clone / "home"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def go(clone: Path, *, fails_at: str = "nothing") -> None:
    """Make a Go that writes the name of the package as the program, and stops half-way at one."""
    script = f"""#!/bin/sh
for last; do [ "$before" = -o ] && out=$last; before=$last; done
echo half > "$out"
case $last in */{fails_at}) exit 1;; esac
echo "$last" > "$out"
/bin/chmod +x "$out"
echo "$PWD $@" >> {clone}/calls
"""
    (clone / "bin/go").write_text(script)
    (clone / "bin/go").chmod(0o755)


def test_all_programs_are_built_once(clone: Path) -> None:
    go(clone)
    first = build(clone)
    assert first.returncode == 0, first.stderr
    store = clone / "home/.cache/berth/envtest" / VERSION
    assert sorted(path.name for path in store.iterdir()) == sorted(PROGRAMS)
    assert (store / "kubectl").read_text() == "k8s.io/kubernetes/cmd/kubectl\n"
    calls = (clone / "calls").read_text()
    assert f"-X k8s.io/component-base/version.gitVersion={VERSION}" in calls

    assert build(clone).stdout == f"envtest: the servers of {VERSION} are in {store}\n"
    assert (clone / "calls").read_text() == calls


def test_specs_and_their_kubelets_are_built_from_modules_of_their_own_when_asked_for(clone: Path) -> None:
    go(clone)
    assert build(clone).returncode == 0
    servers = (clone / "calls").read_text()
    done = build(clone, "e2e")
    assert done.returncode == 0, done.stderr
    kwok, specs = (clone / "calls").read_text().removeprefix(servers).splitlines()
    assert kwok.startswith(f"{clone / BUILD}/kwok build ")
    assert kwok.endswith(" sigs.k8s.io/kwok/cmd/kwok")
    assert specs.startswith(f"{clone / SPECS} test -c ")
    assert specs.endswith(" berth.io/envtest/e2e")
    store = clone / "home/.cache/berth/envtest" / VERSION
    assert sorted(path.name for path in store.iterdir()) == sorted([*PROGRAMS, *MORE])

    (store / "kwok").unlink()
    assert build(clone).returncode == 0
    assert not (store / "kwok").exists()


@pytest.mark.parametrize("folder", ["kwok", "../e2e"])
def test_modules_of_the_specs_are_of_the_servers_release(folder: str) -> None:
    module = (ROOT / BUILD / folder / "go.mod").read_text()
    wanted = {"kwok": "sigs.k8s.io/kwok v0.8.0", "../e2e": f"k8s.io/kubernetes {VERSION}"}
    assert wanted[folder] in module


def test_interrupted_build_is_not_taken_for_a_program(clone: Path) -> None:
    go(clone, fails_at="kube-scheduler")
    assert build(clone, XDG_CACHE_HOME=str(clone / "cache")).returncode != 0
    store = clone / "cache/berth/envtest" / VERSION
    assert (store / "kube-apiserver").exists()
    assert not (store / "kube-scheduler").exists()

    go(clone)
    again = build(clone, XDG_CACHE_HOME=str(clone / "cache"))
    assert again.returncode == 0
    assert "building kube-apiserver" not in again.stdout
    assert (store / "kube-scheduler").read_text() == "k8s.io/kubernetes/cmd/kube-scheduler\n"


def test_missing_go_is_named_with_its_cure(clone: Path) -> None:
    done = build(clone)
    assert done.returncode == 1
    assert "Go is needed to build kube-apiserver etcd" in done.stderr
    assert "https://go.dev/doc/install" in done.stderr


def test_given_assets_are_taken_as_they_are(clone: Path) -> None:
    assets = clone / "assets"
    assets.mkdir()
    for name in PROGRAMS:
        (assets / name).touch(0o755)
    assert build(clone, KUBEBUILDER_ASSETS=str(assets)).returncode == 0

    (assets / "etcd").unlink()
    done = build(clone, KUBEBUILDER_ASSETS=str(assets))
    assert done.returncode == 1
    assert f"KUBEBUILDER_ASSETS names {assets}, which lacks etcd" in done.stderr


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("ci", "outcome", "code"), [("", "skipped", 0), ("true", "error", 1)])
def test_without_the_servers_their_tests_are_skipped_but_not_in_ci(
    tmp_path: Path, ci: str, outcome: str, code: int
) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rsE",
            "-p",
            "no:cacheprovider",
            "tests/cluster/test_servers.py",
        ],
        cwd=ROOT,
        env={**environment, "KUBEBUILDER_ASSETS": str(tmp_path), "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert f" {outcome}" in done.stdout.splitlines()[-1]
    assert "make envtest" in done.stdout
