"""`berth bench versus`: its input, without servers; `tests/cluster/test_versus.py` has turns on real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from berth_bench.versus import extender
from berth_bench.versus.workloads import WORKLOADS

from ..conftest import Run


def test_names_are_listed(run: Run) -> None:
    done = run("bench", "versus", "--list")
    assert done.exit_code == 0
    assert done.output.splitlines() == [workload.name for workload in WORKLOADS]


def test_unknown_workload_is_reported_with_the_known_ones(run: Run) -> None:
    done = run("bench", "versus", "Plane/1000Nodes")
    assert done.exit_code == 2
    assert "there is no workload Plane/1000Nodes: there are Plain/1000Nodes, " in done.output


def test_missing_programs_are_named_with_the_remedy(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    (tmp_path / "etcd").touch(0o755)
    done = run("bench", "versus", "Plain/1000Nodes")
    assert done.exit_code == 2
    assert f"no kube-apiserver, kube-scheduler in {tmp_path}: run `make envtest`" in done.output


def test_extender_without_go_or_a_clone_is_an_error_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(tmp_path)
        assert f"no extender in {tmp_path}/tests/cluster/envtest: run this in a clone" in extender.missing()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Go is needed to build the extender" in extender.missing()
    with pytest.raises(extender.ExtenderError, match=r"https://go\.dev/doc/install"):
        extender.build()


def test_only_a_workload_with_an_extender_needs_go(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("etcd", "kube-apiserver", "kube-scheduler"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run("bench", "versus", "RemotePlugin/5000Nodes")
    assert done.exit_code == 2
    assert "Go is needed" in done.output
