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
from berth_bench.versus.real_servers import PROGRAMS, VERSION, ServerError, pod_group_flags, programs_folder
from support.e2e_cluster import PROGRAMS as MORE
from support.places import ROOT

BUILD = "tests/cluster/envtest"
SPECS = "tests/cluster/e2e"
TOOLS = ("sh", "sed", "dirname", "mkdir", "ln", "mv", "cp", "rm")
UPSTREAM = """module k8s.io/kubernetes

go 1.26.0

godebug default=go1.26

require (
\tgo.etcd.io/etcd/client/v3 v3.7.0
\tk8s.io/api v0.0.0
\tk8s.io/klog/v2 v2.140.0
)

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/streaming => ./staging/src/k8s.io/streaming
)
"""
"""A go.mod of Kubernetes, shortened."""


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
    (clone / "upstream.mod").write_text(UPSTREAM)
    script = f"""#!/bin/sh
if [ "$1 $2" = 'mod download' ]; then
    case $4 in *@v1.99.*) exit 1;; esac
    printf '{{\\n\\t"Path": "k8s.io/kubernetes",\\n\\t"GoMod": "{clone}/upstream.mod",\\n}}\\n'
    exit
fi
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


def ask(function: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call a function of version.sh."""
    return subprocess.run(
        ["sh", "-c", f'. "{ROOT / BUILD}/version.sh"; {function} "$@"', "sh", *words],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("given", "release", "minor", "libraries"),
    [
        ("v1.37.2", "v1.37.2", "37", "v0.37.2"),
        ("1.36.3", "v1.36.3", "36", "v0.36.3"),
        ("v1.38.0-rc.0", "v1.38.0-rc.0", "38", "v0.38.0-rc.0"),
        ("1.38.0-rc.1", "v1.38.0-rc.1", "38", "v0.38.0-rc.1"),
        ("v1.38.0-beta.0", "v1.38.0-beta.0", "38", "v0.38.0-beta.0"),
        ("v1.39.0-alpha.12", "v1.39.0-alpha.12", "39", "v0.39.0-alpha.12"),
    ],
)
def test_version_of_the_libraries_follows_from_the_release(
    given: str, release: str, minor: str, libraries: str
) -> None:
    chosen = ask("chosen", str(ROOT / BUILD / "go.mod"), ENVTEST_K8S_VERSION=given)
    assert chosen.stdout == f"{release}\n", chosen.stderr
    assert ask("minor", release).stdout == f"{minor}\n"
    assert ask("staging", release).stdout == f"{libraries}\n"


@pytest.mark.parametrize(
    "given", ["1.38", "latest", "v1.38.0-rc", "v1.38.0rc0", "v2.0.0", "v1.38.0-rc.0+x", " 1.37.2"]
)
def test_what_is_no_release_is_refused_with_an_example(given: str) -> None:
    done = ask("chosen", str(ROOT / BUILD / "go.mod"), ENVTEST_K8S_VERSION=given)
    assert (done.returncode, done.stdout) == (1, "")
    assert f'ENVTEST_K8S_VERSION is "{given}", which is no release of Kubernetes' in done.stderr
    assert "v1.38.0-rc.0" in done.stderr


@pytest.mark.parametrize("release", ["v1.37.2", "v1.38.0-rc.0"])
def test_pinned_release_keeps_the_ending_of_a_candidate(tmp_path: Path, release: str) -> None:
    module = tmp_path / "go.mod"
    module.write_text(
        f"tool k8s.io/kubernetes/cmd/kubectl\nrequire (\n\tk8s.io/kubernetes {release} // indirect\n)\n"
    )
    assert ask("pinned", str(module)).stdout == f"{release}\n"
    assert ask("chosen", str(module), ENVTEST_K8S_VERSION="").stdout == f"{release}\n"


def test_another_release_is_built_from_a_module_made_for_it(clone: Path) -> None:
    go(clone)
    done = build(clone, "e2e", ENVTEST_K8S_VERSION="1.38.0-rc.0")
    assert done.returncode == 0, done.stderr
    store = clone / "home/.cache/berth/envtest/v1.38.0-rc.0"
    assert sorted(path.name for path in store.iterdir() if path.name[0] != ".") == sorted([*PROGRAMS, *MORE])
    made = store / ".module"
    assert (made / "go.mod").read_text() == (
        "module berth.io/envtest/made\ngo 1.26.0\ngodebug default=go1.26\n"
        "require k8s.io/kubernetes v1.38.0-rc.0\n"
        "replace k8s.io/api => k8s.io/api v0.38.0-rc.0\n"
        "replace k8s.io/streaming => k8s.io/streaming v0.38.0-rc.0\n"
    )
    calls = (clone / "calls").read_text().splitlines()
    assert all("version.gitVersion=v1.38.0-rc.0 " in call for call in calls)
    assert all("version.gitMinor=38 " in call for call in calls)
    begins = {call.rsplit("/", 1)[1]: call.split(" -trimpath")[0] for call in calls}
    assert begins["kube-apiserver"] == f"{made} build -mod=mod"
    assert begins["v3"] == f"{made} build -mod=mod"
    assert begins["e2e"] == f"{made}/e2e test -c -mod=mod"
    assert calls[-1].endswith(" berth.io/envtest/made/e2e")
    # helm and kwok do not follow the release: their own modules name all versions.
    assert {begins["helm"], begins["kwok"]} == {
        f"{clone / BUILD}/helm build",
        f"{clone / BUILD}/kwok build",
    }


def test_release_that_go_cannot_download_is_named(clone: Path) -> None:
    go(clone)
    done = build(clone, ENVTEST_K8S_VERSION="v1.99.0")
    assert done.returncode == 1
    assert "Go has not downloaded k8s.io/kubernetes@v1.99.0" in done.stderr
    assert not (clone / "calls").exists()


@pytest.mark.parametrize(
    ("given", "folder"), [("", VERSION), ("1.36.3", "v1.36.3"), ("v1.38.0-rc.0", "v1.38.0-rc.0")]
)
def test_tests_run_on_the_servers_of_the_chosen_release(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str, folder: str
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("ENVTEST_K8S_VERSION", given)
    assert programs_folder() == tmp_path / "berth/envtest" / folder


@pytest.mark.parametrize(
    ("release", "has_policy"), [("v1.37.2", True), ("v1.38.0-rc.0", False), ("v1.36.3", None)]
)
def test_pod_groups_are_served_with_the_gates_of_the_release(
    monkeypatch: pytest.MonkeyPatch, release: str, has_policy: bool | None
) -> None:
    monkeypatch.setenv("ENVTEST_K8S_VERSION", release)
    if has_policy is None:
        with pytest.raises(ServerError, match=r"v1\.36\.3 has no PodGroups .*: use 1\.37 or later"):
            pod_group_flags()
        return
    gates, versions = pod_group_flags()
    assert ("PodGroupPreemptionPolicy=true" in gates) is has_policy
    assert "GenericWorkload=true" in gates
    assert "scheduling.k8s.io/v1beta1=true" in versions


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
